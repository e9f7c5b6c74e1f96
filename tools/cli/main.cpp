#include <fcntl.h>

#include <csignal>
#include <exception>

#include "tools/cli/commands.hpp"
#include "tools/cli/interrupt.hpp"
#include "tools/cli/kernel_source.hpp"

namespace w4moe::cli {
namespace {

struct Verb {
  const char* name;
  Result<int> (*run)(const Options&, Console&);
};

constexpr Verb kVerbs[] = {
    {"plan", cmd_plan},       {"render", cmd_render}, {"build", cmd_build},   {"run", cmd_run},
    {"inspect", cmd_inspect}, {"cache", cmd_cache},   {"doctor", cmd_doctor}, {"version", cmd_version},
    {"pack", cmd_pack},       {"bench", cmd_bench}, {"completion", cmd_completion}, {"man", cmd_man},
};

Result<int> run_verb(const Options& options, Console& console) {
  for (const Verb& verb : kVerbs) {
    if (options.verb == verb.name) return verb.run(options, console);
  }
  return Error{ErrorCode::internal, "no such verb: " + options.verb};
}

/// A file that is opened must never become standard output or error: what is printed would go into it. In the place of a closed
/// one stands a file that cannot be written, so that the loss of a result is still a failure.
void hold_standard_streams() {
  for (int fd = 0; fd <= 2; ++fd) {
    if (::fcntl(fd, F_GETFD) == -1) (void)::open("/dev/null", O_RDONLY);  // takes the lowest free number, which is this one
  }
  // A reader that has gone is an error of the write, told by the exit code, and no end in the middle of a build.
  std::signal(SIGPIPE, SIG_IGN);
}

/// Says what went wrong, once on stderr and, for scripts, once as a document.
int report(const std::string& verb, const Error& error, int code, Console& console) {
  console.error(error.message);
  if (console.json()) console.result(error_document(verb, error, code));
  return code;
}

int program(int argc, char** argv) {
  Options options;
  const Parsed parsed = parse_command_line(argc, argv, options);
  Console console;
  console.set_up(options.json, options.verbosity, options.color);
  int code = parsed.exit_code;
  if (!parsed.run) {
    if (!parsed.error.empty()) {
      report(options.verb, Error{ErrorCode::invalid_argument, parsed.error}, code, console);
    }
    console.result(parsed.output);
  } else {
    const Status good = check_flags(options.kernels);
    const Result<int> result = good ? run_verb(options, console) : Result<int>(good.error());
    code = result ? *result : report(options.verb, result.error(), exit_code(result.error().code), console);
  }
  if (interrupted()) code = kInterrupted;
  if (const Status flushed = console.flush(); !flushed) {
    console.error(flushed.error().message);
    if (code == kDone) code = kFailed;
  }
  return code;
}

}  // namespace
}  // namespace w4moe::cli

int main(int argc, char** argv) {
  // The library lets no exception out; what is left is ours, and running out of memory.
  w4moe::cli::hold_standard_streams();
  w4moe::cli::Console console;
  try {
    return w4moe::cli::program(argc, argv);
  } catch (const std::exception& fault) {
    console.error(std::string("internal error: ") + fault.what());
    return w4moe::cli::kFailed;
  }
}
