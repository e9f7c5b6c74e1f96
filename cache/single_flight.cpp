#include "cache/single_flight.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <chrono>
#include <exception>

namespace w4moe::cache {
namespace {

Error internal(std::string message) { return Error{ErrorCode::internal, std::move(message)}; }

// Runs `build` and holds it to the name that was asked for: a wrong entry must never be stored.
Result<Entry> checked_build(const EntryName& name, const BuildFn& build) {
  Result<Entry> built = build();
  if (!built) return built;
  if (!built->payload || built->payload->empty()) return internal("the build gave an empty kernel");
  const EntryName found = built->name();
  if (found.key != name.key || !valid_builder(found.builder) ||
      (!name.builder.empty() && found.builder != name.builder))
    return internal(fmt::format("asked for kernel {} by '{}', the build gave {} by '{}'", name.key.short_hex(),
                                name.builder, found.key.short_hex(), found.builder));
  return built;
}

Result<Entry> guarded(const std::function<Result<Entry>()>& run) {
  try {
    return run();
  } catch (const std::exception& e) {
    return internal(fmt::format("the build threw: {}", e.what()));
  } catch (...) {
    return internal("the build threw something that is not a std::exception");
  }
}

}  // namespace

Result<Entry> SingleFlight::get_or_build(const EntryName& name, const BuildFn& build) {
  if (auto hit = store_.find(name)) return *hit;
  std::shared_ptr<Flight> flight;
  {
    std::unique_lock lock(mutex_);
    std::shared_ptr<Flight>& slot = flights_[name];
    if (slot && slot->pid == ::getpid()) {
      flight = slot;
      landed_.wait(lock, [&] { return flight->result.has_value(); });
      return *flight->result;
    }
    flight = slot = std::make_shared<Flight>(Flight{::getpid(), {}});
  }
  Result<Entry> result = guarded([&] { return build_locked(name, build); });
  {
    const std::lock_guard lock(mutex_);
    flight->result = result;
    flights_.erase(name);
  }
  landed_.notify_all();
  return result;
}

Result<Entry> SingleFlight::build_locked(const EntryName& name, const BuildFn& build) {
  const BuildLock lock = store_.disk() ? store_.disk()->lock_for_build(name.key, wait_) : BuildLock();
  // Another thread or process may have finished between the first look and the lock.
  if (auto hit = store_.find(name)) return *hit;
  SharedStats& stats = store_.stats();
  stats.add(&Stats::miss);
  const auto start = std::chrono::steady_clock::now();
  Result<Entry> built = guarded([&] { return checked_build(name, build); });
  const auto took = std::chrono::steady_clock::now() - start;
  stats.add(built ? &Stats::compile : &Stats::compile_failed);
  stats.add(&Stats::compile_ms,
            static_cast<std::uint64_t>(std::chrono::duration_cast<std::chrono::milliseconds>(took).count()));
  if (built) store_.put(*built);
  return built;
}

}  // namespace w4moe::cache
