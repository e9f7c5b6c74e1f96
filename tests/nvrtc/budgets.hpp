// What the kernels of the matrix may take, as recorded in tests/golden/budgets.json.
#pragma once

#include <cstdint>
#include <map>
#include <string>

namespace w4moe::test {

struct Budget {
  int registers = 0;
  std::int64_t spill_bytes = 0;  ///< 0 is the rule, and not written; a number is a debt that must not grow
};

/// The recorded budgets. W4MOE_UPDATE_GOLDEN=1 records instead of comparing: run the program by hand, as one process.
class Budgets {
 public:
  Budgets();

  /// Release of NVRTC that the registers were counted with; another one allocates them a little differently.
  const std::string& nvrtc() const { return nvrtc_; }
  const Budget* find(const std::string& name) const;
  const std::map<std::string, Budget>& all() const { return all_; }
  bool recording() const { return recording_; }
  void record(const std::string& nvrtc, const std::string& name, Budget budget);
  /// Adds what was recorded to the file; nothing where nothing was. To drop old names, delete the file and record all.
  void save() const;

 private:
  std::string nvrtc_;
  std::map<std::string, Budget> all_;
  bool recording_ = false;
  bool changed_ = false;
};

}  // namespace w4moe::test
