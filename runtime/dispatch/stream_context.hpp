// Which context a stream belongs to, and whether it captures.
#pragma once

#include "runtime/driver/current_device.hpp"

namespace w4moe {

/// R02: the stream must be of the binding's context. A stream of a green context within it is accepted. invalid_argument otherwise.
/// The special streams stand for the current context's; without one, for the binding's.
Status check_stream(const driver::DriverTable& table, const driver::CurrentContext& context, driver::Stream stream);

/// R06: not_prepared if the stream, or a stream that the default streams would wait for, is capturing. Asks only.
Status check_not_capturing(const driver::DriverTable& table, driver::Stream stream);

}  // namespace w4moe
