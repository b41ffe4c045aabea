// A call of a norm with scale and shift, behind a residual or not: its arguments as tests give them to an emulation.

#pragma once

#include "arguments.h"

namespace kernwright {

// Answers whether it took the call, which is read and parted as on a GPU: `Kernels::each` makes problems of it, and
// `Kernels::run` runs them. Nothing is computed if it `only_chooses`.
template <typename Kernels>
bool call_norm(ffi::TensorView x, MaybeTensor residual, ffi::TensorView scale, ffi::TensorView shift, MaybeTensor gate,
               MaybeTensor weight, MaybeTensor bias, ffi::String norm_type, double eps, ffi::TensorView y,
               MaybeTensor sum, bool only_chooses) {
  return Kernels::each(kDLCPU, x, residual, scale, shift, gate, weight, bias, norm_type, eps, y, sum, [&](auto* problem) {
    if (is_empty(*problem)) return true;
    fold_batches(problem);
    part_into_frames(problem);
    return Kernels::run(*problem, only_chooses);
  });
}

}  // namespace kernwright
