#include "runtime/capi/convert.hpp"

#include <type_traits>

#include "runtime/capi/structs.hpp"

namespace w4moe::capi {
namespace {

std::vector<std::string> split(const char* text, char separator) {
  std::vector<std::string> parts;
  std::string part;
  for (const char* at = text; *at != 0; ++at) {
    if (*at != separator) {
      part += *at;
    } else if (!part.empty()) {
      parts.push_back(std::exchange(part, {}));
    }
  }
  if (!part.empty()) parts.push_back(std::move(part));
  return parts;
}

template <class T>
Status read_switch(const char* name, int32_t value, T on, T off, std::optional<T>& to) {
  if (value == W4MOE_ON) to = on;
  if (value == W4MOE_OFF) to = off;
  if (value == W4MOE_DEFAULT || to.has_value()) return {};
  return invalid_argument("{} = {} (accepted: W4MOE_DEFAULT, W4MOE_ON, W4MOE_OFF)", name, value);
}

std::optional<std::string> text_or_none(const char* text) { return text == nullptr ? std::nullopt : std::optional<std::string>(text); }

/// The C constants are the C++ enumerators, whose zero is "unspecified".
template <class E>
Status read_enum(const char* name, int32_t value, E last, E& to) {
  if (value < 0 || value > static_cast<int32_t>(last)) return invalid_argument("{} = {} (accepted: 1 to {})", name, value, static_cast<int32_t>(last));
  to = static_cast<E>(value);
  return {};
}

static_assert(static_cast<int>(GateUpOrder::separate) == W4MOE_GATE_UP_SEPARATE && static_cast<int>(GateUpOrder::gate_first) == W4MOE_GATE_UP_GATE_FIRST &&
              static_cast<int>(GateUpOrder::up_first) == W4MOE_GATE_UP_UP_FIRST && static_cast<int>(GateUpOrder::interleaved) == W4MOE_GATE_UP_INTERLEAVED);
static_assert(static_cast<int>(CodeOrder::low_nibble_first) == W4MOE_CODES_LOW_NIBBLE_FIRST &&
              static_cast<int>(CodeOrder::high_nibble_first) == W4MOE_CODES_HIGH_NIBBLE_FIRST && static_cast<int>(CodeOrder::awq_words) == W4MOE_CODES_AWQ_WORDS);
static_assert(static_cast<int>(CodeSign::offset8) == W4MOE_CODE_SIGN_OFFSET8 && static_cast<int>(CodeSign::twos_complement) == W4MOE_CODE_SIGN_TWOS_COMPLEMENT);
static_assert(static_cast<int>(ScaleLayout::row_major) == W4MOE_SCALES_ROW_MAJOR && static_cast<int>(ScaleLayout::transposed) == W4MOE_SCALES_TRANSPOSED &&
              static_cast<int>(ScaleLayout::swizzled_128x4) == W4MOE_SCALES_SWIZZLED_128X4);
static_assert(static_cast<int>(ZeroOrder::none) == W4MOE_ZEROS_NONE && static_cast<int>(ZeroOrder::bytes) == W4MOE_ZEROS_BYTES &&
              static_cast<int>(ZeroOrder::nibbles_along_rows) == W4MOE_ZEROS_NIBBLES_ALONG_ROWS &&
              static_cast<int>(ZeroOrder::awq_words) == W4MOE_ZEROS_AWQ_WORDS &&
              static_cast<int>(ZeroOrder::nibbles_along_groups) == W4MOE_ZEROS_NIBBLES_ALONG_GROUPS &&
              static_cast<int>(ZeroOrder::nibbles_along_groups_high_first) == W4MOE_ZEROS_NIBBLES_ALONG_GROUPS_HIGH_FIRST);
static_assert(static_cast<int>(GlobalConvention::none) == W4MOE_GLOBALS_NONE && static_cast<int>(GlobalConvention::multiply) == W4MOE_GLOBALS_MULTIPLY &&
              static_cast<int>(GlobalConvention::reciprocal) == W4MOE_GLOBALS_RECIPROCAL);
static_assert(static_cast<int>(SourceType::u8) + 1 == W4MOE_TENSOR_U8 && static_cast<int>(SourceType::i32) + 1 == W4MOE_TENSOR_I32 &&
              static_cast<int>(SourceType::e8m0) + 1 == W4MOE_TENSOR_E8M0 && static_cast<int>(SourceType::e4m3) + 1 == W4MOE_TENSOR_E4M3 &&
              static_cast<int>(SourceType::bf16) + 1 == W4MOE_TENSOR_BF16 && static_cast<int>(SourceType::f32) + 1 == W4MOE_TENSOR_F32);

constexpr int32_t kMaxRank = 8;

Result<SourceTensor> to_tensor(const std::string& name, const w4moe_tensor& from) {
  if (from.type < W4MOE_TENSOR_U8 || from.type > W4MOE_TENSOR_F32) {
    return invalid_argument("{}: type {} (accepted: W4MOE_TENSOR_U8 to W4MOE_TENSOR_F32, {} to {})", name, from.type, static_cast<int>(W4MOE_TENSOR_U8),
                            static_cast<int>(W4MOE_TENSOR_F32));
  }
  if (from.rank < 0 || from.rank > kMaxRank) return invalid_argument("{}: rank {} (accepted: 0 to {})", name, from.rank, kMaxRank);
  if (from.rank > 0 && from.shape == nullptr) return invalid_argument("{}: shape is NULL", name);
  SourceTensor tensor;
  tensor.data = from.data;
  tensor.type = static_cast<SourceType>(from.type - 1);
  tensor.shape.assign(from.shape, from.shape + from.rank);
  if (from.strides_elems != nullptr) tensor.strides_elems.assign(from.strides_elems, from.strides_elems + from.rank);
  return tensor;
}

Status read_operand(const std::string& name, const w4moe_operand& from, SourceOperand& to) {
  if (from.count < 0 || from.count > kMaxExperts) return invalid_argument("{}: {} tensors (accepted: 0 to {})", name, from.count, kMaxExperts);
  if (from.count > 0 && from.tensors == nullptr) return invalid_argument("{}: tensors is NULL", name);
  for (int64_t i = 0; i < from.count; ++i) {
    Result<SourceTensor> tensor = to_tensor(fmt::format("{}[{}]", name, i), from.tensors[i]);
    if (!tensor) return tensor.error();
    to.push_back(std::move(*tensor));
  }
  return {};
}

Status read_matrix(const std::string& name, const w4moe_matrix& from, SourceMatrix& to) {
  if (Status s = read_operand(name + ".codes", from.codes, to.codes); !s) return s;
  if (Status s = read_operand(name + ".scales", from.scales, to.scales); !s) return s;
  if (Status s = read_operand(name + ".zeros", from.zeros, to.zeros); !s) return s;
  return read_operand(name + ".bias", from.bias, to.bias);
}

std::vector<float> globals(const float* values, i64 experts) { return values == nullptr ? std::vector<float>() : std::vector<float>(values, values + experts); }

}  // namespace

Result<EngineOptions> to_engine_options(const w4moe_engine_options& from) {
  EngineOptions options;
  options.debug = from.debug != 0;
  KernelOptions& kernels = options.kernels;
  if (Status s = read_switch("jit", from.jit, JitMode::on, JitMode::off, kernels.jit); !s) return s.error();
  if (from.cache == W4MOE_READONLY) {
    kernels.cache = CacheUse::readonly;
  } else if (Status s = read_switch("cache", from.cache, CacheUse::on, CacheUse::off, kernels.cache); !s) {
    return invalid_argument("{}", s.error().message + ", or W4MOE_READONLY");
  }
  if (Status s = read_switch("cache_shared", from.cache_shared, true, false, kernels.cache_shared); !s) return s.error();
  if (from.jobs < 0) return invalid_argument("jobs = {} (accepted: 0 and more)", from.jobs);
  if (from.jobs > 0) kernels.jobs = from.jobs;
  if (from.cache_max_bytes > 0) kernels.cache_max_bytes = from.cache_max_bytes;
  if (from.memory_bytes > 0) kernels.memory_bytes = from.memory_bytes;
  kernels.cache_dir = text_or_none(from.cache_dir);
  if (from.readonly_dirs != nullptr) kernels.readonly_dirs = split(from.readonly_dirs, ':');
  kernels.nvrtc = text_or_none(from.nvrtc);
  kernels.dump_dir = text_or_none(from.dump_dir);
  if (from.log != nullptr) {
    kernels.log = [log = from.log, user = from.log_user](LogLevel level, const std::string& message) {
      log(user, static_cast<int32_t>(level), message.c_str());
    };
  }
  return options;
}

Result<Problem> to_problem(const w4moe_problem& from) {
  Problem problem;
  problem.name = from.name == nullptr ? "layer" : from.name;
  problem.shape = Shape{from.hidden, from.intermediate, from.experts, from.topk, from.max_tokens};
  if (from.format == nullptr) return invalid_argument("format is NULL (accepted: \"mxfp4\", \"nvfp4\", \"int4:g32\" and others)");
  const Result<QuantFormat> format = parse_format(from.format);
  if (!format) return format.error();
  problem.format = *format;
  if (from.activation == nullptr) return invalid_argument("activation is NULL (accepted: \"silu\", \"swiglu-oai\" and others)");
  const Result<Activation> activation = parse_activation(from.activation);
  if (!activation) return activation.error();
  problem.activation = *activation;
  problem.params = default_params(*activation);
  if (from.has_alpha != 0) problem.params.alpha = from.alpha;
  if (from.has_beta != 0) problem.params.beta = from.beta;
  if (from.has_limit != 0 && from.no_limit != 0) return invalid_argument("has_limit and no_limit are both set");
  if (from.has_limit != 0) {
    problem.params.limit = from.limit;
    problem.params.has_limit = 1;
  } else if (from.no_limit != 0) {
    problem.params.limit = 0;
    problem.params.has_limit = 0;
  }
  if (from.dtype != W4MOE_DTYPE_BF16 && from.dtype != W4MOE_DTYPE_F16) {
    return invalid_argument("dtype = {} (accepted: W4MOE_DTYPE_BF16 = {}, W4MOE_DTYPE_F16 = {})", from.dtype, static_cast<int>(W4MOE_DTYPE_BF16),
                            static_cast<int>(W4MOE_DTYPE_F16));
  }
  problem.dtype = from.dtype == W4MOE_DTYPE_F16 ? DType::f16 : DType::bf16;
  problem.has_bias = from.has_bias != 0;
  problem.weight_on_input = from.weight_on_input != 0;
  problem.compact_tail = from.compact_tail != 0;
  return problem;
}

Result<PlanOptions> to_plan_options(const w4moe_plan_options& from) {
  PlanOptions options;
  if (from.scratch_cap_bytes < 0) return invalid_argument("scratch_cap_bytes = {} is negative (0: no cap)", from.scratch_cap_bytes);
  options.scratch_cap_bytes = from.scratch_cap_bytes;
  if (from.pins != nullptr) options.pins = split(from.pins, ',');
  return options;
}

Result<SourceWeights> to_source(const Problem& problem, const w4moe_source_weights* given) {
  const Result<w4moe_source_weights> read = read_struct("source", given);
  if (!read) return read.error();
  const w4moe_source_weights& from = *read;
  SourceWeights source;
  if (Status s = read_enum("gate_up_order", from.gate_up_order, GateUpOrder::interleaved, source.gate_up_order); !s) return s.error();
  if (Status s = read_enum("code_order", from.code_order, CodeOrder::awq_words, source.code_order); !s) return s.error();
  if (Status s = read_enum("code_sign", from.code_sign, CodeSign::twos_complement, source.code_sign); !s) return s.error();
  if (Status s = read_enum("scale_layout", from.scale_layout, ScaleLayout::swizzled_128x4, source.scale_layout); !s) return s.error();
  if (Status s = read_enum("zero_order", from.zero_order, ZeroOrder::nibbles_along_groups_high_first, source.zero_order); !s) return s.error();
  if (Status s = read_enum("global_convention", from.global_convention, GlobalConvention::reciprocal, source.global_convention); !s) return s.error();
  if (from.zero_add < 0 || from.zero_add > 15) return invalid_argument("zero_add = {} (accepted: 0 to 15)", from.zero_add);
  source.zero_add = static_cast<u8>(from.zero_add);
  source.on_device = from.on_device != 0;
  source.output_bias = from.omit_output_bias == 0;
  if (Status s = read_matrix("gate_up", from.gate_up, source.gate_up); !s) return s.error();
  if (Status s = read_matrix("gate", from.gate, source.gate); !s) return s.error();
  if (Status s = read_matrix("up", from.up, source.up); !s) return s.error();
  if (Status s = read_matrix("down", from.down, source.down); !s) return s.error();
  source.gate_global = globals(from.gate_global, problem.shape.experts);
  source.up_global = globals(from.up_global, problem.shape.experts);
  source.down_global = globals(from.down_global, problem.shape.experts);
  return source;
}

Result<PackOptions> to_pack_options(const w4moe_pack_options* given) {
  const Result<w4moe_pack_options> from = read_optional("options", given);
  if (!from) return from.error();
  if (from->threads < 0) return invalid_argument("threads = {} (accepted: 0 and more)", from->threads);
  PackOptions options;
  options.allow_nan_scales = from->allow_nan_scales != 0;
  options.threads = from->threads;
  if (from->on_expert_done != nullptr) {
    options.on_expert_done = [done = from->on_expert_done, user = from->user](i64 expert) { done(user, expert); };
  }
  return options;
}

Result<RunArgs> to_run_args(const w4moe_run_args* given) {
  const Result<w4moe_run_args> from = read_struct("args", given);
  if (!from) return from.error();
  RunArgs args;
  args.tokens = from->tokens;
  args.x = from->x;
  args.x_row_stride_elems = from->x_row_stride_elems;
  args.ids = from->ids;
  args.ids_row_stride_elems = from->ids_row_stride_elems;
  args.router_weights = from->router_weights;
  args.router_row_stride_elems = from->router_row_stride_elems;
  args.out = from->out;
  args.out_row_stride_elems = from->out_row_stride_elems;
  // N27: a type that is not named is an error, never a guess.
  if (from->id_type != W4MOE_IDS_I32 && from->id_type != W4MOE_IDS_I64) {
    return invalid_argument("id_type = {} (accepted: W4MOE_IDS_I32 = {}, W4MOE_IDS_I64 = {})", from->id_type, static_cast<int>(W4MOE_IDS_I32),
                            static_cast<int>(W4MOE_IDS_I64));
  }
  args.id_type = from->id_type == W4MOE_IDS_I64 ? IdType::i64 : IdType::i32;
  if (from->router_dtype != W4MOE_DTYPE_F32 && from->router_dtype != W4MOE_DTYPE_BF16) {
    return invalid_argument("router_dtype = {} (accepted: W4MOE_DTYPE_F32 = {}, W4MOE_DTYPE_BF16 = {})", from->router_dtype, static_cast<int>(W4MOE_DTYPE_F32),
                            static_cast<int>(W4MOE_DTYPE_BF16));
  }
  args.router_dtype = from->router_dtype == W4MOE_DTYPE_F32 ? DType::f32 : DType::bf16;
  return args;
}

}  // namespace w4moe::capi
