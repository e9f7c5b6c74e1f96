// What a cubin says of itself: a small reader of the ELF files that the CUDA compiler makes. It needs no CUDA, trusts no byte,
// and serves three: the compiler's own check, the loader's check against the plan, and `w4moe inspect`.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "w4moe/error.hpp"

namespace w4moe {

/// How the number of spilled bytes is known.
enum class SpillSource {
  unknown,  ///< the kernel has a stack frame, and no log tells what it holds
  frame,    ///< no stack frame at all, so nothing can be spilled to it
  log,      ///< the compiler's log
};

struct CubinKernel {
  std::string name;
  int registers = 0;                    ///< per thread
  std::int64_t static_shared_bytes = 0; ///< declared by the source, less the 1 KiB that the system reserves from sm_90 on
  std::int64_t stack_bytes = 0;         ///< local memory per thread: arrays that could not be kept in registers, and spills
  std::int64_t argument_bytes = 0;
  int max_threads = 0;                  ///< launch bound; 0 where the source states none
  SpillSource spill_source = SpillSource::unknown;
  std::int64_t spill_bytes = 0;         ///< bytes of spill stores and spill loads in the code; meaningful unless unknown
};

/// An integer that a kernel exports to the host (W4MOE_FACT), read from the constant bank that the symbol lies in.
struct CubinFact {
  std::string name;
  std::uint64_t value = 0;

  bool operator==(const CubinFact&) const = default;
};

struct CubinInfo {
  int sm = 0;                  ///< 90, 103, ...
  bool arch_specific = false;  ///< built for an "a" target, as far as the file shows it
  std::vector<CubinKernel> kernels;  ///< in the order of their names
  std::vector<CubinFact> facts;      ///< symbols that begin with "w4moe_fact_", in the order of their names

  std::string arch() const;    ///< "sm_90a"
  const CubinKernel* kernel(std::string_view name) const;
  std::optional<std::uint64_t> fact(std::string_view name) const;
};

/// Reads any bytes: corrupt, with what is wrong and where, unless they are a whole 64-bit CUDA ELF file.
/// A copy of the bytes is not kept. Thread-safe.
Result<CubinInfo> read_cubin(std::span<const std::byte> bytes);

/// What the names of facts begin with.
inline constexpr std::string_view kFactPrefix = "w4moe_fact_";

/// Fills the spill numbers of the kernels from a log of ptxas run with --warn-on-spills: a kernel that the log does not name
/// spills nothing.
void add_spills_from_log(CubinInfo& info, std::string_view log);

}  // namespace w4moe
