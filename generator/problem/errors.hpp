// Errors with a formatted message, for the generator's .cpp files.
#pragma once

#include <fmt/format.h>

#include <utility>

#include "w4moe/error.hpp"

namespace w4moe {

/// A value of the caller's is malformed or contradicts another.
template <class... Args>
Error invalid_argument(fmt::format_string<Args...> text, Args&&... args) {
  return Error{ErrorCode::invalid_argument, fmt::format(text, std::forward<Args>(args)...)};
}

/// The request is well-formed, but not served.
template <class... Args>
Error unsupported(fmt::format_string<Args...> text, Args&&... args) {
  return Error{ErrorCode::unsupported, fmt::format(text, std::forward<Args>(args)...)};
}

}  // namespace w4moe
