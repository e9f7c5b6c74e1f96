// validate(): the one gate that plan, prepare and run share, so that no two stages can disagree about a shape.
#include <cmath>
#include <string>
#include <string_view>

#include "generator/problem/errors.hpp"
#include "w4moe/problem.hpp"

namespace w4moe {
namespace {

std::string_view format_family(const QuantFormat& format) {
  return format.is_int4() ? "INT4" : format.is_nvfp4() ? "NVFP4" : "MXFP4";
}

Status check_range(std::string_view what, i64 value, i64 low, i64 high) {
  if (value < low) return invalid_argument("{} {}: must be at least {} (accepted: {}..{})", what, value, low, low, high);
  if (value > high) return unsupported("{} {}: above the stated maximum {} (accepted: {}..{})", what, value, high, low, high);
  return {};
}

Status check_format(const QuantFormat& f) {
  if (f.code == CodeType::e2m1 && f.scale != ScaleType::e8m0 && f.scale != ScaleType::e4m3) {
    return unsupported("format: e2m1 codes go with e8m0 scales (mxfp4) or e4m3 scales (nvfp4), not with 16-bit scales");
  }
  if (f.is_int4() && f.scale != ScaleType::bf16 && f.scale != ScaleType::f16) {
    return unsupported("format: INT4 scales are bf16 or f16, not 8-bit");
  }
  if (f.code != CodeType::e2m1 && f.code != CodeType::u4) {
    return invalid_argument("format: code type {} is unknown", static_cast<int>(f.code));
  }
  if (f.wide_exponent && !f.is_mxfp4()) return unsupported("format {}: wide_exponent is for mxfp4 only", to_string(f));
  if (f.has_zero_point && !f.is_int4()) return unsupported("format {}: zero points are for int4 only", to_string(f));
  if (f.is_mxfp4() && f.group_size != 32) {
    return unsupported("format mxfp4: group {} is not served (accepted: 32)", f.group_size);
  }
  if (f.is_nvfp4() && f.group_size != 16) {
    return unsupported("format nvfp4: group {} is not served (accepted: 16)", f.group_size);
  }
  if (f.is_int4() && f.group_size != 32 && f.group_size != 64 && f.group_size != 128 && f.group_size != kWholeRow) {
    return unsupported("format int4: group {} is not served (accepted: 32, 64, 128, or the whole row)", f.group_size);
  }
  return {};
}

/// A width that is the K of one of the two projections: its groups must be whole, unless the tail flag says otherwise.
Status check_width(std::string_view what, i64 width, const QuantFormat& f, bool compact_tail) {
  if (!f.divides(width) && !compact_tail) {
    const std::string hint = f.is_mxfp4() && what == "intermediate"
                                 ? fmt::format(", or --compact-tail for multiples of {}", kRowVectorElems)
                                 : std::string{};
    return unsupported("{} {}: {} group {} does not divide {} (accepted: multiples of {}{})", what, width, format_family(f),
                       f.group_size, width, f.group_size, hint);
  }
  if (width % kRowVectorElems != 0) {
    return unsupported("{} {}: rows move in vectors of {} elements (accepted: multiples of {})", what, width, kRowVectorElems,
                       kRowVectorElems);
  }
  return {};
}

Status check_params(Activation activation, const ActivationParams& p) {
  if (static_cast<i32>(activation) >= kActivationCount) {
    return invalid_argument("activation {}: unknown value (accepted: 0..{})", static_cast<int>(activation), kActivationCount - 1);
  }
  const std::string_view name = to_string(activation);
  if (activation == Activation::swiglu_oai) {
    if (!std::isfinite(p.alpha)) return invalid_argument("alpha {}: must be finite", p.alpha);
    if (!std::isfinite(p.beta)) return invalid_argument("beta {}: must be finite", p.beta);
  } else {
    const ActivationParams defaults = default_params(activation);
    if (p.alpha != defaults.alpha) return invalid_argument("alpha {}: {} has no alpha (only swiglu-oai has)", p.alpha, name);
    if (p.beta != defaults.beta) return invalid_argument("beta {}: {} has no beta (only swiglu-oai has)", p.beta, name);
  }
  if (p.has_limit > 1) return invalid_argument("has_limit {}: must be 0 or 1", p.has_limit);
  if (p.has_limit == 0) return {};
  if (activation != Activation::silu && activation != Activation::swiglu_oai) {
    return invalid_argument("limit {}: {} has no limit (only silu and swiglu-oai have)", p.limit, name);
  }
  if (!std::isfinite(p.limit) || p.limit <= 0) {
    return invalid_argument("limit {}: must be finite and above 0 (or none)", p.limit);
  }
  return {};
}

}  // namespace

Status validate(const Problem& problem) {
  const Shape& s = problem.shape;
  if (Status r = check_range("hidden", s.hidden, 1, kMaxHidden); !r) return r;
  if (Status r = check_range("intermediate", s.intermediate, 1, kMaxIntermediate); !r) return r;
  if (Status r = check_range("experts", s.experts, 1, kMaxExperts); !r) return r;
  if (Status r = check_range("topk", s.topk, 1, kMaxTopk); !r) return r;  // above experts is fine: routers may repeat an id
  if (Status r = check_range("max_tokens", s.max_tokens, 0, kMaxTokens); !r) return r;
  if (Status r = check_format(problem.format); !r) return r;
  if (problem.compact_tail && !problem.format.is_mxfp4()) {
    return unsupported("compact_tail: is for mxfp4 only, not for {}", to_string(problem.format));
  }
  if (Status r = check_width("hidden", s.hidden, problem.format, false); !r) return r;
  if (Status r = check_width("intermediate", s.intermediate, problem.format, problem.compact_tail); !r) return r;
  if (problem.dtype != DType::bf16 && problem.dtype != DType::f16) {
    return unsupported("dtype {}: activations are bf16 or f16", to_string(problem.dtype));
  }
  return check_params(problem.activation, problem.params);
}

}  // namespace w4moe
