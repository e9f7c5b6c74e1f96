// A kernel to build.
#pragma once

#include <string>

#include "w4moe/plan.hpp"

namespace w4moe {

/// A kernel to build, and what to say of it.
struct KernelWish {
  Variant variant;
  std::string name;           ///< "fc1.n16"
  const Plan* plan = nullptr; ///< the first that uses it: its layer's sizes, and the manifest entry in messages
};

}  // namespace w4moe
