// The parser of the command line, for those who read it (options.cpp) and those who describe it (help_tree.cpp).
#pragma once

#include "tools/cli/options.hpp"

namespace CLI {
class App;
}

namespace w4moe::cli {

/// Adds every verb and option to an empty parser; what is parsed goes to `options`, which must outlive it.
void set_up(CLI::App& app, Options& options);

}  // namespace w4moe::cli
