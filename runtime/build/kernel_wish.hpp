// A kernel to build.
#pragma once

#include <string>

#include "contract/variant.h"
#include "w4moe/problem.hpp"

namespace w4moe {

/// A kernel to build, and what to say of it.
struct KernelWish {
  Variant variant;
  std::string name;           ///< "fc1.n16"
  const Problem* problem = nullptr;  ///< of the first plan that uses it, for the manifest entry in messages
};

}  // namespace w4moe
