#include "runtime/dispatch/checks.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <utility>

#include "generator/problem/errors.hpp"
#include "runtime/dispatch/launch_sequence.hpp"

namespace w4moe {
namespace {

bool aligned(const void* pointer, i64 bytes) { return reinterpret_cast<std::uintptr_t>(pointer) % static_cast<std::uintptr_t>(bytes) == 0; }

/// The fields in which a header differs from the plan's, for people: "experts 8, the plan has 16; ...".
std::string header_differences(const WeightHeader& is, const WeightHeader& wanted) {
  std::string text;
  const auto compare = [&](const char* field, u64 a, u64 b) {
    if (a != b) text += fmt::format("{}{} {}, the plan has {}", text.empty() ? "" : "; ", field, a, b);
  };
  compare("layout version", is.layout_version, wanted.layout_version);
  compare("hidden", is.hidden, wanted.hidden);
  compare("intermediate", is.intermediate, wanted.intermediate);
  compare("experts", is.experts, wanted.experts);
  compare("code type", is.code, wanted.code);
  compare("scale type", is.scale, wanted.scale);
  compare("group size", is.group_size, wanted.group_size);
  compare("zero points", is.has_zero_point, wanted.has_zero_point);
  compare("wide exponents", is.wide_exponent, wanted.wide_exponent);
  compare("gated", is.gated, wanted.gated);
  compare("biases", is.has_bias, wanted.has_bias);
  compare("total bytes", is.total_bytes, wanted.total_bytes);
  return text.empty() ? "no field of the header differs" : text;
}

Status check_pointer(const char* name, const void* pointer, i64 align_bytes) {
  if (pointer == nullptr) return invalid_argument("{} is null; a device pointer is needed where tokens > 0", name);
  if (!aligned(pointer, align_bytes)) return invalid_argument("{} = {} is not aligned to {} bytes", name, pointer, align_bytes);
  return {};
}

/// A row stride of 0 stands for dense rows.
Status check_stride(const char* name, i64 stride_elems, i64 width, i64 multiple) {
  if (stride_elems == 0) return {};
  if (stride_elems < width) return invalid_argument("{} = {} is less than a row of {} elements (0 stands for dense rows)", name, stride_elems, width);
  if (stride_elems % multiple != 0) return invalid_argument("{} = {} is not a multiple of {} elements", name, stride_elems, multiple);
  return {};
}

/// A piece of memory that a run touches.
struct Span {
  const char* name;
  const void* data;
  i64 bytes;

