// wgmma with the weights as register operand A: started by a warpgroup, done when it is waited for.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <limits>

#include "runtime/lockstep/scheduler.hpp"
#include "runtime/lockstep/wgmma.hpp"

namespace w4moe::lockstep {
namespace {

std::size_t index(int i) { return static_cast<std::size_t>(i); }

}  // namespace

void Scheduler::on_fence_async_shared() {
  const IgnoreAccesses ignore;
  running_->cta->clocks.fence(running_->position.thread);
}

void Scheduler::on_wgmma_fence() {
  const IgnoreAccesses ignore;
  running_->wgmma_fenced = true;
}

void Scheduler::on_wgmma_add(const WgmmaOperand& operand, Site site) {
  const IgnoreAccesses ignore;
  Thread& t = *running_;
  Cta& cta = *t.cta;
  const int group = t.position.thread / kWarpgroupThreads;
  Warpgroup& g = cta.warpgroups[index(group)];
  if (cta.thread_count() % kWarpgroupThreads != 0) fail(t, fmt::format("wgmma in a CTA of {} threads; whole warpgroups of 128 are accepted", cta.thread_count()), site);
  if (!t.wgmma_fenced) fail(t, "wgmma without a wgmma_fence since its registers were last touched", site);
  if (g.arrived == 0) {
    g.site = site;
    g.first = t.position.thread;
    if (g.agent < 0) g.agent = cta.clocks.add_agent();
  } else if (!same_site(g.site, site)) {
    fail(t, fmt::format("wgmma, while thread {} of the warpgroup waits in another one at {}", g.first, text_of(g.site)), site);
  }
  g.operands[t.position.thread % kWarpgroupThreads] = &operand;
  t.state = State::in_wgmma;
  t.site = site;
  if (++g.arrived == kWarpgroupThreads) {
    g.arrived = 0;
    perform_wgmma(cta, group, site);
    for (int i = 0; i < kWarpgroupThreads; ++i) make_ready(cta.threads[index(group * kWarpgroupThreads + i)]);
  }
  leave(t, false);
}

/// Computes the sums, which their threads see once they wait, and puts NaNs into the registers until then.
void Scheduler::perform_wgmma(Cta& cta, int group, Site site) {
  Warpgroup& g = cta.warpgroups[index(group)];
  Thread& last = *running_;
  const WgmmaOperand& first = *g.operands[0];
  ++stats_.warp_ops;
  for (int i = 1; i < kWarpgroupThreads; ++i) {
    if (g.operands[i]->b == first.b && g.operands[i]->tokens == first.tokens) continue;
    fail(last, fmt::format("wgmma: thread {} names other tokens than thread {}", group * kWarpgroupThreads + i, group * kWarpgroupThreads), site);
  }
  TokenTile tile;
  std::string fault = tile.open(first.b, first.tokens, last.position.shared_bytes);
  if (!fault.empty()) fail(last, std::move(fault), site);

  const Stamp stamp = cta.clocks.step(g.agent);
  for (int row = 0; row < first.tokens; ++row) {
    for (int vector = 0; vector < 2; ++vector) {
      const std::int64_t line = tile.offset(row, vector * 8) / 16;
      fault = cta.lines.read_async(line, group * kWarpgroupThreads, stamp);
      if (fault.empty()) continue;
      fault += fmt::format(" (shared offset {}, token {})", line * 16, row);
      fail(last, std::move(fault), site);
    }
  }

  float* sums[kWarpgroupThreads];
  for (int i = 0; i < kWarpgroupThreads; ++i) {
    Thread& t = cta.threads[index(group * kWarpgroupThreads + i)];
    const WgmmaOperand& operand = *g.operands[i];
    PendingOperand& kept = t.operands.emplace_back();
    kept.a = operand.a;
    std::memcpy(kept.value, operand.a, sizeof kept.value);
    kept.group = t.wgmma_group;
    auto pending = std::find_if(t.sums.begin(), t.sums.end(), [&](const PendingSums& s) { return s.d == operand.d; });
    if (pending == t.sums.end()) {
      t.sums.push_back(PendingSums{operand.d, std::vector<float>(operand.d, operand.d + operand.tokens / 2), 0});
      pending = t.sums.end() - 1;
      std::fill_n(operand.d, operand.tokens / 2, std::numeric_limits<float>::quiet_NaN());
    }
    pending->group = t.wgmma_group;
    sums[i] = pending->value.data();
  }
  wgmma(g.operands, tile, last.position.shared, sums);
}

void Scheduler::on_wgmma_commit() {
  const IgnoreAccesses ignore;
  Thread& t = *running_;
  const int agent = t.cta->warpgroups[index(t.position.thread / kWarpgroupThreads)].agent;
  t.wgmma_ticks[t.wgmma_group % kWgmmaGroupsKept] = agent < 0 ? 0 : t.cta->clocks.now(agent).tick;
  ++t.wgmma_group;
}

void Scheduler::on_wgmma_wait(int open_groups, Site site) {
  const IgnoreAccesses ignore;
  Thread& t = *running_;
  const int done = t.wgmma_group - open_groups;  // groups before this one
  const int agent = t.cta->warpgroups[index(t.position.thread / kWarpgroupThreads)].agent;
  if (agent >= 0 && done > 0) t.cta->clocks.learn(t.position.thread, agent, t.wgmma_ticks[(done - 1) % kWgmmaGroupsKept]);
  for (const PendingOperand& operand : t.operands) {
    if (operand.group >= done) continue;
    if (std::memcmp(operand.a, operand.value, sizeof operand.value) != 0) {
      fail(t, "a register operand of a wgmma was changed before the wgmma was waited for", site);
    }
  }
  std::erase_if(t.operands, [&](const PendingOperand& operand) { return operand.group < done; });
  for (const PendingSums& sums : t.sums) {
    if (sums.group < done) std::copy(sums.value.begin(), sums.value.end(), sums.d);
  }
  std::erase_if(t.sums, [&](const PendingSums& sums) { return sums.group < done; });
  t.wgmma_fenced = false;
}

}  // namespace w4moe::lockstep
