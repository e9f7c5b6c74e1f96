#include "runtime/lockstep/separate_blocks.hpp"

#include <cstdlib>
#include <cstring>
#include <new>

#include "runtime/lockstep/fiber.hpp"

namespace w4moe::lockstep {

void SeparateBlocks::Free::operator()(unsigned char* p) const { std::free(p); }

SeparateBlocks::SeparateBlocks([[maybe_unused]] const Plan& plan, [[maybe_unused]] const void* weights, [[maybe_unused]] void* scratch) {
#if defined(W4MOE_LOCKSTEP_ASAN)
  auto* const packed = const_cast<unsigned char*>(static_cast<const unsigned char*>(weights));  // only read
  const WeightLayout& layout = plan.weights;
  add(packed + layout.fc1_offset_bytes(), layout.fc1().total_bytes(), false);
  add(packed + layout.fc2_offset_bytes(), layout.fc2().total_bytes(), false);
  add(packed + layout.globals_offset_bytes(), layout.globals_bytes(), false);
  add(packed + layout.fc1_bias_offset_bytes(), layout.fc1_bias_bytes(), false);
  add(packed + layout.fc2_bias_offset_bytes(), layout.fc2_bias_bytes(), false);
  for (const PlannedRegion& region : plan.regions) add(static_cast<unsigned char*>(scratch) + region.offset_bytes, region.bytes, true);
#endif
}

void SeparateBlocks::add(unsigned char* part, std::int64_t bytes, bool is_scratch) {
  if (bytes == 0) return;
  void* copy = nullptr;
  if (posix_memalign(&copy, 256, static_cast<std::size_t>(bytes)) != 0) throw std::bad_alloc();
  std::memcpy(copy, part, static_cast<std::size_t>(bytes));
  blocks_.push_back({part, bytes, is_scratch, std::unique_ptr<unsigned char, Free>(static_cast<unsigned char*>(copy))});
}

void SeparateBlocks::redirect(w4moe::Launch& launch) const {
  for (std::size_t at = 0; at + sizeof(void*) <= launch.args_bytes; at += sizeof(void*)) {
    unsigned char* pointer = nullptr;
    std::memcpy(&pointer, launch.args.data() + at, sizeof pointer);
    for (const Block& block : blocks_) {
      if (pointer != block.part) continue;
      unsigned char* const to = block.copy.get();
      std::memcpy(launch.args.data() + at, &to, sizeof to);
    }
  }
}

void SeparateBlocks::write_back() const {
  for (const Block& block : blocks_) {
    if (block.is_scratch) std::memcpy(block.part, block.copy.get(), static_cast<std::size_t>(block.bytes));
  }
}

}  // namespace w4moe::lockstep