  bool overlaps(const Span& other) const {
    const auto a = reinterpret_cast<std::uintptr_t>(data);
    const auto b = reinterpret_cast<std::uintptr_t>(other.data);
    return a < b + static_cast<std::uintptr_t>(other.bytes) && b < a + static_cast<std::uintptr_t>(bytes);
  }
};

Span rows_span(const char* name, const void* data, i64 rows, i64 stride_elems, i64 width, i64 elem_bytes) {
  return Span{name, data, strided_bytes(rows, stride_elems == 0 ? width : stride_elems, width, elem_bytes)};
}

}  // namespace

Status check_header(const WeightHeader& header, const void* data, i64 bytes) {
  if (header.magic != kWeightMagic) {
    return invalid_argument("the memory at {} does not hold prepared weights: it begins with {:#018x} instead of {:#018x}", data, header.magic, kWeightMagic);
  }
  if (header.layout_version != kLayoutVersion) {
    return invalid_argument("the prepared weights have layout version {}; this build reads version {}: prepare them again", header.layout_version, kLayoutVersion);
  }
  if (!aligned(data, kRegionAlignBytes)) return invalid_argument("prepared weights at {} are not aligned to {} bytes", data, kRegionAlignBytes);
  if (bytes < 0 || static_cast<u64>(bytes) < header.total_bytes) {
    return invalid_argument("prepared weights take {} bytes by their header, but the memory at {} has {}", header.total_bytes, data, bytes);
  }
  return {};
}

Status check_weights(const Plan& plan, const PreparedWeights& weights) {
  if (weights.data == nullptr) return invalid_argument("the weights are null");
  if (Status s = check_header(weights.header, weights.data, weights.bytes); !s) return s;
  const WeightHeader wanted = make_weight_header(plan.weights);
  if (weights.header.layout_id != wanted.layout_id || weights.header.total_bytes != wanted.total_bytes) {
    return invalid_argument("the prepared weights have layout id {:#018x}, the plan asks for {:#018x}: {}", weights.header.layout_id, wanted.layout_id,
                   header_differences(weights.header, wanted));
  }
  return {};
}

Status check_scratch(const Plan& plan, const void* scratch, i64 bytes) {
  const i64 needed = plan.required_bytes();
  if (bytes < needed) {
    return invalid_argument("scratch has {} bytes, the plan needs {} (required_bytes, max_tokens {})", bytes, needed, plan.problem.shape.max_tokens);
  }
  if (scratch == nullptr) return invalid_argument("scratch is null; the plan needs {} bytes", needed);
  if (!aligned(scratch, kScratchAlignBytes)) return invalid_argument("scratch at {} is not aligned to {} bytes", scratch, kScratchAlignBytes);
  return {};
}

Status check_grids(const Plan& plan) {
  constexpr i64 kMaxGrid = std::numeric_limits<i32>::max();
  const auto check_one = [&](const Bucket& bucket, int index) -> Status {
    const PlannedKernel& kernel = plan.kernels[static_cast<std::size_t>(index)];
    const i64 ctas = grid_ctas(plan, bucket, index, bucket.last_tokens);
    if (ctas > kMaxGrid) {
      return unsupported("kernel {} would need {} CTAs for {} tokens; a grid holds {}: plan for fewer tokens a run", kernel.name, ctas,
                         bucket.last_tokens, kMaxGrid);
    }
    const i64 shared = kernel_shared_bytes(kernel.variant, plan.problem.shape);
    if (shared > plan.device.shared_optin_bytes) {
      return unsupported("kernel {} needs {} bytes of shared memory; {} has {}", kernel.name, shared, plan.device.name,
                         plan.device.shared_optin_bytes);
    }
    return {};
  };
  for (const Bucket& bucket : plan.buckets) {
    for (const int index : launched_kernels(plan, bucket)) {
      if (Status s = check_one(bucket, index); !s) return s;
    }
  }
  return {};
}

Status check_run(const Plan& plan, const RunArgs& args) {
  const Shape& shape = plan.problem.shape;
  if (args.tokens < 0) return invalid_argument("tokens = {} is negative", args.tokens);
  if (args.tokens > shape.max_tokens) {
    return invalid_argument("tokens = {} exceeds the plan's max_tokens {}: nothing was launched", args.tokens, shape.max_tokens);
  }
  if (args.id_type != IdType::i32 && args.id_type != IdType::i64) {
    return invalid_argument("id_type = {} is neither i32 nor i64", static_cast<int>(args.id_type));
  }
  if (args.router_dtype != DType::f32 && args.router_dtype != DType::bf16) {
    return invalid_argument("router_dtype = {} is not served; router weights are f32 or bf16", to_string(args.router_dtype));
  }
  if (args.tokens == 0) return {};
  if (Status s = check_pointer("x", args.x, 16); !s) return s;
  if (Status s = check_pointer("out", args.out, 16); !s) return s;
  if (Status s = check_pointer("ids", args.ids, id_type_bytes(args.id_type)); !s) return s;
  if (Status s = check_pointer("router_weights", args.router_weights, dtype_bytes(args.router_dtype)); !s) return s;
  if (Status s = check_stride("x_row_stride_elems", args.x_row_stride_elems, shape.hidden, kRowVectorElems); !s) return s;
  if (Status s = check_stride("out_row_stride_elems", args.out_row_stride_elems, shape.hidden, kRowVectorElems); !s) return s;
  if (Status s = check_stride("ids_row_stride_elems", args.ids_row_stride_elems, shape.topk, 1); !s) return s;
  if (Status s = check_stride("router_row_stride_elems", args.router_row_stride_elems, shape.topk, 1); !s) return s;
  const i64 together = std::min(args.tokens, plan.chunk_tokens);
  const bool wgmma = plan.kernels[static_cast<std::size_t>(plan.bucket_for(together).fc1)].variant.is_wgmma();
  if (wgmma && !wgmma_reaches(together, args.x_row_stride_elems, dtype_bytes(plan.problem.dtype))) {
    return unsupported("x_row_stride_elems = {}: {} tokens lie more than 64 GiB apart, which kernels of the wgmma family do not reach (pin "
                       "'no-wgmma', or cap the scratch so that runs are cut into chunks of tokens)",
                       args.x_row_stride_elems, together);
  }
  return {};
}

Status check_overlap(const Plan& plan, const RunArgs& args, const PreparedWeights& weights, const void* scratch) {
  if (args.tokens == 0) return {};
  const Shape& shape = plan.problem.shape;
  const i64 elem_bytes = dtype_bytes(plan.problem.dtype);
  const Span out = rows_span("out", args.out, args.tokens, args.out_row_stride_elems, shape.hidden, elem_bytes);
  const Span x = rows_span("x", args.x, args.tokens, args.x_row_stride_elems, shape.hidden, elem_bytes);
  const Span ids = rows_span("ids", args.ids, args.tokens, args.ids_row_stride_elems, shape.topk, id_type_bytes(args.id_type));
  const Span router = rows_span("router_weights", args.router_weights, args.tokens, args.router_row_stride_elems, shape.topk,
                                dtype_bytes(args.router_dtype));
  const bool in_place = args.out == args.x && (args.out_row_stride_elems == 0 ? shape.hidden : args.out_row_stride_elems) ==
                                                  (args.x_row_stride_elems == 0 ? shape.hidden : args.x_row_stride_elems);
  if (args.tokens > plan.chunk_tokens && !in_place && out.overlaps(x)) {
    return invalid_argument("out at {} overlaps x at {} with other rows; a run in chunks of {} tokens takes out = x with equal strides, or apart", args.out,
                            args.x, plan.chunk_tokens);
  }
  const Span work{"the bound scratch", scratch, plan.required_bytes()};
  const Span packed{"the prepared weights", weights.data, plan.prepared_weight_bytes()};
  const std::pair<const Span*, const Span*> apart[] = {{&out, &work}, {&out, &packed}, {&out, &ids}, {&x, &work}, {&ids, &work}, {&router, &work}};
  for (const auto& [a, b] : apart) {
    if (a->overlaps(*b)) {
      return invalid_argument("{} at {} ({} bytes) overlaps {} at {} ({} bytes)", a->name, a->data, a->bytes, b->name, b->data, b->bytes);
    }
  }
  return {};
}

}  // namespace w4moe
