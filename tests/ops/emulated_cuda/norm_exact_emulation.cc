// exact_kernel.cu on a CPU, behind the same checks and the same choice of a variant as on a GPU.

#pragma GCC optimize("O0")  // what it compiles runs for milliseconds

#include <cuda_runtime.h>

#include "exact_kernel.cu"

#include <set>

#include "exact_arguments.h"

namespace kernwright {

std::set<int>& chosen_shapes() {
  static std::set<int> found;
  return found;
}

std::string& latest() {
  static std::string words;
  return words;
}

// Answers whether it took the call. Nothing is computed if it `only_chooses`.
bool run(ffi::TensorView x, MaybeTensor residual, ffi::TensorView scale, ffi::TensorView shift, MaybeTensor gate,
         MaybeTensor weight, MaybeTensor bias, ffi::String norm_type, double eps, ffi::TensorView y, MaybeTensor sum,
         bool only_chooses) {
  ExactProblem problem;
  if (!read_exact(&problem, kDLCPU, x, residual, scale, shift, gate, weight, bias, norm_type, eps, y, sum)) return false;
  if (problem.type != kType || problem.has_residual != kResidual) return false;
  if (problem.batches * problem.tokens * problem.width == 0) return true;
  fold_batches(&problem);
  part_into_frames(&problem);
  const ExactVariant variant = choose_variant(problem);
  chosen_shapes().insert(variant.shape);
  latest() = described(problem, variant);
  return only_chooses || launch(problem, variant, 0, nullptr) == 0;
}

// Of the latest call, in words.
ffi::String variant() { return latest(); }

// How many of the compiled shapes no call so far came by.
int64_t shapes_left() {
  int64_t left = 0;
  for (int shape = 0; shape < exact_shapes_of(kType, kResidual).count; ++shape) left += !chosen_shapes().count(shape);
  return left;
}

}  // namespace kernwright

TVM_FFI_DLL_EXPORT_TYPED_FUNC(run, kernwright::run);
TVM_FFI_DLL_EXPORT_TYPED_FUNC(variant, kernwright::variant);
TVM_FFI_DLL_EXPORT_TYPED_FUNC(shapes_left, kernwright::shapes_left);
