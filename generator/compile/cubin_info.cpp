#include "generator/compile/cubin_info.hpp"

#include <algorithm>
#include <unordered_map>

#include <fmt/format.h>

namespace w4moe {
namespace {

// ELF64, and what CUDA adds to it. The numbers of the former are from the ELF specification; those of the latter were read off
// cubins of NVRTC 12.0 to 13.0.
constexpr std::uint64_t kHeaderBytes = 64;
constexpr std::uint64_t kSectionHeaderBytes = 64;
constexpr std::uint64_t kSymbolBytes = 24;
constexpr std::uint16_t kMachineCuda = 190;
constexpr std::uint32_t kSectionSymbols = 2;
constexpr std::uint32_t kSectionNoBytes = 8;
constexpr std::uint8_t kAbiOld = 7;             // e_flags: sm in bits 0..7, "a" in bit 11
constexpr std::uint8_t kAbiNew = 8;             // e_flags: sm in bits 8..15, "a" in bit 3 or, from 13.0 on, in .nv.compat
constexpr std::uint32_t kArchSpecificOld = 0x800;
constexpr std::uint32_t kArchSpecificNew = 0x8;
constexpr std::uint8_t kCompatArchSpecific = 0x09;
constexpr std::uint8_t kSymbolIsEntry = 0x10;   // st_other
constexpr std::uint8_t kInfoMaxThreads = 0x05;  // three u32: x, y, z
constexpr std::uint8_t kInfoFrameBytes = 0x11;  // u32 symbol, u32 bytes
constexpr std::uint8_t kInfoArgumentBytes = 0x19;
constexpr std::uint8_t kInfoRegisters = 0x2f;   // u32 symbol, u32 registers
constexpr std::uint8_t kInfoFormatSized = 4;    // the 16-bit field is a length; otherwise it is the value
constexpr std::int64_t kReservedSharedBytes = 1024;
constexpr int kFirstSmWithReservedShared = 90;
// Two limits that keep the work on hostile files linear.
constexpr std::size_t kMaxNameBytes = 4096;
constexpr std::size_t kMaxKernels = 256;

using Bytes = std::span<const std::byte>;

Error corrupt(std::string what) { return Error{ErrorCode::corrupt, "not a usable cubin: " + std::move(what)}; }

/// A part of a span, or nothing if it does not lie inside.
std::optional<Bytes> part(Bytes bytes, std::uint64_t offset, std::uint64_t count) {
  if (offset > bytes.size() || count > bytes.size() - offset) return std::nullopt;
  return bytes.subspan(static_cast<std::size_t>(offset), static_cast<std::size_t>(count));
}

/// Little-endian number of N bytes. The caller has checked that it lies inside.
template <std::size_t N>
std::uint64_t number(Bytes bytes, std::size_t offset) {
  std::uint64_t value = 0;
  for (std::size_t i = 0; i < N; ++i) value |= static_cast<std::uint64_t>(bytes[offset + i]) << (8 * i);
  return value;
}
std::uint8_t u8_at(Bytes b, std::size_t o) { return static_cast<std::uint8_t>(b[o]); }
std::uint16_t u16_at(Bytes b, std::size_t o) { return static_cast<std::uint16_t>(number<2>(b, o)); }
std::uint32_t u32_at(Bytes b, std::size_t o) { return static_cast<std::uint32_t>(number<4>(b, o)); }
std::uint64_t u64_at(Bytes b, std::size_t o) { return number<8>(b, o); }

/// The zero-terminated string at an offset of a string table.
std::optional<std::string_view> string_at(Bytes table, std::uint64_t offset) {
  if (offset >= table.size()) return std::nullopt;
  const char* begin = reinterpret_cast<const char*>(table.data()) + offset;
  const std::size_t limit = std::min(table.size() - static_cast<std::size_t>(offset), kMaxNameBytes);
  const std::string_view rest(begin, limit);
  const std::size_t end = rest.find('\0');
  if (end == std::string_view::npos) return std::nullopt;
  return rest.substr(0, end);
}

struct Section {
  std::string_view name;
  std::uint32_t type = 0;
  std::uint32_t link = 0;
  std::uint64_t size = 0;  ///< also of sections without bytes in the file
  Bytes bytes;             ///< empty for those
};

struct Symbol {
  std::string_view name;
  std::uint8_t other = 0;
  std::uint16_t section = 0;
  std::uint64_t value = 0;
  std::uint64_t size = 0;
};

/// One record of .nv.info, .nv.info.<kernel> or .nv.compat: a format byte, an attribute byte, 16 bits, and perhaps bytes.
struct InfoRecord {
  std::uint8_t format = 0;
  std::uint8_t attribute = 0;
  std::uint16_t value = 0;
  Bytes bytes;
};

class CubinReader {
 public:
  explicit CubinReader(Bytes file) : file_(file) {}

