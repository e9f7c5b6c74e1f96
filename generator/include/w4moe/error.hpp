// Errors as values: every fallible call of the library returns Result<T>; nothing throws across a public boundary.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <variant>

namespace w4moe {

/// What went wrong, in the classes a caller can act on. The CLI maps each to an exit code.
enum class ErrorCode {
  invalid_argument,   ///< a value of the caller's is malformed or contradicts another (CLI exit 2)
  unsupported,        ///< well-formed, but this shape, format or device is not served (CLI exit 4)
  toolchain_missing,  ///< NVRTC, the driver or a device is needed and absent (CLI exit 5)
  compile_failed,     ///< NVRTC refused a source; the message holds its whole log (CLI exit 1)
  io,                 ///< a file could not be read or written (CLI exit 1)
  corrupt,            ///< bytes failed verification (CLI exit 6)
  driver,             ///< a CUDA driver call failed; the message holds its name and text (CLI exit 1)
  not_prepared,       ///< a kernel is not loaded where loading is not allowed (capture, W4MOE_JIT=off) (CLI exit 1)
  internal,           ///< a broken invariant of ours (CLI exit 1)
};

/// One error. The message names the offending value and what would be accepted.
struct Error {
  ErrorCode code = ErrorCode::internal;
  std::string message;
};

/// A value or an Error. Check with `if (!result)`, then read `result.error()`, or `*result`.
template <class T>
class [[nodiscard]] Result {
 public:
  Result(T value) : state_(std::in_place_index<0>, std::move(value)) {}
  Result(Error error) : state_(std::in_place_index<1>, std::move(error)) {}

  bool ok() const { return state_.index() == 0; }
  explicit operator bool() const { return ok(); }

  T& value() & { return std::get<0>(state_); }
  const T& value() const& { return std::get<0>(state_); }
  T&& value() && { return std::get<0>(std::move(state_)); }
  T& operator*() & { return value(); }
  const T& operator*() const& { return value(); }
  T&& operator*() && { return std::move(*this).value(); }
  T* operator->() { return &value(); }
  const T* operator->() const { return &value(); }

  const Error& error() const { return std::get<1>(state_); }

 private:
  std::variant<T, Error> state_;
};

/// Success or an Error, for calls without a value.
template <>
class [[nodiscard]] Result<void> {
 public:
  Result() = default;
  Result(Error error) : error_(std::move(error)) {}

  bool ok() const { return !error_.has_value(); }
  explicit operator bool() const { return ok(); }
  const Error& error() const { return *error_; }

 private:
  std::optional<Error> error_;
};

using Status = Result<void>;

}  // namespace w4moe
