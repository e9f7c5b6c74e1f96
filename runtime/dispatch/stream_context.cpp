#include "runtime/dispatch/stream_context.hpp"

#include <fmt/format.h>

#include "generator/problem/errors.hpp"

namespace w4moe {
namespace {

bool is_special(driver::Stream stream) {
  return stream == nullptr || stream == driver::kStreamLegacy || stream == driver::kStreamPerThread;
}

}  // namespace

Status check_stream(const driver::DriverTable& table, const driver::CurrentContext& context, driver::Stream stream) {
  driver::Context of_stream = nullptr;
  const driver::Code code = table.stream_get_ctx(stream, &of_stream);
  if (code == driver::kInvalidContext && is_special(stream)) return {};  // nothing is current here: the binding's context will be
  if (code != driver::kSuccess) return driver::driver_error(table, code, "cuStreamGetCtx");
  if (of_stream == context.handle) return {};
  if (table.stream_get_ctx_green != nullptr) {
    void* green = nullptr;
    if (table.stream_get_ctx_green(stream, &of_stream, &green) == driver::kSuccess && of_stream == context.handle) return {};
  }
  return invalid_argument("stream {} belongs to context {}, the binding to context {} on device {}: a run takes a stream of the context that was "
                          "current at bind()",
                          fmt::ptr(stream), fmt::ptr(of_stream), fmt::ptr(context.handle), context.device);
}

Status check_not_capturing(const driver::DriverTable& table, driver::Stream stream) {
  for (const driver::Stream asked : {stream, driver::kStreamLegacy, driver::kStreamPerThread}) {
    driver::CaptureStatus status = driver::CaptureStatus::none;
    const driver::Code code = table.stream_is_capturing(asked, &status);
    if (code == driver::kSuccess && status == driver::CaptureStatus::none) continue;
    if (code != driver::kSuccess && code != driver::kCaptureImplicit) return driver::driver_error(table, code, "cuStreamIsCapturing");
    return Error{ErrorCode::not_prepared, "a stream of this context is capturing, and kernels are neither compiled nor loaded in a capture: call build() "
                                          "before the capture begins"};
  }
  return {};
}

}  // namespace w4moe
