// The planted faults: one wrong line in a real kernel each, found again by its text, so that a kernel that changes takes its faults
// along. docs/testing.md names them.
#pragma once

#include <span>
#include <string>

#include "tests/lockstep/planted.hpp"

namespace w4moe::lockstep {

/// Which launches a fault concerns, and so which layer shows it.
enum class FaultCase {
  portable,        ///< several stages and warps, ragged last unit in FC2
  deep,            ///< several units a warp, the last stage half filled
  many_groups,     ///< a short last group of strips
  direct,          ///< one token
  self_routed,     ///< few routes, no routing kernel
  half,            ///< fp16
  overlap,         ///< all CTAs of a grid at a time
  wgmma_ring,      ///< its ring of stages goes round before the tables do
  wgmma,           ///< the wgmma family at several tiles a CTA
};

struct Fault {
  const char* name;
  FaultCase where;
  const char* file;         ///< below templates/
  const char* from;
  const char* to;
  bool only_asan = false;   ///< what is read too far meets zeros or is thrown away: only AddressSanitizer sees it
  bool random = false;      ///< needs the random schedule
};

std::span<const Fault> all_faults();

/// The layer that shows a fault, without it.
LayerCase case_for(FaultCase where);
/// And with it.
LayerCase case_with(const Fault& fault);

}  // namespace w4moe::lockstep
