#include "generator/compile/cubin_info.hpp"

#include <algorithm>
#include <random>

#include "generator/compile/kernel_check.hpp"
#include "generator/render/variant_header.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/cubin_builder.hpp"
#include "tests/unit/generator_compile/variants.hpp"

using namespace w4moe;
using test::FakeCubin;
using test::FakeKernel;

namespace {

FakeCubin cubin_for(const Variant& variant) {
  FakeCubin cubin;
  cubin.sm = static_cast<std::uint32_t>(variant.arch) / 10;
  cubin.kernels[0].name = render(variant).entry_name;
  cubin.kernels[0].max_threads = static_cast<std::uint32_t>(variant.threads());
  for (const CubinFact& fact : expected_facts(variant)) cubin.facts.emplace_back(fact.name, fact.value);
  return cubin;
}

Result<CubinInfo> read(const FakeCubin& cubin) { return read_cubin(cubin.bytes()); }

}  // namespace

TEST_CASE("a cubin's kernels, resources and facts are read in both ABI versions") {
  for (const std::uint8_t abi : {std::uint8_t{7}, std::uint8_t{8}}) {
    FakeCubin cubin;
    cubin.abi = abi;
    cubin.facts = {{"w4moe_fact_zero", 0}, {"w4moe_fact_large", 0xfedcba9876543210u}, {"other", 5}};
    cubin.kernels = {FakeKernel{"w4moe_fc2", 128, 16, 256, 512, 120}, FakeKernel{"w4moe_fc1", 40, 0, 0, 0, 64}};
    const Result<CubinInfo> info = read(cubin);
    REQUIRE(info);
    CHECK(info->arch() == "sm_90a");
    REQUIRE(info->kernels.size() == 2);
    CHECK(info->kernels[0].name == "w4moe_fc1");
    CHECK(info->kernels[0].registers == 40);
    CHECK(info->kernels[0].max_threads == 0);
    CHECK(info->kernels[0].spill_source == SpillSource::frame);
    const CubinKernel* fc2 = info->kernel("w4moe_fc2");
    REQUIRE(fc2 != nullptr);
    CHECK(fc2->registers == 128);
    CHECK(fc2->stack_bytes == 16);
    CHECK(fc2->static_shared_bytes == 256);
    CHECK(fc2->max_threads == 512);
    CHECK(fc2->argument_bytes == 120);
    CHECK(fc2->spill_source == SpillSource::unknown);
    CHECK(info->kernel("w4moe_fc3") == nullptr);
    CHECK(info->facts == std::vector<CubinFact>{{"w4moe_fact_large", 0xfedcba9876543210u}, {"w4moe_fact_zero", 0}});
    CHECK(info->fact("w4moe_fact_zero") == std::optional<std::uint64_t>(0));
    CHECK_FALSE(info->fact("w4moe_fact_none"));
  }
}

TEST_CASE("C17, C28: the architecture and its suffix are read, and another one is refused") {
  FakeCubin cubin;
  cubin.arch_specific = false;
  for (const auto& [abi, compat] : {std::pair<int, bool>{7, false}, {8, false}, {8, true}}) {
    cubin.abi = static_cast<std::uint8_t>(abi);
    cubin.flag_in_compat = compat;
    for (const std::uint32_t sm : {80u, 90u, 103u, 121u}) {
      for (const bool specific : {false, true}) {
        cubin.sm = sm;
        cubin.arch_specific = specific;
        const Result<CubinInfo> info = read(cubin);
        REQUIRE(info);
        CHECK(info->arch() == "sm_" + std::to_string(sm) + (specific ? "a" : ""));
      }
    }
  }
  const auto check = [&](std::uint32_t sm, bool specific, Arch arch) {
    cubin.sm = sm;
    cubin.arch_specific = specific;
    return check_arch(*read(cubin), arch);
  };
  CHECK(check(90, true, Arch::sm_90a));
  CHECK(check(90, false, Arch::sm_90a));
  CHECK(check(80, false, Arch::sm_80));
  CHECK_FALSE(check(80, true, Arch::sm_80));
  CHECK_FALSE(check(80, false, Arch::sm_86));
  CHECK_FALSE(check(100, true, Arch::sm_103a));
  CHECK_FALSE(check(120, true, Arch::sm_121a));
  const Status wrong = check(120, true, Arch::sm_90a);
  REQUIRE_FALSE(wrong);
  CHECK(wrong.error().code == ErrorCode::corrupt);
  CHECK(wrong.error().message == "the cubin does not fit: built for sm_120a, wanted sm_90a");
}

