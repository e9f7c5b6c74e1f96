#include "runtime/lockstep/clocks.hpp"

#include <algorithm>

namespace w4moe::lockstep {
namespace {

void join(std::uint32_t* to, const std::uint32_t* from, int count) {
  for (int i = 0; i < count; ++i) to[i] = std::max(to[i], from[i]);
}

std::size_t index(int i) { return static_cast<std::size_t>(i); }

}  // namespace

void Clocks::reset(int threads) {
  threads_ = threads;
  slots_ = threads;
  capacity_ = index(threads + kAgents);
  round_ = 1;
  beyond_warps_ = false;
  fences_ = false;
  tick_.assign(capacity_, 1);
  seen_.assign(capacity_ * index(threads), 0);
  fenced_.clear();
  fenced_round_.clear();
}

int Clocks::add_agent() {
  beyond_warps_ = true;
  return slots_ < threads_ + kAgents ? slots_++ : threads_ + kAgents - 1;
}

Stamp Clocks::step(int agent) {
  ++tick_[index(agent)];
  return now(agent);
}

bool Clocks::knows(int thread, const Stamp& s) const {
  if (s.slot < 0 || s.slot == thread) return true;
  if (s.slot < threads_ && s.round < round_) return true;
  return seen(thread)[s.slot] >= s.tick;
}

bool Clocks::knows_fenced(int thread, const Stamp& s) const {
  if (s.slot < 0) return true;
  if (!fences_) return false;
  if (s.slot < threads_ && s.round < fenced_round_[index(thread)]) return true;
  return fenced(thread)[s.slot] >= s.tick;
}

void Clocks::release(int thread, Known& into) {
  into.seen.resize(capacity_, 0);
  join(into.seen.data(), seen(thread), slots_);
  into.seen[index(thread)] = std::max(into.seen[index(thread)], tick_[index(thread)]);
  if (fences_) {
    into.fenced.resize(capacity_, 0);
    join(into.fenced.data(), fenced(thread), slots_);
    into.fenced_round = std::max(into.fenced_round, fenced_round_[index(thread)]);
  }
  ++tick_[index(thread)];
}

void Clocks::acquire(int thread, const Known& from) {
  beyond_warps_ = true;
  if (!from.seen.empty()) join(seen(thread), from.seen.data(), slots_);
  if (!from.fenced.empty() && fences_) {
    join(fenced(thread), from.fenced.data(), slots_);
    fenced_round_[index(thread)] = std::max(fenced_round_[index(thread)], from.fenced_round);
  }
}

void Clocks::learn(int thread, int agent, std::uint32_t tick) { seen(thread)[agent] = std::max(seen(thread)[agent], tick); }

void Clocks::publish(int agent, Known& into) const {
  into.seen.resize(capacity_, 0);
  into.seen[index(agent)] = std::max(into.seen[index(agent)], tick_[index(agent)]);
}

void Clocks::fence(int thread) {
  if (!fences_) {
    fences_ = true;
    fenced_.assign(seen_.size(), 0);
    fenced_round_.assign(index(threads_), 0);
  }
  join(fenced(thread), seen(thread), slots_);
  fenced(thread)[thread] = tick_[index(thread)]++;
  fenced_round_[index(thread)] = round_;
}

void Clocks::meet(const int* threads, int count) {
  beyond_warps_ = true;
  Known all;
  for (int i = 0; i < count; ++i) release(threads[i], all);
  for (int i = 0; i < count; ++i) acquire(threads[i], all);
}

void Clocks::meet_warp(int first) {
  constexpr int kLanes = 32;
  if (beyond_warps_ || fences_) {
    int lanes[kLanes];
    for (int i = 0; i < kLanes; ++i) lanes[i] = first + i;
    return meet(lanes, kLanes);
  }
  // Nobody knows anything of other warps that a CTA barrier has not told all: the warp's own columns are enough.
  for (int i = 0; i < kLanes; ++i) std::copy_n(tick_.data() + first, kLanes, seen(first + i) + first);
  for (int i = 0; i < kLanes; ++i) ++tick_[index(first + i)];
}

void Clocks::meet_all() {
  ++round_;
  if (slots_ == threads_ && !fences_) return;
  // Of threads the round says it all; what anyone knows of agents, and has fenced, everyone knows now.
  scratch_.assign(capacity_, 0);
  for (int t = 0; t < threads_; ++t) join(scratch_.data() + threads_, seen(t) + threads_, slots_ - threads_);
  for (int t = 0; t < threads_; ++t) std::copy_n(scratch_.data() + threads_, slots_ - threads_, seen(t) + threads_);
  if (!fences_) return;
  scratch_.assign(capacity_, 0);
  std::uint32_t round = 0;
  for (int t = 0; t < threads_; ++t) {
    join(scratch_.data(), fenced(t), slots_);
    round = std::max(round, fenced_round_[index(t)]);
  }
  for (int t = 0; t < threads_; ++t) std::copy_n(scratch_.data(), slots_, fenced(t));
  std::fill(fenced_round_.begin(), fenced_round_.end(), round);
}

}  // namespace w4moe::lockstep
