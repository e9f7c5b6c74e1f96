#include "tools/cli/options.hpp"

#include <charconv>
#include <cstring>

#include <CLI/CLI.hpp>

#include "contract/shape.h"
#include "tools/cli/console.hpp"
#include "tools/cli/parser.hpp"

namespace w4moe::cli {
namespace {

bool read_shard(const std::string& text, int& shard, int& shards) {
  const char* const end = text.data() + text.size();
  const auto first = std::from_chars(text.data(), end, shard);
  if (first.ec != std::errc() || first.ptr == end || *first.ptr != '/') return false;
  const auto second = std::from_chars(first.ptr + 1, end, shards);
  return second.ec == std::errc() && second.ptr == end && shard >= 1 && shard <= shards && shards <= 65536;
}

/// The text must be a whole decimal number of this range; says what it is otherwise, and what would be accepted.
CLI::Validator whole_number(i64 lowest, i64 highest) {
  const std::string range = std::to_string(lowest) + ".." + std::to_string(highest);
  return CLI::Validator(
      [=](std::string& text) -> std::string {
        i64 value = 0;
        const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
        const bool whole = error == std::errc() && end == text.data() + text.size();
        if (whole && value >= lowest && value <= highest) return {};
        return "'" + text + "' is not accepted (accepted: a whole number, " + range + ")";
      },
      "NUMBER");
}

/// "2/8": part 2 of 8.
CLI::Validator shard_of() {
  return CLI::Validator(
      [](std::string& text) -> std::string {
        int shard = 0, shards = 0;
        if (read_shard(text, shard, shards)) return {};
        return "'" + text + "' is not accepted (accepted: I/N with 1 <= I <= N <= 65536, as in 2/8)";
      },
      "I/N");
}

bool read_rank(const std::string& text, int& rank, int& ranks) {
  const char* const end = text.data() + text.size();
  const auto first = std::from_chars(text.data(), end, rank);
  if (first.ec != std::errc() || first.ptr == end || *first.ptr != '/') return false;
  const auto second = std::from_chars(first.ptr + 1, end, ranks);
  return second.ec == std::errc() && second.ptr == end && rank >= 0 && rank < ranks && ranks <= 65536;
}

/// "2/8": rank 2 of eight, counted from 0, as engines count them.
CLI::Validator rank_of() {
  return CLI::Validator(
      [](std::string& text) -> std::string {
        int rank = 0, ranks = 0;
        if (read_rank(text, rank, ranks)) return {};
        return "'" + text + "' is not accepted (accepted: RANK/SIZE with ranks from 0, as in 0/8 .. 7/8)";
      },
      "RANK/SIZE");
}

CLI::Validator any_number() {
  return CLI::Validator(
      [](std::string& text) -> std::string {
        char* end = nullptr;
        std::strtof(text.c_str(), &end);
        if (end != text.c_str() && *end == '\0') return {};
        return "'" + text + "' is not accepted (accepted: a number)";
      },
      "NUMBER");
}

/// One value each time it is given; no swallowing of what follows.
CLI::Option* repeatable(CLI::Option* option) {
  return option->expected(1)->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
}

void add_common(CLI::App* verb, Options& o) {
  const char* group = "Output";
  verb->add_flag("--json", o.json, "Print the result as one JSON document")->group(group);
  verb->add_flag_function("-q,--quiet", [&o](std::int64_t) { o.verbosity = -1; }, "Errors only on stderr")->group(group);
  verb->add_flag_function("-v,--verbose", [&o](std::int64_t count) { o.verbosity = static_cast<int>(count); },
                          "Say what is being done; twice: everything")->group(group);
  verb->add_option("--color", o.color, "Colours on stderr: auto, always or never (NO_COLOR is honoured)")
      ->check(CLI::IsMember({"auto", "always", "never"}))->group(group);
}

void add_activation(CLI::App* verb, Options& o) {
  const char* group = "Layer";
  ProblemFlags& p = o.problem;
  verb->add_option("--activation", p.activation, "silu, swiglu-oai, geglu-tanh, geglu-erf, situ, relu2, silu-ungated or gelu-ungated")->type_name("ACTIVATION")->group(group);
  verb->add_option("--alpha", p.alpha, "Of swiglu-oai (default: 1.702)")->check(any_number())->group(group);
  verb->add_option("--beta", p.beta, "Of swiglu-oai (default: 1)")->check(any_number())->group(group);
  verb->add_option("--limit", p.limit, "Clamp of the activation, or none (default: 7 for swiglu-oai, else none)")->type_name("LIMIT")->group(group);
}

void add_problem(CLI::App* verb, Options& o) {
  const char* group = "Layer";
  ProblemFlags& p = o.problem;
  verb->add_option("--model", p.model, "A model by name, instead of sizes")->type_name("MODEL")->group(group);
  verb->add_option("--tp", p.tp, "Tensor-parallel ranks of the model (default: 1)")->check(whole_number(1, 65536))->group(group);
  verb->add_option("--ep", p.ep, "Expert-parallel ranks of the model (default: 1)")->check(whole_number(1, 65536))->group(group);
  verb->add_option("--hidden", p.hidden, "H: width of tokens and outputs")->check(whole_number(1, kMaxHidden))->group(group);
  verb->add_option("--intermediate", p.intermediate, "I: features between the projections, of this rank")
      ->check(whole_number(1, kMaxIntermediate))->group(group);
  verb->add_option("--experts", p.experts, "E: experts that this rank holds")->check(whole_number(1, kMaxExperts))->group(group);
  verb->add_option("--topk", p.topk, "Experts per token")->check(whole_number(1, kMaxTopk))->group(group);
  verb->add_option("--max-tokens", p.max_tokens, "Largest number of tokens of any run")->check(whole_number(0, kMaxTokens))->group(group);
  verb->add_option("--format", p.format, "mxfp4, mxfp4:wide, nvfp4, int4:g32|g64|g128|row, each int4 with :zp and :f16")->type_name("FORMAT")->group(group);
  add_activation(verb, o);
  verb->add_option("--dtype", p.dtype, "Activations and output: bf16 (default) or f16")->type_name("DTYPE")->group(group);
  verb->add_flag("--bias", p.bias, "Both projections carry a bias per expert")->group(group);
  verb->add_flag("--weight-on-input", p.weight_on_input, "Router weight on the input instead of on the output")->group(group);
  verb->add_flag("--compact-tail", p.compact_tail, "mxfp4: accept a partial last group of the intermediate size")->group(group);
  verb->add_option("--name", p.name, "Name of the layer in messages and reports")->type_name("NAME")->group(group);
}

void add_plan_flags(CLI::App* verb, Options& o, bool several_archs) {
  const char* group = "Device and plan";
  PlanFlags& p = o.plan;
  verb->add_option("--arch", p.archs,
                   several_archs ? "Targets, separated by commas: sm_80, sm_86, sm_89, sm_90a, sm_100a, sm_103a, sm_120a, sm_121a (default: W4MOE_ARCH, then sm_90a)"
                                 : "Target: sm_80, sm_86, sm_89, sm_90a, sm_100a, sm_103a, sm_120a or sm_121a (default: W4MOE_ARCH, then sm_90a)")->type_name("ARCH")
      ->delimiter(',')->expected(1)->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)->group(group);
  verb->add_option("--sms", p.sms, "Multiprocessors of the device (default: those of the part that the target stands for)")
      ->check(whole_number(1, 4096))->group(group);
  repeatable(verb->add_option("--pin", p.pins, "Restrict the planner: n8, n16, n32, n64, no-direct, no-tail, ... (repeatable)")->type_name("PIN"))->group(group);
  verb->add_flag("--batch-invariant", p.batch_invariant, "A token's output bits depend neither on the token count nor on the other tokens (as --pin batch-invariant)")
      ->group(group);
  verb->add_option("--scratch-cap", p.scratch_cap, "Bytes of scratch not to be passed, as in 64M: longer runs are cut into chunks")->type_name("BYTES")->group(group);
}

void add_kernel_flags(CLI::App* verb, Options& o) {
  const char* group = "Kernels";
  verb->add_option("--cache-dir", o.kernels.cache_dir, "Kernel cache (default: W4MOE_CACHE_DIR, then $XDG_CACHE_HOME/w4moe or ~/.cache/w4moe)")->type_name("FOLDER")->group(group);
  verb->add_option("--nvrtc", o.kernels.nvrtc, "NVRTC library, or a folder that holds it (default: W4MOE_NVRTC, then where it is found)")->type_name("FILE")->group(group);
  verb->add_option("-j,--jobs", o.kernels.jobs, "Kernels compiled at a time (default: W4MOE_JOBS, then the processors, at most 8)")
      ->check(whole_number(1, 1024))->group(group);
  verb->add_option("--memory-limit", o.kernels.memory_limit,
                   "Memory for compiling, as in 4G: fewer kernels at a time, 256M each (default: W4MOE_MEMORY_LIMIT, then what the machine has free)")->type_name("BYTES")->group(group);
}

void add_plan(CLI::App& app, Options& o) {
  CLI::App* verb = app.add_subcommand("plan", "Kernels, scratch and weights of a layer on a device: pure arithmetic, no GPU needed");
  add_problem(verb, o);
  add_plan_flags(verb, o, false);
  verb->add_flag("--explain", o.explain, "Every choice with its reason");
  add_common(verb, o);
  verb->footer(
      "Examples:\n"
      "  w4moe plan --model gpt-oss-120b --max-tokens 64 --arch sm_90a --explain\n"
      "  w4moe plan --hidden 6144 --intermediate 512 --experts 160 --topk 8 --max-tokens 64 \\\n"
      "             --format nvfp4 --activation silu --arch sm_90a --json");
}

void add_render(CLI::App& app, Options& o) {
  CLI::App* verb = app.add_subcommand("render", "The generated sources of a plan's kernels");
  add_problem(verb, o);
  add_plan_flags(verb, o, false);
  verb->add_option("--kernel", o.render.kernel, "Only the kernel of this name")->type_name("NAME");
  verb->add_option("--output", o.render.output, "Write NAME.h and NAME.cu for each kernel into this folder instead of printing them")->type_name("FOLDER");
  add_common(verb, o);
  verb->footer(
      "Examples:\n"
      "  w4moe render --model gpt-oss-120b --max-tokens 64 --arch sm_90a --kernel route\n"
      "  w4moe render --model gpt-oss-120b --max-tokens 64 --arch sm_90a --output rendered");
}

void add_build(CLI::App& app, Options& o) {
  CLI::App* verb = app.add_subcommand("build", "Compile kernels ahead of time, without a GPU");
  verb->add_option("--manifest", o.build.manifest, "JSON list of layers, or - for standard input")->type_name("FILE");
  verb->add_option("--output", o.build.output, "Folder that gets the kernels, to be shipped and named in W4MOE_CACHE_READONLY_DIRS (default: the kernel cache)")->type_name("FOLDER");
  verb->add_option("--lock", o.build.lock, "Where the list of the kernels goes, for cache verify --lock (default: OUTPUT/manifest.lock.json)")->type_name("FILE");
  verb->add_option_function<std::string>("--shard", [&o](const std::string& text) { read_shard(text, o.build.shard, o.build.shards); },
                                         "Build part I of N of the kernels; the outputs of all parts merge by copying")->check(shard_of());
  verb->add_flag("--dry-run", o.build.dry_run, "Say what would be built, and which layers use it; compile nothing");
  verb->add_flag("--fail-fast", o.build.fail_fast, "Stop at the first failure instead of building the rest");
  verb->add_flag("--keep-going", o.build.keep_going, "Build the rest after a failure (the default)")->excludes("--fail-fast");
  add_problem(verb, o);
  add_plan_flags(verb, o, true);
  add_kernel_flags(verb, o);
  add_common(verb, o);
  verb->footer(
      "Exit code 3: some kernels or layers failed; 5: NVRTC is missing.\n"
      "Examples:\n"
      "  w4moe build --manifest shapes.json --arch sm_90a,sm_120a --output kernels -j 2\n"
      "  w4moe build --manifest shapes.json --arch sm_90a --output part2 --shard 2/8\n"
      "  w4moe build --model gpt-oss-120b --max-tokens 64 --arch sm_90a --dry-run");
}

void add_run(CLI::App& app, Options& o) {
  CLI::App* verb = app.add_subcommand("run", "Compute one layer, from made-up numbers or from safetensors files");
  RunFlags& r = o.run;
  verb->add_option("--tokens", r.tokens, "Tokens of the run; with made-up numbers only")->check(whole_number(0, kMaxTokens));
  verb->add_option("--seed", r.seed, "Of the made-up numbers (default: 1)")->check(whole_number(0, std::numeric_limits<i64>::max()));
  verb->add_option("--device", r.device, "cuda:N, cpu or lockstep (default: cuda:0 where there is a GPU, else cpu)")->type_name("DEVICE");
  verb->add_flag("--check", r.check, "Compare with the fp64 reference; exit code 1 where the numerics contract does not hold");
  const char* files = "Files";
  repeatable(verb->add_option("--weights", r.weights, "Safetensors file with the layer's experts (repeatable: shards)")->type_name("FILE"))->group(files);
  verb->add_option("--prefix", r.prefix, "Which layer of the files, as in model.layers.3.mlp")->type_name("NAME")->group(files);
  verb->add_option("--checkpoint", r.checkpoint, "A checkpoint's folder, instead of --weights")->type_name("FOLDER")->group(files);
  verb->add_option("--layer", r.layer, "Which layer of the checkpoint: its number, or its prefix")->type_name("LAYER")->group(files);
  verb->add_option("--inputs", r.inputs, "Safetensors file with x, topk_ids and topk_weights, or router_logits")->type_name("FILE")->group(files);
  verb->add_option("--output", r.output, "Safetensors file that gets out")->type_name("FILE")->group(files);
  add_problem(verb, o);
  add_plan_flags(verb, o, false);
  add_kernel_flags(verb, o);
  add_common(verb, o);
  verb->footer(
      "Examples:\n"
      "  w4moe run --hidden 512 --intermediate 256 --experts 8 --topk 2 --max-tokens 64 \\\n"
      "            --format mxfp4 --activation silu --tokens 8 --check --json\n"
      "  w4moe run --weights layer.safetensors --inputs in.safetensors --output out.safetensors");
}

void add_pack(CLI::App& app, Options& o) {
  CLI::App* verb = app.add_subcommand("pack", "Pack the experts of a checkpoint into files that an engine maps and copies to the GPU");
  PackFlags& p = o.pack;
  verb->add_option("checkpoint", p.checkpoint, "A folder with safetensors shards, their index, or one file")->type_name("FOLDER")->required();
  verb->add_option("--out", p.output, "A folder (a file a layer; runs again go on where one ended), or NAME.safetensors for all layers")->type_name("FOLDER");
  verb->add_option_function<std::string>("--tp", [&p](const std::string& text) { read_rank(text, p.tp_rank, p.tp_size); }, "Tensor-parallel rank and ranks, as in 2/8; ranks count from 0")
      ->check(rank_of());
  verb->add_option_function<std::string>("--ep", [&p](const std::string& text) { read_rank(text, p.ep_rank, p.ep_size); }, "Expert-parallel rank and ranks, as in 1/4; ranks count from 0")
      ->check(rank_of());
  verb->add_option("--layers", p.layers, "Numbers, ranges and prefixes, separated by commas, as in 3,8-11,mtp.0.ffn (default: all that hold 4-bit experts)")->type_name("LAYERS")
      ->delimiter(',')->expected(1)->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  verb->add_option("--threads", p.threads, "Threads (default: the processors)")->check(whole_number(1, 1024));
  verb->add_flag("--wide", p.wide, "MXFP4: the layout for exponents that spread over more than 127 steps");
  verb->add_flag("--dry-run", p.dry_run, "Say which layers there are, their families, shapes and bytes; write nothing");
  verb->add_flag("--verify", p.verify, "Compare every packed weight with the checkpoint afterwards; exit code 6 where one differs");
  verb->add_flag("--overwrite", p.overwrite, "Replace files that hold something else");
  verb->add_flag("--explain", o.explain, "Also the tensors that are left out, by kind");
  add_common(verb, o);
  verb->footer(
      "Examples:\n"
      "  w4moe pack gpt-oss-20b --dry-run\n"
      "  w4moe pack gpt-oss-20b --out packed --tp 0/2 --layers 0-3 --verify\n"
      "  w4moe pack gpt-oss-20b --out all-layers.safetensors");
}

void add_bench(CLI::App& app, Options& o) {
  CLI::App* verb = app.add_subcommand("bench", "Time a layer on a GPU, with made-up weights, tokens and routing");
  verb->add_option("--tokens", o.bench.tokens, "Token counts, separated by commas")->delimiter(',')->check(whole_number(1, kMaxTokens));
  verb->add_option("--seed", o.run.seed, "Of the made-up numbers (default: 1)")->check(whole_number(0, std::numeric_limits<i64>::max()));
  verb->add_option("--device", o.run.device, "cuda:N (default: cuda:0)")->type_name("DEVICE");
  verb->add_option("--read-gbps", o.bench.roofs.read_gbps, "Bytes a second that the device's memory reaches, in 10^9: for the floor (default: 4617 on an H200)")->check(any_number());
  verb->add_option("--tflops", o.bench.roofs.tflops, "What its tensor cores reach, in 10^12: for the floor (default: 781 on an H200)")->check(any_number());
  verb->add_option("--routing", o.bench.routing, "Folder with route_E_k_m.bin files (tools/bench/make_routing.py) instead of made-up routing")->type_name("FOLDER");
  const char* drawing = "Page";
  verb->add_option("--html", o.bench.html, "Also write the rows as a self-contained page: the roofline and every cell's distance to it")->type_name("FILE")->group(drawing);
  verb->add_option("--peers", o.bench.peers, "JSON with the times of others in the same cells, for the page")->type_name("FILE")->group(drawing);
  repeatable(verb->add_option("--rows", o.bench.rows, "Draw the rows of this document instead of measuring (repeatable; no GPU is needed)")->type_name("FILE"))->group(drawing);
  add_problem(verb, o);
  add_plan_flags(verb, o, false);
  add_kernel_flags(verb, o);
  add_common(verb, o);
  verb->footer(
      "Times are medians of 20 (of 8 above 256 tokens); weights are read from memory, not from the L2.\n"
      "Examples:\n"
      "  w4moe bench --model gpt-oss-120b --tokens 1,8,64,512 --json\n"
      "  w4moe bench --model gpt-oss-120b --tokens 1,8,64,512 --html report.html\n"
      "  w4moe bench --rows decode.json --rows prefill.json --html report.html");
}

void add_inspect(CLI::App& app, Options& o) {
  CLI::App* verb = app.add_subcommand("inspect", "What a kernel binary or cache entry says of itself");
  verb->add_option("target", o.inspect.target, "A cubin, a cache entry's file, or the first digits of a key in the cache")->type_name("FILE")->required();
  verb->add_flag("--source", o.inspect.source, "Print the two texts that the kernel was compiled from too; entries only");
  verb->add_flag("--sass", o.inspect.sass, "Disassemble too; needs nvdisasm or cuobjdump on PATH");
  verb->add_option("--cache-dir", o.kernels.cache_dir, "Where keys are looked up")->type_name("FOLDER");
  add_common(verb, o);
  verb->footer(
      "Examples:\n"
      "  w4moe inspect kernels/v1/obj/ab/0123....cubin\n"
      "  w4moe inspect ab0123456789 --json");
}

CLI::App* add_cache_action(CLI::App* cache, Options& o, const char* name, const char* help) {
  CLI::App* action = cache->add_subcommand(name, help);
  action->callback([&o, name] { o.cache.action = name; });
  action->add_option("--cache-dir", o.kernels.cache_dir, "The cache (default: W4MOE_CACHE_DIR, then $XDG_CACHE_HOME/w4moe or ~/.cache/w4moe)")->type_name("FOLDER");
  add_common(action, o);
  return action;
}

void add_cache(CLI::App& app, Options& o) {
  CLI::App* verb = app.add_subcommand("cache", "The kernel cache: where it is, what it holds, whether it is whole");
  verb->require_subcommand(1);
  CacheFlags& c = o.cache;
  const auto readonly = [&](CLI::App* action) { action->add_option("--readonly", c.readonly, "Look at this folder instead, and touch nothing in it")->type_name("FOLDER"); };
  const auto dry_run = [&](CLI::App* action) { action->add_flag("--dry-run", c.dry_run, "Say what would be removed; remove nothing"); };
  add_cache_action(verb, o, "path", "Where the cache is, and why there");
  readonly(add_cache_action(verb, o, "list", "Every entry: key, kernel, target, size, last use"));
  readonly(add_cache_action(verb, o, "stats", "Counters, entries and bytes"));
  CLI::App* verify = add_cache_action(verb, o, "verify", "Read and check every entry; exit code 6 where one is damaged");
  readonly(verify);
  verify->add_option("--lock", c.lock, "Hold the folder against this list, and nothing else may be in it (default: the lists in the folder, if any)")->type_name("FILE");
  verify->add_flag("--remove", c.remove, "Remove what is damaged");
  CLI::App* clean = add_cache_action(verb, o, "clean", "Remove all entries, or those of other versions");
  clean->add_flag("--old", c.old, "Only entries of other template bundles, other layouts and other cache schemas");
  dry_run(clean);
  CLI::App* prune = add_cache_action(verb, o, "prune", "Remove the least recently used entries");
  prune->add_option("--max-size", c.max_size, "Bytes that may stay, as in 512M (default: W4MOE_CACHE_MAX_SIZE, then 2G)")->type_name("BYTES");
  prune->add_option("--max-age", c.max_age_days, "Remove what was last used more than this many days ago")->type_name("DAYS")->check(CLI::NonNegativeNumber);
  dry_run(prune);
  CLI::App* copy_out = add_cache_action(verb, o, "export", "Copy every valid entry to a folder that can be shipped, with its list");
  copy_out->add_option("folder", c.folder, "The folder; made if need be")->type_name("FOLDER")->required();
  readonly(copy_out);
  CLI::App* copy_in = add_cache_action(verb, o, "import", "Copy every valid entry of a folder to the cache");
  copy_in->add_option("folder", c.folder, "A folder that build or export made, or another cache")->type_name("FOLDER")->required();
  CLI::App* explain = add_cache_action(verb, o, "explain", "What a key is made of; of two keys: in what they differ");
  explain->add_option("keys", c.keys, "First digits of one or two keys, or files of entries")->type_name("FILE")->required()->expected(1, 2);
  readonly(explain);
  verb->footer(
      "Examples:\n"
      "  w4moe cache path\n"
      "  w4moe cache verify --readonly /opt/kernels --json\n"
      "  w4moe cache prune --max-size 512M --dry-run\n"
      "  w4moe cache export /srv/kernels");
}

void add_verbs(CLI::App& app, Options& o) {
  add_plan(app, o);
  add_render(app, o);
  add_build(app, o);
  add_run(app, o);
  add_pack(app, o);
  add_bench(app, o);
  add_inspect(app, o);
  add_cache(app, o);
  CLI::App* doctor = app.add_subcommand("doctor", "Settings and their origin, NVRTC, driver, devices, cache: for a bug report");
  add_kernel_flags(doctor, o);
  add_common(doctor, o);
  CLI::App* completion = app.add_subcommand("completion", "Completions of this command line for a shell");
  completion->add_option("shell", o.shell, "bash, zsh or fish")->required()->check(CLI::IsMember({"bash", "zsh", "fish"}))->type_name("SHELL");
  add_common(completion, o);
  CLI::App* man = app.add_subcommand("man", "The manual page of this command line, for man -l -");
  add_common(man, o);
  CLI::App* version = app.add_subcommand("version", "Version, git revision, and the numbers of layouts and formats");
  add_common(version, o);
}

/// Errors are told as JSON too where the line asks for JSON, however wrong the rest of it is.
bool asks_for_json(int argc, char** argv) {
  for (int i = 1; i < argc; ++i) {
    if (std::strcmp(argv[i], "--json") == 0) return true;
  }
  return false;
}

/// "plan", or "cache list".
std::string verb_of(const CLI::App& app) {
  std::string name;
  const CLI::App* at = &app;
  while (!at->get_subcommands().empty()) {
    at = at->get_subcommands().front();
    name += (name.empty() ? "" : " ") + at->get_name();
  }
  return name;
}

/// What to say where a word stands in the place of a verb and is none; else empty.
std::string unknown_verb(const CLI::App& app) {
  const CLI::App* at = &app;
  while (!at->get_subcommands().empty()) at = at->get_subcommands().front();
  const std::vector<const CLI::App*> known = at->get_subcommands([](const CLI::App*) { return true; });
  const std::vector<std::string> words = at->remaining();
  if (known.empty() || words.empty()) return {};
  std::string accepted;
  for (const CLI::App* verb : known) accepted += (accepted.empty() ? "" : ", ") + verb->get_name();
  return "'" + words.front() + "' is not accepted (accepted: " + accepted + ")";
}

}  // namespace

