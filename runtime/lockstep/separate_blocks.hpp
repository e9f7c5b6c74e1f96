// Under AddressSanitizer: every part of the packed weights and every region of the scratch in a heap block of its own, of its exact size,
// so that one byte past any of them is an error. Without it, nothing.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "runtime/dispatch/launch_sequence.hpp"
#include "w4moe/plan.hpp"

namespace w4moe::lockstep {

/// Stands for the memory of a binding while a run's launches are made and executed.
class SeparateBlocks {
 public:
  /// Copies what lies in the parts.
  SeparateBlocks(const Plan& plan, const void* weights, void* scratch);
  SeparateBlocks(const SeparateBlocks&) = delete;
  SeparateBlocks& operator=(const SeparateBlocks&) = delete;

  /// Lets the launch's pointers point to the blocks. They are those that make_launches() sets: to the first byte of a part.
  void redirect(w4moe::Launch& launch) const;
  /// Copies the regions of the scratch back.
  void write_back() const;

 private:
  struct Free {
    void operator()(unsigned char* p) const;
  };
  struct Block {
    unsigned char* part = nullptr;
    std::int64_t bytes = 0;
    bool is_scratch = false;
    std::unique_ptr<unsigned char, Free> copy;
  };
  void add(unsigned char* part, std::int64_t bytes, bool is_scratch);

  std::vector<Block> blocks_;
};

}  // namespace w4moe::lockstep
