#include <algorithm>
#include <cmath>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "cache/key.hpp"
#include "generator/problem/errors.hpp"
#include "runtime/files/layer_file.hpp"
#include "runtime/reference/metrics.hpp"
#include "runtime/reference/reference.hpp"
#include "runtime/reference/synthetic.hpp"
#include "tools/cli/commands.hpp"
#include "tools/cli/problem_source.hpp"
#include "tools/cli/run_layer.hpp"
#include "w4moe/checkpoint.hpp"
#include "w4moe/engine.hpp"

namespace w4moe::cli {
namespace {

using Json = nlohmann::ordered_json;

/// The layer and its inputs, from files or made up, with the memory they lie in.
struct Subject {
  Problem problem;
  LayerFile file;
  LayerInputs file_inputs;
  SyntheticLayer made;
  SyntheticInputs made_inputs;
  std::shared_ptr<const void> mapping;  ///< of a checkpoint's files
  bool from_files = false;

  LayerCall call() const { return {&problem, from_files ? &file.source : &made.source, from_files ? &file_inputs.inputs : &made_inputs.inputs}; }
};

Result<Subject> made_up(const Options& options) {
  const RunFlags& run = options.run;
  if (run.tokens < 0) return invalid_argument("--tokens is missing (accepted: 0 and more), or --weights and --inputs for a layer from files");
  if (!run.inputs.empty() || !run.prefix.empty()) return invalid_argument("--inputs and --prefix need --weights");
  const Result<Problem> problem = problem_from(options.problem, run.tokens);
  if (!problem) return problem.error();
  if (run.tokens > problem->shape.max_tokens) {
    return invalid_argument("--tokens {}: more than --max-tokens {}", run.tokens, problem->shape.max_tokens);
  }
  Subject subject;
  subject.problem = *problem;
  SyntheticOptions synthetic;
  synthetic.seed = run.seed;
  if (!is_gated(problem->activation)) synthetic.gate_up_order = GateUpOrder::separate;
  subject.made = make_layer(*problem, synthetic);
  subject.made_inputs = make_inputs(*problem, run.tokens, synthetic);
  return subject;
}

/// Flags that the files answer themselves.
Status check_file_flags(const Options& options) {
  const ProblemFlags& p = options.problem;
  const std::pair<const char*, bool> fixed[] = {
      {"--model", !p.model.empty()},       {"--tp", p.tp.has_value()},           {"--ep", p.ep.has_value()},
      {"--hidden", p.hidden.has_value()},  {"--intermediate", p.intermediate.has_value()}, {"--experts", p.experts.has_value()},
      {"--format", !p.format.empty()},     {"--dtype", !p.dtype.empty()},        {"--bias", p.bias},
      {"--tokens", options.run.tokens >= 0},
  };
  for (const auto& [flag, given] : fixed) {
    if (given) return invalid_argument("{} and {} exclude each other: the files tell it", flag, options.run.checkpoint.empty() ? "--weights" : "--checkpoint");
  }
  if (options.run.inputs.empty()) return invalid_argument("a layer from files needs --inputs FILE (x, topk_ids and topk_weights, or router_logits)");
  return {};
}

/// A layer out of a checkpoint, as a layer file has it.
Result<LayerFile> checkpoint_layer(const RunFlags& run, std::shared_ptr<const void>& mapping) {
  if (run.layer.empty()) return invalid_argument("--checkpoint needs --layer: its number, or its prefix");
  if (!run.weights.empty() || !run.prefix.empty()) return invalid_argument("--checkpoint and --weights exclude each other");
  const Result<Checkpoint> checkpoint = Checkpoint::open(run.checkpoint);
  if (!checkpoint) return checkpoint.error();
  Result<CheckpointLayer> read = checkpoint->layer(run.layer);
  if (!read) return read.error();
  mapping = read->files;
  LayerFile layer;
  layer.family = std::move(read->family);
  layer.prefix = std::move(read->prefix);
  layer.problem = std::move(read->problem);
  layer.source = std::move(read->source);
  return layer;
}

Result<Subject> from_files(const Options& options) {
  if (Status s = check_file_flags(options); !s) return s.error();
  std::shared_ptr<const void> mapping;
  const bool whole = !options.run.checkpoint.empty();
  const std::string& origin = whole ? options.run.checkpoint : options.run.weights.front();
  Result<LayerFile> layer = whole ? checkpoint_layer(options.run, mapping) : open_layer(options.run.weights, options.run.prefix);
  if (!layer) return layer.error();
  Result<LayerInputs> inputs = open_inputs(options.run.inputs, options.problem.topk.value_or(0));
  if (!inputs) return inputs.error();
  Subject subject;
  subject.from_files = true;
  subject.problem = layer->problem;
  Problem& p = subject.problem;
  if (inputs->hidden != p.shape.hidden) {
    return invalid_argument("{}: x has {} columns, but the layer of {} has H {}", options.run.inputs, inputs->hidden, origin, p.shape.hidden);
  }
  if (options.problem.topk && *options.problem.topk != inputs->topk) {
    return invalid_argument("--topk {}: {} has topk_ids of {} columns", *options.problem.topk, options.run.inputs, inputs->topk);
  }
  p.shape.topk = inputs->topk;
  p.shape.max_tokens = options.problem.max_tokens.value_or(inputs->inputs.tokens);
  p.dtype = inputs->dtype;
  if (!options.problem.name.empty()) p.name = options.problem.name;
  if (options.problem.weight_on_input) p.weight_on_input = true;
  if (options.problem.compact_tail) p.compact_tail = true;
  if (Status s = apply_activation(options.problem, p); !s) return s.error();
  if (inputs->inputs.tokens > p.shape.max_tokens) {
    return invalid_argument("--max-tokens {}: {} has {} tokens", p.shape.max_tokens, options.run.inputs, inputs->inputs.tokens);
  }
  if (Status s = validate(p); !s) return s.error();
  subject.file = std::move(*layer);
  subject.mapping = std::move(mapping);
  subject.file_inputs = std::move(*inputs);
  return subject;
}

struct Check {
  bool done = false;
  ErrorReport error;
  ContractVerdict verdict;
};

Result<Check> compare(const LayerCall& call, const LayerRun& run, bool on_cpu) {
  const Problem& problem = *call.problem;
  ReferenceOptions options;
  options.threads = 0;
  std::vector<double> exact(run.out.size());
  if (Status s = reference_fp64(problem, *call.source, *call.inputs, exact, options); !s) return s.error();
  Check check;
  check.done = true;
  check.error = compare_outputs(problem.dtype, run.out, exact, problem.shape.hidden);
  ErrorReport mirror_error = check.error;
  if (!on_cpu) {  // the bound of a small layer is the mirror's own error
    std::vector<u16> mirror(run.out.size());
    if (Status s = reference_mirror(problem, *call.source, *call.inputs, mirror, options); !s) return s.error();
    mirror_error = compare_outputs(problem.dtype, mirror, exact, problem.shape.hidden);
  }
  check.verdict = check_contract(problem, check.error, mirror_error);
  return check;
}

/// JSON has no infinity.
Json number(double value) { return std::isfinite(value) ? Json(value) : Json(fmt::format("{}", value)); }

Json document_of(const Subject& subject, const DeviceChoice& device, const LayerRun& run, const Check& check, const Options& options) {
  const Problem& p = subject.problem;
  Json d = {{"schema", "w4moe.run/1"}, {"device", device.name}, {"device_name", run.device_name.empty() ? Json() : Json(run.device_name)}};
  if (!device.why.empty()) d["device_reason"] = device.why;
  d["variant"] = run.variant;
  d["tokens"] = subject.call().inputs->tokens;
  d["problem"] = {{"name", p.name}, {"hidden", p.shape.hidden}, {"intermediate", p.shape.intermediate}, {"experts", p.shape.experts},
                  {"topk", p.shape.topk}, {"max_tokens", p.shape.max_tokens}, {"format", to_string(p.format)}, {"activation", to_string(p.activation)},
                  {"dtype", to_string(p.dtype)}, {"bias", p.has_bias}};
  if (subject.from_files) {
    d["family"] = subject.file.family;
    d["prefix"] = subject.file.prefix;
  } else {
    d["seed"] = options.run.seed;
  }
  d["scratch_bytes"] = run.scratch_bytes;
  d["prepared_weight_bytes"] = run.prepared_weight_bytes;
  d["prepare_seconds"] = run.prepare_seconds;
  d["seconds"] = run.seconds;
  d["checked"] = check.done;
  d["rel_rmse"] = check.done ? number(check.error.relative_rmse) : Json();
  d["worst_row_rmse"] = check.done ? number(check.error.worst_row_rmse) : Json();
  d["max_abs_err"] = check.done ? number(check.error.max_abs) : Json();
  d["contract"] = check.done ? Json{{"holds", check.verdict.holds}, {"reason", check.verdict.reason}} : Json();
  d["out_sha256"] = cache::Key::of_text({reinterpret_cast<const char*>(run.out.data()), run.out.size() * sizeof(u16)}).hex();
  if (!options.run.output.empty()) d["output"] = options.run.output;
  return d;
}

std::string as_text(const Json& d) {
  const auto word = [&](const char* field) { return d[field].is_string() ? d[field].get<std::string>() : d[field].dump(); };
  std::string text = fmt::format("device          {}{}\nvariant         {}\ntokens          {}\nscratch         {} bytes\nweights         {} bytes\nseconds         {}\n",
                                 word("device"), d["device_name"].is_null() ? "" : " (" + word("device_name") + ")", word("variant"), word("tokens"),
                                 word("scratch_bytes"), word("prepared_weight_bytes"), word("seconds"));
  if (d["checked"].get<bool>()) {
    text += fmt::format("relative RMSE   {}\nlargest error   {}\ncontract        {}: {}\n", word("rel_rmse"), word("max_abs_err"),
                        d["contract"]["holds"].get<bool>() ? "holds" : "BROKEN", d["contract"]["reason"].get<std::string>());
  }
  return text;
}

Result<LayerRun> run_on(const DeviceChoice& device, const LayerCall& call, const Options& options, Console& console) {
  if (device.kind == DeviceKind::cuda) return run_on_cuda(call, device.ordinal, options.plan, kernel_options(options.kernels, console));
  const Result<std::vector<DeviceSpec>> specs = devices_from(options.plan);
  if (!specs) return specs.error();
  const Result<PlanOptions> plan_options = plan_options_from(options.plan);
  if (!plan_options) return plan_options.error();
  const bool lockstep = device.kind == DeviceKind::lockstep;
  // A device of few SMs, unless the layer is to be cut as for another one.
  const DeviceSpec spec = lockstep && options.plan.sms == 0 ? lockstep_device(specs->front().arch) : specs->front();
  const Result<Plan> plan = make_plan(*call.problem, spec, *plan_options);
  if (!plan) return plan.error();
  return lockstep ? run_on_lockstep(call, *plan, kernel_options(options.kernels, console)) : run_on_cpu(call, *plan);
}

}  // namespace

Result<int> cmd_run(const Options& options, Console& console) {
  const Result<DeviceChoice> device = choose_device(options.run.device);
  if (!device) return device.error();
  const Result<Subject> subject = options.run.weights.empty() && options.run.checkpoint.empty() ? made_up(options) : from_files(options);
  if (!subject) return subject.error();
  if (device->kind == DeviceKind::cpu && options.run.device.empty()) {
    console.note("no CUDA device: the layer is computed by the CPU reference that rounds as the kernels do (" + device->why + ")");
  }
  const LayerCall call = subject->call();
  const Result<LayerRun> run = run_on(*device, call, options, console);
  if (!run) return run.error();
  Check check;
  if (options.run.check) {
    const Result<Check> compared = compare(call, *run, device->kind == DeviceKind::cpu);
    if (!compared) return compared.error();
    check = *compared;
  }
  if (!options.run.output.empty()) {
    if (Status s = write_output(options.run.output, subject->problem.dtype, call.inputs->tokens, subject->problem.shape.hidden, run->out); !s) return s.error();
  }
  Json document = document_of(*subject, *device, *run, check, options);
  document["warnings"] = console.warnings();
  console.result(console.json() ? document.dump(2, ' ', false, Json::error_handler_t::replace) + "\n" : as_text(document));
  if (check.done && !check.verdict.holds) {
    console.error("the numerics contract does not hold: " + check.verdict.reason);
    return kFailed;
  }
  return kDone;
}

}  // namespace w4moe::cli