void set_up(CLI::App& app, Options& o) {
  app.description("w4moe: fused mixture-of-experts kernels for 4-bit weights, generated for one model shape and compiled at run time");
  app.name("w4moe");
  app.require_subcommand(1);
  app.failure_message(CLI::FailureMessage::simple);
  app.add_flag_callback("--version", [] { throw CLI::CallForVersion("", 0); }, "Same as the verb version");
  app.footer(
      "Results go to stdout, everything else to stderr.\n"
      "Exit codes: 0 done, 1 failed, 2 usage, 3 some items failed, 4 unsupported shape or device, 5 toolchain missing,\n"
      "            6 verification found damage, 130 interrupted.");
  add_verbs(app, o);
}

Parsed parse_command_line(int argc, char** argv, Options& options) {
  CLI::App app;
  set_up(app, options);
  bool show_version = false;
  Parsed parsed;
  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForVersion&) {
    show_version = true;
  } catch (const CLI::ParseError& error) {
    std::ostringstream out, unused;
    if (app.exit(error, out, unused) == 0) {  // --help
      parsed.output = out.str();
      return parsed;
    }
    const std::string verb = verb_of(app);
    const std::string unknown = unknown_verb(app);
    options.verb = verb.substr(0, verb.find(' '));
    options.json = asks_for_json(argc, argv);
    parsed.exit_code = kUsage;
    parsed.error = (unknown.empty() ? std::string(error.what()) : unknown) + " (see w4moe " + verb + (verb.empty() ? "" : " ") + "--help)";
    return parsed;
  }
  options.verb = show_version ? "version" : app.get_subcommands().front()->get_name();
  parsed.run = true;
  return parsed;
}

}  // namespace w4moe::cli
