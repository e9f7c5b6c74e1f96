// Cubins without a compiler: ELF files with the sections, symbols and records that CUDA's have, and no code.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

namespace w4moe::test {

struct FakeKernel {
  std::string name = "w4moe_fc1";
  std::uint32_t registers = 96;
  std::uint32_t stack_bytes = 0;
  std::uint64_t static_shared_bytes = 0;  ///< as declared; the builder adds what sm_90 and later reserve
  std::uint32_t max_threads = 256;
  std::uint16_t argument_bytes = 64;
};

struct FakeCubin {
  std::uint8_t abi = 8;          ///< 7: CUDA 12 before Blackwell; 8: Blackwell, and CUDA 13
  bool flag_in_compat = true;    ///< abi 8: the "a" as CUDA 13 writes it (.nv.compat), not as 12.8 does (e_flags)
  std::uint32_t sm = 90;
  bool arch_specific = true;
  std::vector<FakeKernel> kernels = {FakeKernel{}};
  std::vector<std::pair<std::string, std::uint64_t>> facts = {};

  std::vector<std::byte> bytes() const;
};

namespace cubin_detail {

inline void put(std::string& out, std::uint64_t value, int bytes) {
  for (int i = 0; i < bytes; ++i) out.push_back(static_cast<char>((value >> (8 * i)) & 0xff));
}

struct Section {
  std::string name;
  std::uint32_t type = 1;
  std::string bytes;
  std::uint64_t size = 0;  ///< of sections without bytes
  std::uint32_t link = 0;
  std::uint32_t info = 0;
};

inline std::uint32_t add_string(std::string& table, const std::string& text) {
  const auto at = static_cast<std::uint32_t>(table.size());
  table += text;
  table.push_back('\0');
  return at;
}

}  // namespace cubin_detail

inline std::vector<std::byte> FakeCubin::bytes() const {
  using cubin_detail::add_string;
  using cubin_detail::put;
  constexpr std::uint32_t kInfoType = 0x70000000;
  std::vector<cubin_detail::Section> sections(4);
  sections[0].type = 0;
  sections[1] = {".shstrtab", 3, {}, 0, 0, 0};
  sections[2] = {".strtab", 3, std::string(1, '\0'), 0, 0, 0};
  sections[3] = {".symtab", 2, std::string(24, '\0'), 0, 2, 0};
  std::string strings(1, '\0');
  std::string symbols(24, '\0');
  std::uint32_t symbol_count = 1;
  const auto add_symbol = [&](const std::string& name, int info, int other, std::size_t section, std::uint64_t value, std::uint64_t size) {
    put(symbols, add_string(strings, name), 4);
    put(symbols, static_cast<std::uint64_t>(info), 1);
    put(symbols, static_cast<std::uint64_t>(other), 1);
    put(symbols, section, 2);
    put(symbols, value, 8);
    put(symbols, size, 8);
    return symbol_count++;
  };
  const auto record = [](std::string& out, int attribute, std::initializer_list<std::uint32_t> words) {
    put(out, 4, 1);
    put(out, static_cast<std::uint64_t>(attribute), 1);
    put(out, words.size() * 4, 2);
    for (const std::uint32_t word : words) put(out, word, 4);
  };

  if (!facts.empty()) {
    std::string constants;
    for (const auto& [name, value] : facts) {
      add_symbol(name, 1, 0, sections.size(), constants.size(), 8);
      put(constants, value, 8);
    }
    sections.push_back({".nv.constant3", 1, constants, 0, 0, 0});
  }
  std::string info;
  for (const FakeKernel& kernel : kernels) {
    const std::uint32_t symbol = add_symbol(kernel.name, 0x12, 0x10, sections.size(), 0, 128);
    sections.push_back({".text." + kernel.name, 1, std::string(128, '\0'), 0, 3, symbol});
    record(info, 0x2f, {symbol, kernel.registers});
    record(info, 0x11, {symbol, kernel.stack_bytes});
    std::string own;
    record(own, 0x05, {kernel.max_threads, 1, 1});
    put(own, 3, 1);
    put(own, 0x19, 1);
    put(own, kernel.argument_bytes, 2);
    sections.push_back({".nv.info." + kernel.name, kInfoType, own, 0, 3, 0});
    const std::uint64_t shared = kernel.static_shared_bytes + (sm >= 90 ? 1024 : 0);
    if (shared > 0) sections.push_back({".nv.shared." + kernel.name, 8, {}, shared, 0, 0});
  }
  sections.push_back({".nv.info", kInfoType, info, 0, 3, 0});
  if (abi == 8 && flag_in_compat) {
    std::string compat;
    put(compat, 0x0902, 2);
    put(compat, arch_specific ? 1 : 0, 2);
    sections.push_back({".nv.compat", 0x70000086, compat, 0, 0, 0});
  }
  sections[2].bytes = strings;
  sections[3].bytes = symbols;

  std::string names;
  std::vector<std::uint32_t> name_offsets;
  for (const auto& section : sections) name_offsets.push_back(add_string(names, section.name));
  sections[1].bytes = names;

  std::uint32_t flags = abi == 7 ? sm | (arch_specific ? 0x800u : 0u) | (sm << 16) : sm << 8;
  if (abi == 8 && arch_specific && !flag_in_compat) flags |= 8;

  std::string body;
  std::string headers;
  for (std::size_t i = 0; i < sections.size(); ++i) {
    const auto& s = sections[i];
    put(headers, name_offsets[i], 4);
    put(headers, s.type, 4);
    put(headers, 0, 8);
    put(headers, 0, 8);
    put(headers, i == 0 ? 0 : 64 + body.size(), 8);
    put(headers, s.type == 8 ? s.size : s.bytes.size(), 8);
    put(headers, s.link, 4);
    put(headers, s.info, 4);
    put(headers, 1, 8);
    put(headers, s.type == 2 ? 24 : 0, 8);
    body += s.bytes;
  }
  std::string file("\x7f" "ELF\x02\x01\x01", 7);
  put(file, abi == 7 ? 0x33 : 0x41, 1);
  put(file, abi, 1);
  put(file, 0, 7);
  put(file, 2, 2);
  put(file, 190, 2);
  put(file, 1, 4);
  put(file, 0, 8);
  put(file, 0, 8);
  put(file, 64 + body.size(), 8);
  put(file, flags, 4);
  put(file, 64, 2);
  put(file, 0, 2);
  put(file, 0, 2);
  put(file, 64, 2);
  put(file, sections.size(), 2);
  put(file, 1, 2);
  file += body + headers;

  std::vector<std::byte> result(file.size());
  std::memcpy(result.data(), file.data(), file.size());
  return result;
}

}  // namespace w4moe::test