  Result<CubinInfo> read() {
    if (Status s = read_header(); !s) return s.error();
    if (Status s = read_sections(); !s) return s.error();
    if (Status s = read_symbols(); !s) return s.error();
    if (Status s = read_compat(); !s) return s.error();
    if (Status s = read_kernels(); !s) return s.error();
    if (Status s = read_facts(); !s) return s.error();
    return std::move(info_);
  }

 private:
  Status read_header() {
    if (file_.size() < kHeaderBytes) return corrupt(fmt::format("{} bytes, and the ELF header alone has 64", file_.size()));
    constexpr std::uint32_t kMagic = 0x464c457f;  // "\x7fELF"
    if (u32_at(file_, 0) != kMagic) return corrupt("it does not begin with the ELF magic");
    if (u8_at(file_, 4) != 2 || u8_at(file_, 5) != 1) return corrupt("not a 64-bit little-endian ELF file");
    if (u16_at(file_, 18) != kMachineCuda) return corrupt(fmt::format("made for machine {}, not for CUDA (190)", u16_at(file_, 18)));
    const std::uint8_t abi = u8_at(file_, 8);
    const std::uint32_t flags = u32_at(file_, 48);
    if (abi == kAbiOld) {
      info_.sm = static_cast<int>(flags & 0xff);
      info_.arch_specific = (flags & kArchSpecificOld) != 0;
    } else if (abi == kAbiNew) {
      info_.sm = static_cast<int>((flags >> 8) & 0xff);
      info_.arch_specific = (flags & kArchSpecificNew) != 0;
    } else {
      return corrupt(fmt::format("CUDA ABI version {}, and only 7 and 8 are known", abi));
    }
    return {};
  }

  Status read_sections() {
    const std::uint64_t count = u16_at(file_, 60);
    const std::uint16_t names_index = u16_at(file_, 62);
    if (u16_at(file_, 58) != kSectionHeaderBytes) return corrupt("section headers are not 64 bytes each");
    const std::optional<Bytes> table = part(file_, u64_at(file_, 40), count * kSectionHeaderBytes);
    if (!table) return corrupt("the section headers lie outside of the file");
    for (std::size_t i = 0; i < count; ++i) {
      const Bytes header = table->subspan(i * kSectionHeaderBytes, kSectionHeaderBytes);
      Section section;
      section.type = u32_at(header, 4);
      section.size = u64_at(header, 32);
      section.link = u32_at(header, 40);
      if (section.type != kSectionNoBytes && section.type != 0) {
        const std::optional<Bytes> bytes = part(file_, u64_at(header, 24), section.size);
        if (!bytes) return corrupt(fmt::format("section {} lies outside of the file", i));
        section.bytes = *bytes;
      }
      sections_.push_back(section);
    }
    if (names_index >= count) return corrupt("it has no table of section names");
    for (std::size_t i = 0; i < count; ++i) {
      const std::uint32_t offset = u32_at(*table, i * kSectionHeaderBytes);
      const std::optional<std::string_view> name = string_at(sections_[names_index].bytes, offset);
      if (!name && sections_[i].type != 0) return corrupt(fmt::format("section {} has no proper name", i));
      sections_[i].name = name.value_or("");
      by_name_.emplace(sections_[i].name, i);
    }
    return {};
  }

