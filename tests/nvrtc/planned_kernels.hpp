// Which kernels the matrix compiles: those of plans, so that nothing is compiled that no user could meet.
#pragma once

#include <string>
#include <vector>

#include "w4moe/plan.hpp"

namespace w4moe::test {

/// A planned kernel under the name that its budget has: "<arch>/<problem>/<kernel>".
struct NamedKernel {
  std::string name;
  Variant variant;
  DeviceSpec device;
};

/// One problem on one target, all block widths or only those named.
struct PlannedCase {
  Problem problem;
  Arch arch = Arch::sm_90a;
  std::vector<std::string> widths = {};  ///< "n8", ...; empty: every width of the ladder
};

/// The kernels of the cases, each distinct variant once, under the name of the first case that has it.
std::vector<NamedKernel> planned_kernels(const std::vector<PlannedCase>& cases);

/// What is compiled for a target. sm_90a: every format x dtype in all block widths, every format x dtype ungated, every activation,
/// tails, and the kernels that prepare weights in every format. The others: each kernel kind, scale kind, dtype and width once or
/// twice.
std::vector<NamedKernel> matrix_of(Arch arch);

}  // namespace w4moe::test