TEST_CASE("a cubin is checked against its variant: kernel, threads and every fact") {
  for (const Variant& variant : {test::fc1_nvfp4(), test::fc2_int4(), test::route_sm80()}) {
    FakeCubin good = cubin_for(variant);
    good.arch_specific = variant.arch != Arch::sm_80;
    CHECK(check_kernel(*read(good), variant));
    REQUIRE(good.facts.size() == 5);
    for (std::size_t i = 0; i < good.facts.size(); ++i) {
      FakeCubin bad = good;
      bad.facts[i].second += 1;
      const Status changed = check_kernel(*read(bad), variant);
      REQUIRE_FALSE(changed);
      CHECK(changed.error().code == ErrorCode::corrupt);
      CHECK(changed.error().message.find(good.facts[i].first) != std::string::npos);
      bad = good;
      bad.facts.erase(bad.facts.begin() + static_cast<std::ptrdiff_t>(i));
      CHECK_FALSE(check_kernel(*read(bad), variant));
    }
    FakeCubin bad = good;
    bad.kernels[0].name = "w4moe_other";
    CHECK_FALSE(check_kernel(*read(bad), variant));
    bad = good;
    bad.kernels.push_back(FakeKernel{});
    bad.kernels[1].name = "w4moe_second";
    CHECK_FALSE(check_kernel(*read(bad), variant));
    bad = good;
    bad.kernels.clear();
    CHECK_FALSE(check_kernel(*read(bad), variant));
    bad = good;
    bad.kernels[0].max_threads = 32;
    CHECK_FALSE(check_kernel(*read(bad), variant));
  }
}

TEST_CASE("spills are read from the log that warns of them") {
  FakeCubin cubin;
  cubin.kernels = {FakeKernel{"a", 255, 64, 0, 0, 8}, FakeKernel{"b", 255, 64, 0, 0, 8}};
  CubinInfo info = *read(cubin);
  add_spills_from_log(info, "x\nptxas warning : Registers are spilled to local memory in function 'a', 512 bytes spill stores, "
                            "556 bytes spill loads\nnext line 7");
  CHECK(info.kernels[0].spill_source == SpillSource::log);
  CHECK(info.kernels[0].spill_bytes == 1068);
  CHECK(info.kernels[1].spill_source == SpillSource::log);
  CHECK(info.kernels[1].spill_bytes == 0);
}

TEST_CASE("bytes that are no cubin are refused with the reason") {
  const auto message = [](std::vector<std::byte> bytes) {
    const Result<CubinInfo> info = read_cubin(bytes);
    REQUIRE_FALSE(info);
    CHECK(info.error().code == ErrorCode::corrupt);
    return info.error().message;
  };
  const std::vector<std::byte> good = FakeCubin{}.bytes();
  CHECK(message({}).find("0 bytes") != std::string::npos);
  CHECK(message(std::vector<std::byte>(4096)).find("ELF magic") != std::string::npos);
  auto other_machine = good;
  other_machine[18] = std::byte{62};
  other_machine[19] = std::byte{0};
  CHECK(message(other_machine).find("machine 62") != std::string::npos);
  auto other_abi = good;
  other_abi[8] = std::byte{9};
  CHECK(message(other_abi).find("ABI version 9") != std::string::npos);
  for (std::size_t length = 0; length < good.size(); length += 7)
    CHECK_FALSE(read_cubin(std::span(good).first(length)));
}

TEST_CASE("no bytes make the reader read outside of them") {
  // Under AddressSanitizer this is the test; without it, it still shows that nothing hangs or throws.
  FakeCubin cubin;
  cubin.facts = {{"w4moe_fact_threads", 256}, {"w4moe_fact_args_bytes", 120}};
  cubin.kernels = {FakeKernel{"w4moe_fc2", 128, 16, 256, 512, 120}, FakeKernel{}};
  const std::vector<std::byte> good = cubin.bytes();
  std::mt19937_64 random(20240607);
  const auto at_most = [&](std::size_t n) { return static_cast<std::size_t>(random() % (n + 1)); };
  const std::uint64_t extremes[] = {0, 1, 0x7fffffff, 0x80000000, 0xffffffff, 0x7fffffffffffffff, 0xffffffffffffffff, 64, good.size()};
  int accepted = 0;
  for (int round = 0; round < 20000; ++round) {
    // A heap block of exactly the size, so that one byte too far is seen.
    std::vector<std::byte> bytes(good.begin(), good.begin() + static_cast<std::ptrdiff_t>(round % 4 == 0 ? at_most(good.size()) : good.size()));
    for (std::size_t n = 1 + at_most(4); n > 0 && bytes.size() > 16; --n) {
      const std::size_t width = std::size_t{1} << at_most(3);
      const std::uint64_t value = round % 2 == 0 ? random() : extremes[at_most(std::size(extremes) - 1)];
      // Half of the hits go to the header and to the section headers at the end, where the offsets are.
      const std::size_t span = bytes.size() - width;
      const std::size_t at = round % 3 == 0 ? at_most(span) : round % 3 == 1 ? at_most(std::min<std::size_t>(span, 64)) : span - at_most(std::min<std::size_t>(span, 800));
      for (std::size_t i = 0; i < width; ++i) bytes[at + i] = static_cast<std::byte>(value >> (8 * i));
    }
    if (read_cubin(bytes)) ++accepted;
  }
  CHECK(accepted > 0);      // the mutations are small enough to get past the header
  CHECK(accepted < 20000);  // and large enough to be noticed
}