  const Section* section(std::string_view name) const {
    const auto it = by_name_.find(name);
    return it == by_name_.end() ? nullptr : &sections_[it->second];
  }

  Status read_symbols() {
    const auto table = std::find_if(sections_.begin(), sections_.end(), [](const Section& s) { return s.type == kSectionSymbols; });
    if (table == sections_.end()) return corrupt("it has no symbol table");
    if (table->link >= sections_.size()) return corrupt("the symbol table names no string table");
    const Bytes strings = sections_[table->link].bytes;
    for (std::size_t at = 0; at + kSymbolBytes <= table->bytes.size(); at += kSymbolBytes) {
      const Bytes entry = table->bytes.subspan(at, kSymbolBytes);
      const std::optional<std::string_view> name = string_at(strings, u32_at(entry, 0));
      if (!name) return corrupt(fmt::format("symbol {} has no proper name", at / kSymbolBytes));
      symbols_.push_back({*name, u8_at(entry, 5), u16_at(entry, 6), u64_at(entry, 8), u64_at(entry, 16)});
    }
    return {};
  }

  /// Calls use(record) for each record of a section; a missing section has none.
  template <class Use>
  Status for_each_record(std::string_view section_name, Use use) const {
    const Section* s = section(section_name);
    if (s == nullptr) return {};
    Bytes rest = s->bytes;
    while (rest.size() >= 4) {
      InfoRecord record{u8_at(rest, 0), u8_at(rest, 1), u16_at(rest, 2), {}};
      rest = rest.subspan(4);
      if (record.format == kInfoFormatSized) {
        if (record.value > rest.size()) return corrupt(fmt::format("a record of {} runs out of its section", section_name));
        record.bytes = rest.first(record.value);
        rest = rest.subspan(record.value);
      }
      use(record);
    }
    return {};
  }

  Status read_compat() {
    return for_each_record(".nv.compat", [&](const InfoRecord& r) {
      if (r.attribute == kCompatArchSpecific && r.format != kInfoFormatSized && r.value != 0) info_.arch_specific = true;
    });
  }

  Status read_kernels() {
    std::unordered_map<std::uint32_t, std::uint32_t> registers, frames;  // by symbol
    const auto collect = [&](const InfoRecord& r) {
      if (r.bytes.size() < 8) return;
      if (r.attribute == kInfoRegisters) registers[u32_at(r.bytes, 0)] = u32_at(r.bytes, 4);
      if (r.attribute == kInfoFrameBytes) frames[u32_at(r.bytes, 0)] = u32_at(r.bytes, 4);
    };
    if (Status s = for_each_record(".nv.info", collect); !s) return s;

    for (std::uint32_t i = 0; i < symbols_.size(); ++i) {
      const Symbol& symbol = symbols_[i];
      if ((symbol.other & kSymbolIsEntry) == 0 || symbol.section >= sections_.size()) continue;
      if (sections_[symbol.section].name.substr(0, 6) != ".text.") continue;
      if (info_.kernels.size() == kMaxKernels) return corrupt(fmt::format("more than {} kernels", kMaxKernels));
      CubinKernel kernel;
      kernel.name = symbol.name;
      if (registers.count(i) == 0) return corrupt(fmt::format("no register count of kernel {}", symbol.name));
      kernel.registers = static_cast<int>(registers[i] & 0xffff);
      kernel.stack_bytes = frames.count(i) != 0 ? frames[i] : 0;
      kernel.spill_source = kernel.stack_bytes == 0 ? SpillSource::frame : SpillSource::unknown;
      if (const Section* shared = section(".nv.shared." + kernel.name)) {
        const std::int64_t reserved = info_.sm >= kFirstSmWithReservedShared ? kReservedSharedBytes : 0;
        const std::int64_t bytes = static_cast<std::int64_t>(std::min<std::uint64_t>(shared->size, INT32_MAX));
        kernel.static_shared_bytes = std::max<std::int64_t>(0, bytes - reserved);
      }
      const auto use = [&](const InfoRecord& r) {
        if (r.attribute == kInfoArgumentBytes && r.format != kInfoFormatSized) kernel.argument_bytes = r.value;
        if (r.attribute == kInfoMaxThreads && r.bytes.size() >= 12) {
          const std::uint64_t threads = std::uint64_t{u32_at(r.bytes, 0)} * (u32_at(r.bytes, 4) & 0xffff) * (u32_at(r.bytes, 8) & 0xffff);
          kernel.max_threads = static_cast<int>(std::min<std::uint64_t>(threads, INT32_MAX));
        }
      };
      if (Status s = for_each_record(".nv.info." + kernel.name, use); !s) return s;
      info_.kernels.push_back(std::move(kernel));
    }
    std::sort(info_.kernels.begin(), info_.kernels.end(), [](const auto& a, const auto& b) { return a.name < b.name; });
    return {};
  }

