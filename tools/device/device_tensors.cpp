#include "tools/device/device_tensors.hpp"

namespace w4moe {

using driver::DeviceBuffer;

namespace {

/// Bytes of `rows` rows, the last one ending with its elements.
i64 extent_bytes(i64 rows, i64 row_elems, i64 apart_elems, i64 element_bytes) {
  return rows == 0 ? 0 : ((rows - 1) * apart_elems + row_elems) * element_bytes;
}

}  // namespace

Result<DeviceBuffer> upload(const driver::DriverTable& table, const void* data, i64 bytes) {
  Result<DeviceBuffer> buffer = DeviceBuffer::allocate(table, bytes > 0 ? bytes : 16);
  if (!buffer) return buffer.error();
  if (bytes > 0) {
    if (Status s = buffer->upload(data, bytes); !s) return s.error();
  }
  return buffer;
}

Result<DeviceTensors> upload_inputs(const driver::DriverTable& table, const Problem& problem, const MoeInputs& in) {
  const Shape& shape = problem.shape;
  DeviceTensors t;
  Result<DeviceBuffer> x = upload(table, in.x, extent_bytes(in.tokens, shape.hidden, in.x_row_stride_elems, dtype_bytes(problem.dtype)));
  if (!x) return x.error();
  Result<DeviceBuffer> ids = upload(table, in.ids, extent_bytes(in.tokens, shape.topk, in.ids_row_stride_elems, id_type_bytes(in.id_type)));
  if (!ids) return ids.error();
  Result<DeviceBuffer> router =
      upload(table, in.router_weights, extent_bytes(in.tokens, shape.topk, in.router_row_stride_elems, dtype_bytes(in.router_dtype)));
  if (!router) return router.error();
  Result<DeviceBuffer> out = upload(table, nullptr, 0);
  if (in.tokens > 0) out = DeviceBuffer::allocate(table, extent_bytes(in.tokens, shape.hidden, shape.hidden, dtype_bytes(problem.dtype)));
  if (!out) return out.error();
  t.x = std::move(*x);
  t.ids = std::move(*ids);
  t.router = std::move(*router);
  t.out = std::move(*out);
  t.args.tokens = in.tokens;
  t.args.x = t.x.data();
  t.args.x_row_stride_elems = in.x_row_stride_elems;
  t.args.ids = t.ids.data();
  t.args.id_type = in.id_type;
  t.args.ids_row_stride_elems = in.ids_row_stride_elems;
  t.args.router_weights = t.router.data();
  t.args.router_dtype = in.router_dtype;
  t.args.router_row_stride_elems = in.router_row_stride_elems;
  t.args.out = t.out.data();
  return t;
}

}  // namespace w4moe
