// Which kernel takes a sum of two and its norm: one of residual_norm_scale_shift's, see its policy.h, or the lean one in a shape
// of its own. Without gate and modulation its threads have fewer registers to keep, so more blocks are on a multiprocessor.

#pragma once

#include "norm_modulation/policy.h"

namespace kernwright {

// Times are for bfloat16 in place on an H200, by graph replay with a cold cache; the second is that of the other policy's shape.
constexpr LeanShape kSumShapes[] = {
    {2, 5, 8},  // 2560 wide, 512 tokens: 4.23 us, 4.27; 2048 wide, 8,192 tokens: 34.9, 35.2
    {2, 7, 5},  // 3584 wide, 1,024 tokens: 9.33 us, 9.43
};

// Returns the first of these shapes that takes no more threads than the variant, or -1 where the variant stays.
inline int sum_shape_of(const Problem& p, const Variant& v) {
  if (v.kind != Kind::kLean) return -1;
  const int64_t vectors = p.width / v.vector;
  for (int i = 0; i < static_cast<int>(std::size(kSumShapes)); ++i) {
    const LeanShape& shape = kSumShapes[i];
    const int lanes = 32 * shape.warps;
    if (lanes <= v.lanes && vectors <= lanes * shape.vectors && vectors > lanes * (shape.vectors - 1)) return i;
  }
  return -1;
}

inline std::string described_sum(const Problem& p, const Variant& v) {
  const int shape = sum_shape_of(p, v);
  if (shape < 0) return described(p, v);
  std::ostringstream out;
  out << "lean sum: vector " << v.vector << ", " << kSumShapes[shape].vectors << " a thread, "
      << 32 * kSumShapes[shape].warps << " threads";
  return out.str();
}

}  // namespace kernwright
