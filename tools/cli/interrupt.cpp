#include "tools/cli/interrupt.hpp"

#include <signal.h>
#include <unistd.h>

#include "tools/cli/console.hpp"

namespace w4moe::cli {
namespace {

volatile sig_atomic_t noted = 0;
struct sigaction before_int;
struct sigaction before_term;

extern "C" void note_interrupt(int) {
  if (noted != 0) ::_exit(kInterrupted);
  noted = 1;
}

}  // namespace

InterruptGuard::InterruptGuard() {
  struct sigaction action {};
  action.sa_handler = note_interrupt;
  sigemptyset(&action.sa_mask);
  ::sigaction(SIGINT, &action, &before_int);
  ::sigaction(SIGTERM, &action, &before_term);
}

InterruptGuard::~InterruptGuard() {
  ::sigaction(SIGINT, &before_int, nullptr);
  ::sigaction(SIGTERM, &before_term, nullptr);
}

bool interrupted() { return noted != 0; }

}  // namespace w4moe::cli
