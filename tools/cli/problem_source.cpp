#include "tools/cli/problem_source.hpp"

#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "cache/location.hpp"
#include "generator/manifest/presets.hpp"
#include "generator/problem/errors.hpp"
#include "runtime/config.hpp"

namespace w4moe::cli {
namespace {

Result<float> parse_limit(const std::string& text) {
  char* end = nullptr;
  const float value = std::strtof(text.c_str(), &end);
  if (end == text.c_str() || *end != '\0' || !std::isfinite(value)) {
    return invalid_argument("--limit {}: accepted are a number above 0, and none", text);
  }
  return value;
}

Status apply_format(const ProblemFlags& flags, Problem& problem) {
  if (!flags.format.empty()) {
    const Result<QuantFormat> format = parse_format(flags.format);
    if (!format) return format.error();
    problem.format = *format;
  }
  if (!flags.dtype.empty()) {
    const Result<DType> dtype = parse_dtype(flags.dtype);
    if (!dtype) return dtype.error();
    problem.dtype = *dtype;
  }
  return {};
}

/// A model fixes its sizes: a flag that would contradict it is an error rather than ignored.
Status check_no_sizes(const ProblemFlags& flags) {
  const std::pair<const char*, bool> fixed[] = {
      {"--hidden", flags.hidden.has_value()},     {"--intermediate", flags.intermediate.has_value()},
      {"--experts", flags.experts.has_value()},   {"--topk", flags.topk.has_value()},
      {"--activation", !flags.activation.empty()}, {"--bias", flags.bias},
      {"--alpha", flags.alpha.has_value()},       {"--beta", flags.beta.has_value()},
      {"--limit", !flags.limit.empty()},
  };
  for (const auto& [flag, given] : fixed) {
    if (given) return invalid_argument("{} and --model {} exclude each other: the model fixes it (give the sizes instead of --model)", flag, flags.model);
  }
  return {};
}

Status require(const char* flag, bool given) {
  if (given) return {};
  return invalid_argument("{} is missing (a layer is --model NAME with --max-tokens, or --hidden --intermediate --experts --topk "
                          "--max-tokens --format --activation)", flag);
}

Result<Problem> explicit_problem(const ProblemFlags& flags) {
  if (flags.tp || flags.ep) {
    return invalid_argument("{} needs --model: sizes given by flags are those of one rank already", flags.tp ? "--tp" : "--ep");
  }
  const std::pair<const char*, bool> needed[] = {
      {"--hidden", flags.hidden.has_value()}, {"--intermediate", flags.intermediate.has_value()},
      {"--experts", flags.experts.has_value()}, {"--topk", flags.topk.has_value()},
      {"--format", !flags.format.empty()}, {"--activation", !flags.activation.empty()},
  };
  for (const auto& [flag, given] : needed) {
    if (Status s = require(flag, given); !s) return s.error();
  }
  Problem problem;
  problem.name = "command line";
  problem.shape.hidden = *flags.hidden;
  problem.shape.intermediate = *flags.intermediate;
  problem.shape.experts = *flags.experts;
  problem.shape.topk = *flags.topk;
  problem.has_bias = flags.bias;
  if (Status s = apply_activation(flags, problem); !s) return s.error();
  return problem;
}

}  // namespace

bool has_problem(const ProblemFlags& f) {
  return !f.model.empty() || f.tp || f.ep || f.hidden || f.intermediate || f.experts || f.topk || !f.format.empty();
}

Status apply_activation(const ProblemFlags& flags, Problem& problem) {
  if (!flags.activation.empty()) {
    const Result<Activation> activation = parse_activation(flags.activation);
    if (!activation) return activation.error();
    problem.activation = *activation;
    problem.params = default_params(*activation);
  }
  for (const auto& [flag, given] : {std::pair("--alpha", flags.alpha.has_value()), std::pair("--beta", flags.beta.has_value())}) {
    if (given && problem.activation != Activation::swiglu_oai) {
      return invalid_argument("{}: {} has no such parameter (only swiglu-oai has)", flag, to_string(problem.activation));
    }
  }
  if (flags.alpha) problem.params.alpha = *flags.alpha;
  if (flags.beta) problem.params.beta = *flags.beta;
  if (flags.limit == "none") {
    problem.params.has_limit = 0;
    problem.params.limit = 0;
  } else if (!flags.limit.empty()) {
    const Result<float> limit = parse_limit(flags.limit);
    if (!limit) return limit.error();
    problem.params.has_limit = 1;
    problem.params.limit = *limit;
  }
  return {};
}

Result<Problem> problem_from(const ProblemFlags& flags, i64 default_max_tokens) {
  if (!flags.max_tokens && default_max_tokens < 0) return require("--max-tokens", false).error();
  const i64 max_tokens = flags.max_tokens.value_or(default_max_tokens);
  Problem problem;
  if (!flags.model.empty()) {
    if (Status s = check_no_sizes(flags); !s) return s.error();
    Result<Problem> named = preset(flags.model, flags.tp.value_or(1), flags.ep.value_or(1), max_tokens);
    if (!named) return named.error();
    problem = std::move(*named);
  } else {
    Result<Problem> sized = explicit_problem(flags);
    if (!sized) return sized.error();
    problem = std::move(*sized);
  }
  problem.shape.max_tokens = max_tokens;
  if (!flags.name.empty()) problem.name = flags.name;
  if (flags.weight_on_input) problem.weight_on_input = true;
  if (flags.compact_tail) problem.compact_tail = true;
  if (Status s = apply_format(flags, problem); !s) return s.error();
  if (Status s = validate(problem); !s) return s.error();
  return problem;
}

Result<std::vector<DeviceSpec>> devices_from(const PlanFlags& flags) {
  std::vector<std::string> names = flags.archs;
  if (names.empty()) {
    const Result<std::string> name = default_arch(process_environment);
    if (!name) return name.error();
    names.push_back(*name);
  }
  std::vector<DeviceSpec> devices;
  for (const std::string& name : names) {
    const Result<Arch> arch = parse_arch(name);
    if (!arch) return arch.error();
    const bool seen = std::any_of(devices.begin(), devices.end(), [&](const DeviceSpec& d) { return d.arch == *arch; });
    if (!seen) devices.push_back(named_device(*arch, flags.sms));
  }
  return devices;
}

Result<PlanOptions> plan_options_from(const PlanFlags& flags) {
  PlanOptions options;
  options.pins = flags.pins;
  if (flags.batch_invariant) options.pins.emplace_back(kBatchInvariantPin);
  if (!flags.scratch_cap.empty()) {
    const Result<std::uint64_t> bytes = cache::parse_size(flags.scratch_cap);
    if (!bytes) return invalid_argument("--scratch-cap: {}", bytes.error().message);
    options.scratch_cap_bytes = static_cast<i64>(*bytes);
  }
  return options;
}

Result<Plan> plan_from(const Options& options) {
  const Result<Problem> problem = problem_from(options.problem);
  if (!problem) return problem.error();
  const Result<std::vector<DeviceSpec>> devices = devices_from(options.plan);
  if (!devices) return devices.error();
  if (devices->size() != 1) return invalid_argument("--arch: {} takes one architecture, not {}", options.verb, devices->size());
  const Result<PlanOptions> plan_options = plan_options_from(options.plan);
  if (!plan_options) return plan_options.error();
  return make_plan(*problem, devices->front(), *plan_options);
}

}  // namespace w4moe::cli
