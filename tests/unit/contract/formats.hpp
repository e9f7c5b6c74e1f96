// Every format that the contract knows, for property tests.
#pragma once

#include <vector>

#include "contract/quant.h"

namespace w4moe::test {

inline std::vector<QuantFormat> all_formats() {
  std::vector<QuantFormat> formats{kMxfp4, kMxfp4Wide, kNvfp4};
  for (const i64 group : {i64{32}, i64{64}, i64{128}, kWholeRow}) {
    for (const ScaleType scale : {ScaleType::bf16, ScaleType::f16}) {
      for (const bool zero_point : {false, true}) formats.push_back({CodeType::u4, scale, group, zero_point, false});
    }
  }
  return formats;
}

}  // namespace w4moe::test
