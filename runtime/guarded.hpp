// The edge of the library: nothing throws across it.
#pragma once

#include <exception>
#include <new>
#include <string>
#include <utility>

#include "w4moe/error.hpp"

namespace w4moe {

/// Calls `body`, which returns a Result; what it throws becomes an Error{internal}.
template <class F>
auto guarded(F&& body) -> decltype(body()) {
  try {
    return std::forward<F>(body)();
  } catch (const std::bad_alloc&) {
    return Error{ErrorCode::internal, "out of host memory"};
  } catch (const std::exception& e) {
    return Error{ErrorCode::internal, std::string("unexpected exception: ") + e.what()};
  }
}

}  // namespace w4moe
