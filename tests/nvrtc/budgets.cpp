#include "tests/nvrtc/budgets.hpp"

#include <cstdlib>
#include <fstream>

#include <nlohmann/json.hpp>

namespace w4moe::test {

Budgets::Budgets() : recording_(std::getenv("W4MOE_UPDATE_GOLDEN") != nullptr) {
  std::ifstream in(W4MOE_BUDGETS);
  if (!in) return;
  const nlohmann::json file = nlohmann::json::parse(in);
  nvrtc_ = file.at("nvrtc").get<std::string>();
  for (const auto& [name, budget] : file.at("kernels").items())
    all_[name] = Budget{budget.at("registers").get<int>(), budget.value("spill_bytes", std::int64_t{0})};
}

const Budget* Budgets::find(const std::string& name) const {
  const auto it = all_.find(name);
  return it == all_.end() ? nullptr : &it->second;
}

void Budgets::record(const std::string& nvrtc, const std::string& name, Budget budget) {
  nvrtc_ = nvrtc;
  all_[name] = budget;
  changed_ = true;
}

void Budgets::save() const {
  if (!changed_) return;
  nlohmann::json kernels = nlohmann::json::object();
  for (const auto& [name, budget] : all_) {
    kernels[name] = {{"registers", budget.registers}};
    if (budget.spill_bytes > 0) kernels[name]["spill_bytes"] = budget.spill_bytes;
  }
  const nlohmann::json file = {{"nvrtc", nvrtc_}, {"kernels", kernels}};
  std::ofstream(W4MOE_BUDGETS) << file.dump(1) << '\n';
}

}  // namespace w4moe::test
