#pragma once

namespace w4moe::bench {

/// What a device reaches, which defines the floor: the larger of the times that reading the weights of the touched experts and
/// computing the products takes.
struct Roofs {
  double read_gbps = 0;  ///< 10^9 bytes a second
  double tflops = 0;     ///< 10^12 operations a second

  bool known() const { return read_gbps > 0 && tflops > 0; }
};

/// The H200's, measured (docs/benchmarks/README.md).
inline constexpr Roofs kH200Roofs{4617, 781};

}  // namespace w4moe::bench
