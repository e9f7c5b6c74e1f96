#include "tools/cli/pack_plan.hpp"

#include <algorithm>
#include <charconv>

#include "generator/problem/errors.hpp"

namespace w4moe::cli {
namespace {

constexpr std::string_view kSuffix = ".safetensors";
constexpr std::string_view kExperts = "experts.";

bool is_number(std::string_view text) { return !text.empty() && text.find_first_not_of("0123456789") == std::string_view::npos; }

/// "8-11".
bool read_range(std::string_view text, i64& first, i64& last) {
  const std::size_t dash = text.find('-');
  if (dash == std::string_view::npos || !is_number(text.substr(0, dash)) || !is_number(text.substr(dash + 1))) return false;
  const auto from = std::from_chars(text.data(), text.data() + dash, first);
  const auto to = std::from_chars(text.data() + dash + 1, text.data() + text.size(), last);
  return from.ec == std::errc() && to.ec == std::errc();
}

std::string short_prefix(const std::string& prefix) {
  std::string text = prefix.substr(0, prefix.size() - kExperts.size());
  if (!text.empty()) text.pop_back();
  return text.empty() ? "layer" : text;
}

/// The places in checkpoint.layers() that one word of --layers names.
Result<std::vector<std::size_t>> named(const Checkpoint& checkpoint, const std::string& word) {
  const std::vector<CheckpointEntry>& all = checkpoint.layers();
  i64 first = 0, last = 0;
  const bool is_range = read_range(word, first, last);
  std::vector<std::size_t> places;
  for (std::size_t i = 0; i < all.size(); ++i) {
    const bool by_number = is_range ? all[i].number >= first && all[i].number <= last : is_number(word) && std::to_string(all[i].number) == word;
    const bool by_prefix = all[i].prefix == word || all[i].prefix == word + "." || short_prefix(all[i].prefix) == word;
    if (by_number || by_prefix) places.push_back(i);
  }
  if (!places.empty()) return places;
  std::string known;
  for (const CheckpointEntry& entry : all) {
    if (known.size() > 200) {
      known += ", ...";
      break;
    }
    known += fmt::format("{}{}", known.empty() ? "" : ", ", entry.number >= 0 ? std::to_string(entry.number) : short_prefix(entry.prefix));
  }
  return invalid_argument("--layers {}: {} has no such layer with experts (accepted: {})", word, checkpoint.path(), known);
}

std::string rank_suffix(std::string_view what, int rank, int size) { return size > 1 ? fmt::format(".{}{}of{}", what, rank, size) : std::string(); }

std::string file_name(const PackFlags& flags, const CheckpointEntry& entry) {
  const std::string name = entry.number >= 0 ? fmt::format("layer-{:05}", entry.number) : short_prefix(entry.prefix);
  return name + rank_suffix("tp", flags.tp_rank, flags.tp_size) + rank_suffix("ep", flags.ep_rank, flags.ep_size) + std::string(kSuffix);
}

}  // namespace

Result<PackPlan> plan_packing(const PackFlags& flags, const Checkpoint& checkpoint) {
  std::vector<bool> chosen(checkpoint.layers().size(), flags.layers.empty());
  for (const std::string& word : flags.layers) {
    const Result<std::vector<std::size_t>> places = named(checkpoint, word);
    if (!places) return places.error();
    for (const std::size_t place : *places) chosen[place] = true;
  }
  PackPlan plan;
  plan.one_file = std::string_view(flags.output).ends_with(kSuffix);
  const Shard shard{{flags.tp_rank, flags.tp_size}, {flags.ep_rank, flags.ep_size}};
  for (std::size_t i = 0; i < chosen.size(); ++i) {
    const CheckpointEntry& entry = checkpoint.layers()[i];
    if (!chosen[i]) continue;
    if (flags.layers.empty() && !entry.other_dtype.empty()) {
      plan.not_quantised.push_back(entry);
      continue;
    }
    PackItem item{entry, checkpoint.layer(entry.prefix, shard), 0, {}, "planned", 0};
    if (item.layer && flags.wide) {
      if (!item.layer->problem.format.is_mxfp4()) return invalid_argument("--wide is for MXFP4; {} holds {}", entry.prefix, to_string(item.layer->problem.format));
      item.layer->problem.format.wide_exponent = true;
    }
    if (item.layer) {
      const Result<i64> bytes = prepared_weight_bytes(item.layer->problem);
      if (bytes) item.packed_bytes = *bytes;
      if (!bytes) item.layer = Error{bytes.error().code, fmt::format("{}: {}", entry.prefix, bytes.error().message)};
    }
    if (!item.layer) item.status = "failed";
    if (!flags.output.empty()) item.file = plan.one_file ? flags.output : flags.output + "/" + file_name(flags, entry);
    plan.items.push_back(std::move(item));
  }
  if (plan.items.empty()) {
    const std::string dtype = plan.not_quantised.empty() ? std::string() : plan.not_quantised.front().other_dtype;
    return unsupported("{}: no layer holds 4-bit experts; they are {} (accepted: MXFP4, NVFP4, INT4)", checkpoint.path(), dtype);
  }
  return plan;
}

}  // namespace w4moe::cli
