#include "generator/plan/pins.hpp"

#include <string_view>

#include "generator/problem/errors.hpp"
#include "w4moe/plan.hpp"

namespace w4moe {
namespace {

const std::string kNoPortable = fmt::format("no-{}", kPortableFamily);
const std::string kNoWgmma = fmt::format("no-{}", kWgmmaFamily);
constexpr std::string_view kNoTail = "no-tail";
constexpr std::string_view kNoDirect = "no-direct";

std::string join(const std::vector<std::string>& words) { return fmt::format("{}", fmt::join(words, ", ")); }

const TileRule* find_block(std::string_view pin) {
  for (const TileRule& rule : kPortableRules) {
    if (rule.pin == pin) return &rule;
  }
  for (const TileRule& rule : kWgmmaRules) {
    if (rule.pin == pin) return &rule;
  }
  return nullptr;
}

}  // namespace

const std::vector<std::string>& known_pins() {
  static const std::vector<std::string> pins = [] {
    std::vector<std::string> all{std::string(kPortableFamily), kNoPortable, std::string(kWgmmaFamily), kNoWgmma};
    for (const TileRule& rule : kPortableRules) all.emplace_back(rule.pin);
    for (const WgmmaChoice& choice : kWgmmaTiles) all.emplace_back(choice.pin);
    all.emplace_back(kNoDirect);
    all.emplace_back(kNoTail);
    all.emplace_back(kBatchInvariantPin);
    return all;
  }();
  return pins;
}

Result<Pins> parse_pins(const std::vector<std::string>& pins) {
  Pins parsed;
  for (const std::string& pin : pins) {
    if (pin == kNoTail) {
      parsed.no_tail = true;
    } else if (pin == kNoDirect) {
      parsed.no_direct = true;
    } else if (pin == kBatchInvariantPin) {
      parsed.batch_invariant = true;
    } else if (pin == kPortableFamily || pin == kNoWgmma) {
      parsed.wgmma = false;
    } else if (pin == kWgmmaFamily || pin == kNoPortable) {
      parsed.portable = false;
    } else if (const TileRule* block = find_block(pin); block == nullptr) {
      return invalid_argument("pin '{}' is unknown (accepted: {})", pin, join(known_pins()));
    } else if (parsed.block != nullptr && parsed.block != block) {
      return invalid_argument("pins '{}' and '{}' contradict each other: one block width serves every m", parsed.block->pin, pin);
    } else {
      parsed.block = block;
    }
  }
  if (!parsed.portable && !parsed.wgmma) {
    return unsupported("pins {}: no kernel family is left (families: {}, {})", join(pins), kPortableFamily, kWgmmaFamily);
  }
  if (parsed.block != nullptr && !(parsed.block->family == Family::wgmma ? parsed.wgmma : parsed.portable)) {
    return invalid_argument("pins {}: '{}' is a block width of a family that another pin forbids", join(pins), parsed.block->pin);
  }
  return parsed;
}

}  // namespace w4moe
