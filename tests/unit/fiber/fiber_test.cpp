#include <catch2/catch.hpp>

#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "runtime/lockstep/fiber.hpp"

using w4moe::lockstep::Fiber;

namespace {

/// Two fibers that take turns with the program.
struct Turns {
  Fiber program;
  std::vector<std::unique_ptr<Fiber>> fibers;
  std::string trace;
  bool values_kept = true;
};

struct Turn {
  Turns* turns;
  std::size_t index;
};

void count(void* argument) {
  Turn& turn = *static_cast<Turn*>(argument);
  Turns& turns = *turn.turns;
  Fiber& self = *turns.fibers[turn.index];
  double value = 0.5 + static_cast<double>(turn.index);
  for (int i = 0; i < 3; ++i) {
    turns.trace += static_cast<char>('a' + turn.index);
    value = std::sqrt(value * value);
    Fiber::switch_to(self, turns.program);
    turns.values_kept = turns.values_kept && value == 0.5 + static_cast<double>(turn.index);
  }
  turns.trace += '.';
  Fiber::switch_to(self, turns.program, true);
}

}  // namespace

TEST_CASE("Fibers keep their own stacks and registers, and may be used again") {
  Turns turns;
  Turn arguments[2] = {{&turns, 0}, {&turns, 1}};
  for (int i = 0; i < 2; ++i) turns.fibers.push_back(std::make_unique<Fiber>(64 * 1024));
  REQUIRE(turns.fibers[0]->ok());
  for (int round = 0; round < 3; ++round) {
    for (std::size_t i = 0; i < 2; ++i) turns.fibers[i]->prepare(&count, &arguments[i]);
    for (int step = 0; step < 4; ++step) {
      for (auto& fiber : turns.fibers) Fiber::switch_to(turns.program, *fiber);
    }
  }
  CHECK(turns.trace == "ababab..ababab..ababab..");
  CHECK(turns.values_kept);
}
