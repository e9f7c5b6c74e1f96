// Known devices: what a bare `--arch` means, and which target serves which compute capability.
#include <algorithm>
#include <array>
#include <string>
#include <string_view>
#include <vector>

#include "generator/problem/errors.hpp"
#include "w4moe/device.hpp"

namespace w4moe {
namespace {

constexpr i64 kKiB = 1024;

/// Facts of a target from NVIDIA's table of compute capabilities; the multiprocessors are those of the part named beside them.
struct ArchFacts {
  Arch arch;
  std::string_view name;
  int major;
  int minor;
  int sms;
  i64 shared_optin_kib;
  i64 shared_per_sm_kib;
  int max_threads_per_sm;
};

constexpr std::array<ArchFacts, 8> kArchs{{
    {Arch::sm_80, "sm_80", 8, 0, 108, 163, 164, 2048},     // A100
    {Arch::sm_86, "sm_86", 8, 6, 84, 99, 100, 1536},       // A40, RTX A6000
    {Arch::sm_89, "sm_89", 8, 9, 128, 99, 100, 1536},      // RTX 4090
    {Arch::sm_90a, "sm_90a", 9, 0, 132, 227, 228, 2048},   // H100 and H200 SXM
    {Arch::sm_100a, "sm_100a", 10, 0, 148, 227, 228, 2048},  // B200
    {Arch::sm_103a, "sm_103a", 10, 3, 148, 227, 228, 2048},  // B300
    {Arch::sm_120a, "sm_120a", 12, 0, 188, 99, 100, 1536},   // RTX PRO 6000
    {Arch::sm_121a, "sm_121a", 12, 1, 48, 99, 100, 1536},    // GB10
}};

const ArchFacts* find_arch(Arch arch) {
  const auto it = std::find_if(kArchs.begin(), kArchs.end(), [arch](const ArchFacts& f) { return f.arch == arch; });
  return it == kArchs.end() ? nullptr : &*it;
}

std::string list_archs() {
  std::string list;
  for (const ArchFacts& f : kArchs) {
    if (!list.empty()) list += ", ";
    list += f.name;
  }
  return list;
}

}  // namespace

std::string_view to_string(Arch arch) {
  const ArchFacts* facts = find_arch(arch);
  return facts == nullptr ? std::string_view("unknown") : facts->name;
}

Result<Arch> parse_arch(std::string_view text) {
  for (const ArchFacts& f : kArchs) {
    if (f.name == text) return f.arch;
  }
  return unsupported("arch '{}' is unknown (accepted: {})", text, list_archs());
}

const std::vector<Arch>& known_archs() {
  static const std::vector<Arch> archs = [] {
    std::vector<Arch> all;
    for (const ArchFacts& f : kArchs) all.push_back(f.arch);
    return all;
  }();
  return archs;
}

DeviceSpec named_device(Arch arch, int sms) {
  const ArchFacts* facts = find_arch(arch);
  if (facts == nullptr) return DeviceSpec{"unknown", arch, 0, 0, 0, 0, 0};  // make_plan() refuses it
  DeviceSpec device;
  device.name = facts->name;
  device.arch = arch;
  device.sms = sms > 0 ? sms : facts->sms;
  device.shared_optin_bytes = facts->shared_optin_kib * kKiB;
  device.shared_per_sm_bytes = facts->shared_per_sm_kib * kKiB;
  device.max_threads_per_sm = facts->max_threads_per_sm;
  return device;
}

Result<Arch> arch_for_capability(int major, int minor) {
  std::string known;
  for (const ArchFacts& f : kArchs) {
    if (f.major == major && f.minor == minor) return f.arch;
    known += fmt::format("{}{}.{}", known.empty() ? "" : ", ", f.major, f.minor);
  }
  return unsupported("compute capability {}.{} is not served (accepted: {})", major, minor, known);
}

}  // namespace w4moe
