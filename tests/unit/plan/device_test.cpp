// Devices: names, capabilities, and the facts that a bare `--arch` stands for.
#include <set>
#include <string>

#include "tests/support/catch.hpp"
#include "w4moe/device.hpp"

namespace w4moe {

TEST_CASE("C28: compute capability to target, suffix included; unknown ones are refused") {
  struct Row {
    int major, minor;
    std::string target;
  };
  for (const Row& row : {Row{8, 0, "sm_80"}, Row{8, 6, "sm_86"}, Row{8, 9, "sm_89"}, Row{9, 0, "sm_90a"}, Row{10, 0, "sm_100a"},
                         Row{10, 3, "sm_103a"}, Row{12, 0, "sm_120a"}, Row{12, 1, "sm_121a"}}) {
    const Result<Arch> arch = arch_for_capability(row.major, row.minor);
    REQUIRE(arch.ok());
    CHECK(to_string(*arch) == row.target);
    CHECK(static_cast<int>(*arch) == 100 * row.major + 10 * row.minor);
  }
  for (const auto& [major, minor] : {std::pair{13, 0}, {13, 5}, {9, 1}, {7, 5}, {8, 7}, {11, 0}, {0, 0}, {-1, 0}}) {
    const Result<Arch> arch = arch_for_capability(major, minor);
    REQUIRE_FALSE(arch.ok());
    CHECK(arch.error().code == ErrorCode::unsupported);
  }
  CHECK(arch_for_capability(13, 0).error().message ==
        "compute capability 13.0 is not served (accepted: 8.0, 8.6, 8.9, 9.0, 10.0, 10.3, 12.0, 12.1)");
}

TEST_CASE("device: every target has one name, and it reads back") {
  std::set<std::string> names;
  for (const Arch arch : known_archs()) {
    const std::string name(to_string(arch));
    CHECK(*parse_arch(name) == arch);
    CHECK(names.insert(name).second);
  }
  CHECK(names.size() == 8);
  for (const char* text : {"", "sm_90", "sm90a", "SM_90A", "sm_90a ", "sm_100", "sm_999"}) CHECK_FALSE(parse_arch(text).ok());
  CHECK(parse_arch("sm_90").error().message ==
        "arch 'sm_90' is unknown (accepted: sm_80, sm_86, sm_89, sm_90a, sm_100a, sm_103a, sm_120a, sm_121a)");
}

TEST_CASE("device: a bare arch is one stated part; the multiprocessor count can be given") {
  const DeviceSpec h200 = named_device(Arch::sm_90a);
  CHECK(h200.sms == 132);
  CHECK(h200.shared_optin_bytes == 227 * 1024);
  CHECK(h200.shared_per_sm_bytes == 228 * 1024);
  CHECK(named_device(Arch::sm_90a, 78).sms == 78);
  CHECK(named_device(Arch::sm_90a, 0).sms == 132);
  for (const Arch arch : known_archs()) {
    const DeviceSpec d = named_device(arch);
    CHECK(d.name == to_string(arch));
    CHECK(d.sms > 0);
    CHECK(d.shared_per_sm_bytes == d.shared_optin_bytes + 1024);  // the driver keeps 1 KiB per CTA
    CHECK(d.registers_per_sm == 65536);
    CHECK((d.max_threads_per_sm == 2048 || d.max_threads_per_sm == 1536));
  }
}

}  // namespace w4moe
