// The verbs: each reads its options, prints its result through the console and gives the exit code.
#pragma once

#include "tools/cli/console.hpp"
#include "tools/cli/options.hpp"

namespace w4moe::cli {

Result<int> cmd_plan(const Options& options, Console& console);
Result<int> cmd_render(const Options& options, Console& console);
Result<int> cmd_build(const Options& options, Console& console);
Result<int> cmd_run(const Options& options, Console& console);
Result<int> cmd_pack(const Options& options, Console& console);
Result<int> cmd_bench(const Options& options, Console& console);
Result<int> cmd_inspect(const Options& options, Console& console);
Result<int> cmd_cache(const Options& options, Console& console);
Result<int> cmd_doctor(const Options& options, Console& console);
Result<int> cmd_completion(const Options& options, Console& console);
Result<int> cmd_man(const Options& options, Console& console);
Result<int> cmd_version(const Options& options, Console& console);

}  // namespace w4moe::cli
