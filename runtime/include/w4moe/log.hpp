// Messages of the library. It prints nothing by itself: they go to a callback, and to stderr or a file where W4MOE_LOG says so.
#pragma once

#include <functional>
#include <string>

namespace w4moe {

enum class LogLevel { debug, info, warning };

/// Gets every message of the library. May be called from any thread; must not call back into the Engine.
using LogFn = std::function<void(LogLevel level, const std::string& message)>;

}  // namespace w4moe
