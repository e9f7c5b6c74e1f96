#include "runtime/driver/device_memory.hpp"

#include <fmt/format.h>

#include "generator/problem/errors.hpp"

namespace w4moe::driver {
namespace {

Status check_range(i64 bytes, i64 offset, i64 size) {
  if (bytes < 0 || offset < 0 || offset > size || bytes > size - offset) {
    return invalid_argument("{} bytes from {} on do not lie inside {} bytes of device memory", bytes, offset, size);
  }
  return {};
}

}  // namespace

Result<PrimaryContext> PrimaryContext::open(const DriverTable& table, int ordinal) {
  if (Status s = initialize(table); !s) return s.error();
  PrimaryContext context(table, 0);
  if (Status s = check(table, table.device_get(&context.device_, ordinal), "cuDeviceGet"); !s) return s.error();
  Context handle = nullptr;
  if (Status s = check(table, table.device_primary_ctx_retain(&handle, context.device_), "cuDevicePrimaryCtxRetain"); !s) return s.error();
  if (Status s = check(table, table.ctx_push_current(handle), "cuCtxPushCurrent"); !s) {
    table.device_primary_ctx_release(context.device_);
    return s.error();
  }
  context.context_ = handle;
  return context;
}

PrimaryContext::~PrimaryContext() {
  if (context_ == nullptr) return;
  Context popped = nullptr;
  table_->ctx_pop_current(&popped);
  table_->device_primary_ctx_release(device_);
}

Result<DeviceBuffer> DeviceBuffer::allocate(const DriverTable& table, i64 bytes) {
  DeviceBuffer buffer;
  buffer.table_ = &table;
  if (bytes < 0) return invalid_argument("{} bytes of device memory", bytes);
  if (bytes == 0) return buffer;
  const Code code = table.mem_alloc(&buffer.pointer_, static_cast<std::size_t>(bytes));
  if (code != kSuccess) return driver_error(table, code, "cuMemAlloc", fmt::format("{} bytes", bytes));
  buffer.bytes_ = bytes;
  return buffer;
}

DeviceBuffer& DeviceBuffer::operator=(DeviceBuffer&& other) noexcept {
  std::swap(table_, other.table_);
  std::swap(pointer_, other.pointer_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

DeviceBuffer::~DeviceBuffer() {
  if (pointer_ != 0) table_->mem_free(pointer_);
}

Status DeviceBuffer::upload(const void* from, i64 bytes, i64 offset_bytes) const {
  if (Status s = check_range(bytes, offset_bytes, bytes_); !s) return s;
  if (bytes == 0) return {};
  if (Status s = check(*table_, table_->memcpy_htod(pointer_ + static_cast<u64>(offset_bytes), from, static_cast<std::size_t>(bytes)), "cuMemcpyHtoD"); !s) {
    return s;
  }
  // From pageable memory the call returns once the bytes are staged: they may land after work that a non-blocking stream starts next.
  return check(*table_, table_->stream_synchronize(nullptr), "cuStreamSynchronize");
}

Status DeviceBuffer::download(void* to, i64 bytes, i64 offset_bytes) const {
  if (Status s = check_range(bytes, offset_bytes, bytes_); !s) return s;
  if (bytes == 0) return {};
  return check(*table_, table_->memcpy_dtoh(to, pointer_ + static_cast<u64>(offset_bytes), static_cast<std::size_t>(bytes)), "cuMemcpyDtoH");
}

Status DeviceBuffer::fill(u8 value) const {
  if (bytes_ == 0) return {};
  if (Status s = check(*table_, table_->memset_d8_async(pointer_, value, static_cast<std::size_t>(bytes_), nullptr), "cuMemsetD8Async"); !s) return s;
  return check(*table_, table_->stream_synchronize(nullptr), "cuStreamSynchronize");
}

Result<OwnedStream> OwnedStream::create(const DriverTable& table, bool blocking) {
  OwnedStream stream(table);
  if (Status s = check(table, table.stream_create(&stream.stream_, blocking ? 0 : kStreamNonBlocking), "cuStreamCreate"); !s) return s.error();
  return stream;
}

OwnedStream::~OwnedStream() {
  if (stream_ != nullptr) table_->stream_destroy(stream_);
}

Status OwnedStream::synchronize() const { return check(*table_, table_->stream_synchronize(stream_), "cuStreamSynchronize"); }

Result<OwnedGraph> OwnedGraph::end_capture(const DriverTable& table, Stream stream, const Status& body) {
  OwnedGraph graph(table);
  const Code code = table.stream_end_capture(stream, &graph.graph_);
  if (!body) return body.error();
  if (Status s = check(table, code, "cuStreamEndCapture"); !s) return s.error();
  if (Status s = check(table, table.graph_instantiate(&graph.exec_, graph.graph_, 0), "cuGraphInstantiateWithFlags"); !s) return s.error();
  return graph;
}

OwnedGraph::~OwnedGraph() {
  if (exec_ != nullptr) table_->graph_exec_destroy(exec_);
  if (graph_ != nullptr) table_->graph_destroy(graph_);
}

Status OwnedGraph::launch(Stream stream) const { return check(*table_, table_->graph_launch(exec_, stream), "cuGraphLaunch"); }

Result<std::size_t> OwnedGraph::node_count() const {
  std::size_t count = 0;
  if (Status s = check(*table_, table_->graph_get_nodes(graph_, nullptr, &count), "cuGraphGetNodes"); !s) return s.error();
  return count;
}

Result<OwnedEvent> OwnedEvent::create(const DriverTable& table, bool timing) {
  OwnedEvent event(table);
  if (Status s = check(table, table.event_create(&event.event_, timing ? 0 : kEventDisableTiming), "cuEventCreate"); !s) return s.error();
  return event;
}

OwnedEvent::~OwnedEvent() {
  if (event_ != nullptr) table_->event_destroy(event_);
}

Status OwnedEvent::record(Stream stream) const { return check(*table_, table_->event_record(event_, stream), "cuEventRecord"); }
Status OwnedEvent::synchronize() const { return check(*table_, table_->event_synchronize(event_), "cuEventSynchronize"); }

Result<float> OwnedEvent::since(const OwnedEvent& start) const {
  float milliseconds = 0;
  if (Status s = check(*table_, table_->event_elapsed_time(&milliseconds, start.event_, event_), "cuEventElapsedTime"); !s) return s.error();
  return milliseconds;
}

}  // namespace w4moe::driver
