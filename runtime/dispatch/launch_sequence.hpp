// The launches of one run, as data: a pure function of the plan, the bucket and the pointers. What submits them (the CUDA driver,
// a host model of it) is elsewhere. Nothing here allocates.
#pragma once

#include <array>
#include <cstddef>

#include "w4moe/plan.hpp"
#include "w4moe/run_args.hpp"

namespace w4moe {

/// The largest argument struct; a static_assert in the source holds it to args.h.
inline constexpr std::size_t kMaxArgsBytes = 192;

struct Launch {
  int kernel = -1;        ///< index into Plan::kernels
  u32 grid_x = 1;         ///< grids and CTAs are one-dimensional
  u32 threads = 1;
  u32 shared_bytes = 0;   ///< dynamic
  bool pdl = false;       ///< programmatic dependent launch on the kernel before it in the stream
  u32 args_bytes = 0;
  alignas(16) std::array<std::byte, kMaxArgsBytes> args{};  ///< the kernel's argument struct

  template <class Args>
  void set_args(const Args& value);
};

/// Up to five launches, in stream order.
class LaunchSequence {
 public:
  Launch& add() { return launches_[count_++]; }
  const Launch* begin() const { return launches_.data(); }
  const Launch* end() const { return launches_.data() + count_; }
  std::size_t size() const { return count_; }
  const Launch& operator[](std::size_t i) const { return launches_[i]; }

 private:
  std::array<Launch, 5> launches_;
  std::size_t count_ = 0;
};

/// Indices into Plan::kernels of what a bucket launches, in order: Plan::launched_by without its allocation.
struct LaunchedKernels {
  std::array<int, 5> indices{};
  std::size_t count = 0;

  const int* begin() const { return indices.data(); }
  const int* end() const { return indices.data() + count; }
};
LaunchedKernels launched_kernels(const Plan& plan, const Bucket& bucket);

/// CTAs of the launch of kernel `index` for `tokens` tokens in `bucket`. May exceed what a grid holds: check_grids() tells.
i64 grid_ctas(const Plan& plan, const Bucket& bucket, int index, i64 tokens);

/// The launches for args.tokens >= 1 tokens in the bucket that serves them. `weights` and `scratch` are bound memory of the
/// plan's layouts; args have passed check_run. Strides of 0 are filled in.
LaunchSequence make_launches(const Plan& plan, const Bucket& bucket, const void* weights, void* scratch, const RunArgs& args);

}  // namespace w4moe