  Status read_facts() {
    for (const Symbol& symbol : symbols_) {
      if (symbol.name.substr(0, kFactPrefix.size()) != kFactPrefix) continue;
      if (symbol.section >= sections_.size()) return corrupt(fmt::format("fact {} has no section", symbol.name));
      const std::optional<Bytes> value = part(sections_[symbol.section].bytes, symbol.value, 8);
      if (symbol.size != 8 || !value) return corrupt(fmt::format("fact {} is not eight bytes inside a section", symbol.name));
      info_.facts.push_back({std::string(symbol.name), u64_at(*value, 0)});
    }
    std::sort(info_.facts.begin(), info_.facts.end(), [](const auto& a, const auto& b) { return a.name < b.name; });
    return {};
  }

  Bytes file_;
  std::vector<Section> sections_;
  std::unordered_map<std::string_view, std::size_t> by_name_;
  std::vector<Symbol> symbols_;
  CubinInfo info_;
};

}  // namespace

std::string CubinInfo::arch() const { return fmt::format("sm_{}{}", sm, arch_specific ? "a" : ""); }

const CubinKernel* CubinInfo::kernel(std::string_view name) const {
  const auto it = std::find_if(kernels.begin(), kernels.end(), [&](const CubinKernel& k) { return k.name == name; });
  return it == kernels.end() ? nullptr : &*it;
}

std::optional<std::uint64_t> CubinInfo::fact(std::string_view name) const {
  const auto it = std::find_if(facts.begin(), facts.end(), [&](const CubinFact& f) { return f.name == name; });
  if (it == facts.end()) return std::nullopt;
  return it->value;
}

Result<CubinInfo> read_cubin(std::span<const std::byte> bytes) { return CubinReader(bytes).read(); }

void add_spills_from_log(CubinInfo& info, std::string_view log) {
  for (CubinKernel& kernel : info.kernels) {
    kernel.spill_source = SpillSource::log;
    kernel.spill_bytes = 0;
    const std::string head = fmt::format("Registers are spilled to local memory in function '{}', ", kernel.name);
    const std::size_t at = log.find(head);
    if (at == std::string_view::npos) continue;
    // "512 bytes spill stores, 556 bytes spill loads": every number up to the end of the line.
    const std::string_view line = log.substr(at + head.size(), log.find('\n', at) - at - head.size());
    std::int64_t value = 0;
    for (const char c : std::string(line) + ' ') {
      if (c >= '0' && c <= '9') {
        value = std::min<std::int64_t>(value, INT32_MAX) * 10 + (c - '0');
      } else {
        kernel.spill_bytes += value;
        value = 0;
      }
    }
  }
}

}  // namespace w4moe
