// Devices at hand, and which one a run takes.
#pragma once

#include <string>
#include <vector>

#include "runtime/driver/driver_api.hpp"
#include "w4moe/device.hpp"

namespace w4moe::cli {

/// What the driver tells of this machine; never an error.
struct Machine {
  const driver::DriverTable* driver = nullptr;  ///< null where there is none
  std::string driver_version;                   ///< "13.0": the CUDA release that it serves
  std::string why;                              ///< why there is no driver or no device
  struct Gpu {
    std::string name;
    std::string capability;                     ///< "9.0"
    Result<DeviceSpec> spec;
  };
  std::vector<Gpu> gpus;
};

Machine look_at_machine();

enum class DeviceKind { cpu, lockstep, cuda };

struct DeviceChoice {
  DeviceKind kind = DeviceKind::cpu;
  int ordinal = 0;
  std::string name;  ///< "cpu", "lockstep", "cuda:0"
  std::string why;   ///< where the choice was left to us: why it is no GPU
};

/// "cpu", "lockstep", "cuda", "cuda:N"; empty: the first GPU, else the CPU.
Result<DeviceChoice> choose_device(const std::string& wish);

}  // namespace w4moe::cli
