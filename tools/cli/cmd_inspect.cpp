#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <memory>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "generator/compile/cubin_info.hpp"
#include "generator/render/variant_header.hpp"
#include "tools/cli/commands.hpp"
#include "tools/cli/files.hpp"
#include "tools/cli/kernel_source.hpp"
#include "tools/cli/sass.hpp"

namespace w4moe::cli {
namespace {

using Json = nlohmann::ordered_json;

/// A kernel binary, and the cache entry around it if there is one.
struct Target {
  std::string origin;
  std::shared_ptr<const cache::Bytes> cubin;
  std::optional<cache::Entry> entry;
};

bool is_entry_file(const cache::Bytes& bytes) {
  constexpr const char* kMagic = "w4moeKC\n";
  return bytes.size() >= cache::kFooterBytes && std::memcmp(bytes.data() + (bytes.size() - cache::kFooterBytes), kMagic, 8) == 0;
}

Result<Target> load(const Options& options, Console& console) {
  const std::string& name = options.inspect.target;
  std::error_code ignored;
  const bool is_key = name.find_first_not_of("0123456789abcdef") == std::string::npos;
  if (name != "-" && !std::filesystem::exists(name, ignored)) {
    if (!is_key) {
      return Error{ErrorCode::invalid_argument, fmt::format("{}: there is no such file, and it is no key (accepted: a cubin, a cache entry's file, the first "
                                                            "digits of a key)", name)};
    }
    Result<std::unique_ptr<cache::DiskStore>> store = open_cache(options.kernels, {}, console);
    if (!store) return store.error();
    Result<cache::Entry> entry = find_entry(**store, name);
    if (!entry) return entry.error();
    return Target{fmt::format("{} of {}", entry->key().hex(), (*store)->options().root), entry->payload, std::move(*entry)};
  }
  Result<cache::Bytes> bytes = read_bytes(name);
  if (!bytes) return bytes.error();
  if (!is_entry_file(*bytes)) return Target{name, std::make_shared<cache::Bytes>(std::move(*bytes)), std::nullopt};
  Result<cache::Entry> entry = cache::decode_entry(std::move(*bytes));
  if (!entry) return Error{entry.error().code, fmt::format("{}: {}", name, entry.error().message)};
  return Target{name, entry->payload, std::move(*entry)};
}

std::string fact_name(const CubinFact& fact) { return fact.name.substr(kFactPrefix.size()); }

std::string layout_text(const CubinInfo& info) {
  const auto id = info.fact(std::string(kFactPrefix) + "layout_id");
  return id ? fmt::format("{:016x}", *id) : std::string();
}

/// A field of the entry's key: "variant" and "entry" are the texts that were compiled.
std::string key_field(const cache::Entry& entry, const std::string& label) {
  for (const cache::KeyField& field : cache::parse_key_text(entry.key_text).value_or(std::vector<cache::KeyField>{})) {
    if (field.label == label) return field.value;
  }
  return {};
}

/// Shared memory of one CTA in the layer that the entry was first built for, as its metadata says.
Json entry_smem_bytes(const cache::Entry& entry) {
  const Json metadata = Json::parse(entry.metadata, nullptr, false);
  return metadata.is_object() && metadata.contains("smem_bytes") ? metadata["smem_bytes"] : Json();
}

Json kernel_json(const CubinKernel& k) {
  Json row = {{"entry", k.name}, {"registers", k.registers}, {"static_smem_bytes", k.static_shared_bytes}, {"stack_bytes", k.stack_bytes},
              {"argument_bytes", k.argument_bytes}, {"max_threads", k.max_threads}};
  row["spill_bytes"] = k.spill_source == SpillSource::unknown ? Json() : Json(k.spill_bytes);
  return row;
}

Json document_of(const Target& target, const CubinInfo& info) {
  Json document = {{"schema", "w4moe.inspect/1"}, {"target", target.origin}, {"arch", info.arch()}, {"cubin_bytes", target.cubin->size()}};
  document["layout_id"] = layout_text(info).empty() ? Json() : Json(layout_text(info));
  document["kernels"] = Json::array();
  for (const CubinKernel& kernel : info.kernels) document["kernels"].push_back(kernel_json(kernel));
  document["facts"] = Json::object();
  for (const CubinFact& fact : info.facts) document["facts"][fact_name(fact)] = fact.value;
  if (target.entry) {
    const Json metadata = Json::parse(target.entry->metadata, nullptr, false);
    document["key"] = target.entry->key().hex();
    document["nvrtc"] = target.entry->builder;
    document["smem_bytes"] = entry_smem_bytes(*target.entry);
    document["metadata"] = metadata.is_discarded() ? Json() : metadata;
    document["source"] = {{"header", key_field(*target.entry, "variant")}, {"entry", key_field(*target.entry, "entry")}};
  }
  return document;
}

std::string as_text(const Target& target, const CubinInfo& info) {
  std::string text = fmt::format("{}\n  arch {}, {} bytes of code\n", target.origin, info.arch(), target.cubin->size());
  if (target.entry) {
    text += fmt::format("  key {}\n  NVRTC {}\n  {}\n", target.entry->key().hex(), target.entry->builder, metadata_text(*target.entry, "description"));
  }
  for (const CubinKernel& k : info.kernels) {
    text += fmt::format("  {}: {} registers, {} bytes static shared, {} bytes stack, {} bytes of arguments, at most {} threads, spills {}\n", k.name,
                        k.registers, k.static_shared_bytes, k.stack_bytes, k.argument_bytes, k.max_threads,
                        k.spill_source == SpillSource::unknown ? std::string("unknown") : fmt::format("{} bytes", k.spill_bytes));
  }
  if (target.entry && !entry_smem_bytes(*target.entry).is_null()) text += fmt::format("  {} bytes of shared memory in all\n", entry_smem_bytes(*target.entry).dump());
  for (const CubinFact& fact : info.facts) {
    const bool hex = fact_name(fact) == "layout_id";
    text += hex ? fmt::format("  {} = {:016x}\n", fact_name(fact), fact.value) : fmt::format("  {} = {}\n", fact_name(fact), fact.value);
  }
  return text;
}

}  // namespace

Result<int> cmd_inspect(const Options& options, Console& console) {
  const Result<Target> target = load(options, console);
  if (!target) return target.error();
  const Result<CubinInfo> info = read_cubin(*target->cubin);
  if (!info) return Error{info.error().code, fmt::format("{}: {}", target->origin, info.error().message)};
  if (options.inspect.source && !target->entry) {
    return Error{ErrorCode::invalid_argument, fmt::format("--source: {} is a bare cubin; only cache entries keep the texts that they were compiled from", target->origin)};
  }
  std::string sass;
  if (options.inspect.sass) {
    Result<std::string> text = disassemble(*target->cubin);
    if (!text) return text.error();
    sass = std::move(*text);
  }
  if (console.json()) {
    Json document = document_of(*target, *info);
    if (options.inspect.sass) document["sass"] = sass;
    console.result(document.dump(2, ' ', false, Json::error_handler_t::replace) + "\n");
  } else {
    std::string source;
    if (options.inspect.source) {
      source = fmt::format("\n// {}\n{}\n// the source that includes it\n{}", kVariantHeaderName, key_field(*target->entry, "variant"), key_field(*target->entry, "entry"));
    }
    console.result(as_text(*target, *info) + source + sass);
  }
  return kDone;
}

}  // namespace w4moe::cli
