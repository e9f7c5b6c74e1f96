#include "runtime/module/kernel_table.hpp"

#include <algorithm>

#include "generator/problem/errors.hpp"

namespace w4moe {

const KernelTable::Slot* KernelTable::find_slot(const Variant& variant, unsigned long long context_id) const {
  const auto it = std::find_if(slots_.begin(), slots_.end(), [&](const Slot& s) { return s.context_id == context_id && s.variant == variant; });
  return it == slots_.end() ? nullptr : &*it;
}

KernelTable::Slot* KernelTable::find_slot(const Variant& variant, unsigned long long context_id) {
  return const_cast<Slot*>(std::as_const(*this).find_slot(variant, context_id));
}

std::optional<KernelTable::Kernels> KernelTable::find(const Plan& plan, unsigned long long context_id) const {
  Kernels kernels;
  const std::lock_guard lock(mutex_);
  for (const PlannedKernel& planned : plan.kernels) {
    const Slot* slot = find_slot(planned.variant, context_id);
    if (slot == nullptr) return std::nullopt;
    kernels.push_back(slot->kernel);
  }
  return kernels;
}

std::optional<std::vector<KernelReport>> KernelTable::hold(const Plan& plan, unsigned long long context_id) {
  const std::lock_guard lock(mutex_);
  std::vector<Slot*> slots;
  for (const PlannedKernel& planned : plan.kernels) {
    slots.push_back(find_slot(planned.variant, context_id));
    if (slots.back() == nullptr) return std::nullopt;
  }
  std::vector<KernelReport> reports;
  for (Slot* slot : slots) {
    ++slot->holds;
    reports.push_back(slot->report);
  }
  return reports;
}

Result<std::shared_ptr<const LoadedKernel>> KernelTable::load_one(const driver::DriverTable& table, const Variant& variant,
                                                                  const driver::CurrentContext& context, const BuiltKernel& built) const {
  // A library serves every context of the process: the second context resolves its function from it.
  const auto other = std::find_if(slots_.begin(), slots_.end(), [&](const Slot& s) { return s.variant == variant; });
  if (other != slots_.end()) return resolve_function(other->kernel->library, context);
  auto library = KernelLibrary::load(table, variant, *built.cubin, built.report.builder);
  if (!library) return library.error();
  return resolve_function(*library, context);
}

Status KernelTable::load(const driver::DriverTable& table, const Plan& plan, const driver::CurrentContext& context, std::span<const BuiltKernel> built,
                         std::span<const std::size_t> index_of) {
  const std::lock_guard lock(mutex_);
  std::vector<Slot> added;
  for (std::size_t i = 0; i < plan.kernels.size(); ++i) {
    const Variant& variant = plan.kernels[i].variant;
    if (find_slot(variant, context.id) != nullptr) continue;
    const BuiltKernel& kernel = built[index_of[i]];
    auto loaded = load_one(table, variant, context, kernel);
    if (!loaded) return loaded.error();
    added.push_back(Slot{context.id, variant, std::move(*loaded), kernel.report, 0});
    added.back().report.hit = true;  // what later builds report
    added.back().report.compile_ms = 0;
  }
  slots_.insert(slots_.end(), std::make_move_iterator(added.begin()), std::make_move_iterator(added.end()));
  for (const PlannedKernel& planned : plan.kernels) ++find_slot(planned.variant, context.id)->holds;
  return {};
}

Status KernelTable::release(const Plan& plan, unsigned long long context_id) {
  std::vector<Slot> dropped;  // unloaded after the lock is released: the driver may wait for running kernels
  const std::lock_guard lock(mutex_);
  for (const PlannedKernel& planned : plan.kernels) {
    if (find_slot(planned.variant, context_id) == nullptr) {
      return Error{ErrorCode::not_prepared, fmt::format("kernel {} is not loaded in the current context: no build() of this plan is left to unload", planned.name)};
    }
  }
  for (const PlannedKernel& planned : plan.kernels) --find_slot(planned.variant, context_id)->holds;
  const auto gone = std::partition(slots_.begin(), slots_.end(), [](const Slot& s) { return s.holds > 0; });
  std::move(gone, slots_.end(), std::back_inserter(dropped));
  slots_.erase(gone, slots_.end());
  return {};
}

void KernelTable::clear() {
  std::vector<Slot> dropped;
  const std::lock_guard lock(mutex_);
  dropped.swap(slots_);
}

}  // namespace w4moe
