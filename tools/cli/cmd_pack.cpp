#include <chrono>
#include <filesystem>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "generator/problem/errors.hpp"
#include "tools/cli/commands.hpp"
#include "tools/cli/files.hpp"
#include "tools/cli/interrupt.hpp"
#include "tools/cli/pack_plan.hpp"
#include "tools/cli/progress.hpp"

namespace w4moe::cli {
namespace {

using Json = nlohmann::ordered_json;
using Clock = std::chrono::steady_clock;

constexpr double kGiga = 1e9;

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

/// Bytes that the shard's tensors hold in the checkpoint's encoding.
i64 shard_bytes(const CheckpointLayer& layer) {
  const WeightLayout layout = weight_layout(layer.problem);
  return layout.fc1_checkpoint_bytes() + layout.fc2_checkpoint_bytes();
}

Json layer_json(const PackItem& item) {
  Json row = {{"prefix", item.entry.prefix}, {"number", item.entry.number >= 0 ? Json(item.entry.number) : Json()}, {"status", item.status},
              {"tensors", item.entry.tensors}, {"checkpoint_bytes", item.entry.bytes}};
  if (!item.layer) {
    row["error"] = {{"code", code_name(item.layer.error().code)}, {"message", item.layer.error().message}};
    return row;
  }
  const Problem& p = item.layer->problem;
  row["family"] = item.layer->family;
  row["format"] = to_string(p.format);
  row["hidden"] = p.shape.hidden;
  row["intermediate"] = p.shape.intermediate;
  row["experts"] = p.shape.experts;
  row["first_expert"] = item.layer->first_expert;
  row["total_experts"] = item.layer->total_experts;
  row["topk"] = p.shape.topk;
  row["activation"] = to_string(p.activation);
  row["limit"] = p.params.has_limit != 0 ? Json(p.params.limit) : Json();
  row["bias"] = p.has_bias;
  row["source_bytes"] = shard_bytes(*item.layer);
  row["packed_bytes"] = item.packed_bytes;
  row["fingerprint"] = item.layer->fingerprint;
  if (!item.file.empty()) row["file"] = item.file;
  if (item.status == "packed") row["seconds"] = item.seconds;
  return row;
}

Json document_of(const Options& options, const Checkpoint& checkpoint, const PackPlan& plan, double seconds) {
  const PackFlags& flags = options.pack;
  Json d = {{"schema", "w4moe.pack/1"}, {"checkpoint", checkpoint.path()}, {"dry_run", flags.dry_run},
            {"tp", {{"rank", flags.tp_rank}, {"size", flags.tp_size}}}, {"ep", {{"rank", flags.ep_rank}, {"size", flags.ep_size}}}};
  d["layers"] = Json::array();
  i64 packed_bytes = 0, source_bytes = 0;
  int failed = 0, kept = 0, packed = 0;
  for (const PackItem& item : plan.items) {
    d["layers"].push_back(layer_json(item));
    if (item.status == "failed") failed += 1;
    if (item.status == "kept") kept += 1;
    if (item.status == "packed") packed += 1, source_bytes += shard_bytes(*item.layer);
    packed_bytes += item.packed_bytes;
  }
  d["not_quantised"] = Json::array();
  for (const CheckpointEntry& entry : plan.not_quantised) d["not_quantised"].push_back({{"prefix", entry.prefix}, {"dtype", entry.other_dtype}});
  if (options.explain) {
    d["skipped"] = Json::array();
    for (const SkippedTensors& s : checkpoint.skipped()) d["skipped"].push_back({{"name", s.name}, {"kind", s.kind}, {"tensors", s.tensors}, {"bytes", s.bytes}});
  }
  d["packed"] = packed;
  d["kept"] = kept;
  d["failed"] = failed;
  d["packed_bytes"] = packed_bytes;
  d["verified"] = flags.verify && !flags.dry_run;
  d["seconds"] = seconds;
  if (packed > 0 && seconds > 0) d["source_gb_per_s"] = static_cast<double>(source_bytes) / kGiga / seconds;
  return d;
}

std::string as_text(const Json& d) {
  std::string text;
  for (const Json& row : d["layers"]) {
    const std::string name = row["prefix"].get<std::string>();
    if (row.contains("error")) {
      text += fmt::format("{:<40} {}: {}\n", name, row["status"].get<std::string>(), row["error"]["message"].get<std::string>());
      continue;
    }
    text += fmt::format("{:<40} {:<8} {} {}, H {}, I {}, experts {}..{} of {}, {}{}, {} bytes{}\n", name, row["status"].get<std::string>(),
                        row["family"].get<std::string>(), row["format"].get<std::string>(), row["hidden"].dump(), row["intermediate"].dump(),
                        row["first_expert"].dump(), row["first_expert"].get<i64>() + row["experts"].get<i64>() - 1, row["total_experts"].dump(),
                        row["activation"].get<std::string>(), row["bias"].get<bool>() ? " with biases" : "", row["packed_bytes"].dump(),
                        row.contains("file") ? " -> " + row["file"].get<std::string>() : "");
  }
  for (const Json& row : d["not_quantised"]) text += fmt::format("{:<40} left out: its experts are {}\n", row["prefix"].get<std::string>(), row["dtype"].get<std::string>());
  if (d.contains("skipped")) {
    for (const Json& s : d["skipped"]) {
      text += fmt::format("{:<56} left out: {}, {} tensors, {} bytes\n", s["name"].get<std::string>(), s["kind"].get<std::string>(), s["tensors"].dump(), s["bytes"].dump());
    }
  }
  text += fmt::format("{} layers, {} bytes packed{}\n", d["layers"].size(), d["packed_bytes"].dump(), d["verified"].get<bool>() ? ", every weight compared with the checkpoint" : "");
  return text;
}

class Packer {
 public:
  Packer(const PackFlags& flags, PackPlan& plan, Console& console) : flags_(flags), plan_(plan), progress_(console, "packing") {
    for (const PackItem& item : plan.items) total_ += static_cast<int>(item.layer->problem.shape.experts);
  }

  /// The first layer that fails ends the run: what was packed before stays, and is kept by the next run.
  Status pack() {
    const InterruptGuard guard;
    return plan_.one_file ? pack_one_file() : pack_folder();
  }

 private:
  Status pack_folder() {
    if (Status s = make_folder(flags_.output); !s) return s;
    for (PackItem& item : plan_.items) {
      if (Status s = pack_to(item.file, std::span(&item, 1)); !s) return s;
    }
    return {};
  }

  Status pack_one_file() { return pack_to(flags_.output, plan_.items); }

  Status pack_to(const std::string& file, std::span<PackItem> items) {
    const auto start = Clock::now();
    const Result<bool> whole = holds(file, items);
    if (!whole) return whole.error();
    std::vector<CheckpointLayer> layers;
    for (const PackItem& item : items) layers.push_back(*item.layer);
    if (*whole) {
      for (const CheckpointLayer& layer : layers) done_ += static_cast<int>(layer.problem.shape.experts);
    } else {
      PackOptions options;
      options.threads = flags_.threads;
      options.cancelled = interrupted;
      options.on_expert_done = [&](i64) { progress_.step(++done_, total_, file); };
      if (Status s = write_packed(file, layers, options); !s) return s;
    }
    for (PackItem& item : items) {
      item.status = *whole ? "kept" : "packed";
      item.seconds = seconds_since(start);
    }
    return flags_.verify ? verify(file, layers) : Status{};
  }

  /// True where the file holds these very layers. Another file in its place is an error, but for --overwrite.
  Result<bool> holds(const std::string& file, std::span<PackItem> items) const {
    std::error_code ignored;
    if (!std::filesystem::exists(file, ignored)) return false;
    const Result<PackedFile> packed = PackedFile::open(file);
    bool same = packed && packed->layers().size() == items.size();
    for (const PackItem& item : items) {
      bool found = false;
      for (std::size_t i = 0; same && i < packed->layers().size(); ++i) found = found || is_packed_form_of(packed->layers()[i], *item.layer);
      same = same && found;
    }
    if (same || flags_.overwrite) return same;
    return invalid_argument("{}: there is such a file, and it is not what would be packed{} (--overwrite replaces it)", file,
                            packed ? "" : ": " + packed.error().message);
  }

  Status verify(const std::string& file, const std::vector<CheckpointLayer>& layers) const {
    const Result<PackedFile> packed = PackedFile::open(file);
    if (!packed) return packed.error();
    for (const CheckpointLayer& layer : layers) {
      for (const PackedLayer& candidate : packed->layers()) {
        if (candidate.prefix != layer.prefix) continue;
        if (Status s = verify_prepared(layer.problem, layer.source, candidate.bytes, flags_.threads); !s) {
          return Error{s.error().code, fmt::format("{}: {}: {}", file, layer.prefix, s.error().message)};
        }
      }
    }
    return {};
  }

  const PackFlags& flags_;
  PackPlan& plan_;
  Progress progress_;
  int done_ = 0;
  int total_ = 0;
};

}  // namespace

Result<int> cmd_pack(const Options& options, Console& console) {
  const PackFlags& flags = options.pack;
  if (flags.output.empty() && !flags.dry_run) return invalid_argument("--out is missing (accepted: a folder, or a file NAME.safetensors; or --dry-run)");
  const Result<Checkpoint> checkpoint = Checkpoint::open(flags.checkpoint);
  if (!checkpoint) return checkpoint.error();
  Result<PackPlan> plan = plan_packing(flags, *checkpoint);
  if (!plan) return plan.error();
  for (const SkippedTensors& s : checkpoint->skipped()) {
    if (s.kind.starts_with("experts")) console.warning(fmt::format("{} tensors {} look like experts of a kind that is not known, and are left out", s.tensors, s.name));
  }
  const auto start = Clock::now();
  int failed = 0;
  for (const PackItem& item : plan->items) {
    if (item.layer) continue;
    failed += 1;
    if (!flags.dry_run) return item.layer.error();  // before a byte is written
  }
  if (!flags.dry_run) {
    if (Status s = Packer(flags, *plan, console).pack(); !s) return s.error();
  }
  Json document = document_of(options, *checkpoint, *plan, seconds_since(start));
  document["warnings"] = console.warnings();
  console.result(console.json() ? document.dump(2, ' ', false, Json::error_handler_t::replace) + "\n" : as_text(document));
  if (failed == 0) return kDone;
  return failed == static_cast<int>(plan->items.size()) ? exit_code(plan->items.front().layer.error().code) : kSomeFailed;
}

}  // namespace w4moe::cli
