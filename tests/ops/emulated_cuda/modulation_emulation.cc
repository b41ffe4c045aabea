// The cuda_kernel.cu of scale_shift and its kin on a CPU, behind the same checks and the same folds as on a GPU.

#pragma GCC optimize("O0")  // what it compiles runs for milliseconds

#include <cuda_runtime.h>

#include <set>

#include "cuda_kernel.cu"

#include "arguments.h"

namespace kernwright {

std::set<FlatKernel>& reached() {
  static std::set<FlatKernel> kernels;
  return kernels;
}

// The compiled kernels for dense tokens that no call so far came by, a line each.
ffi::String kernels_left() {
  std::string lines;
  Problem of;
  of.type = kType, of.result = kResult;
  for (int pair = 0; pair < kPairs; ++pair)
    for (const bool is_ragged : {false, true}) {
      const FlatVariant v{pair, is_ragged};
      if (!reached().count(flat_kernel_of(v))) lines += described(of, v) + "\n";
    }
  return lines;
}

bool run(Problem* problem) {
  if (problem->type != kType || problem->result != kResult) return false;
  if (is_empty(*problem)) return true;
  fold_batches(problem);
  part_into_frames(problem);
  const Variant variant = choose_variant(*problem, 1);
  if (variant.flat.pair >= 0) reached().insert(flat_kernel_of(variant.flat));
  return launch_here(*problem, variant, nullptr) == cudaSuccess;
}

// As residual_gate, but only the result is rounded.
bool late_residual_gate(ffi::TensorView residual, ffi::TensorView update, ffi::TensorView gate, ffi::TensorView out) {
  Problem problem;
  if (!read_residual_gate(&problem, kDLCPU, residual, update, gate, out)) return false;
  problem.is_product_rounded = false;
  return run(&problem);
}

bool scale_shift(ffi::TensorView x, ffi::TensorView scale, ffi::TensorView shift, double scale_constant,
                 ffi::TensorView y) {
  return each_scale_shift(kDLCPU, x, scale, shift, scale_constant, y, run);
}

bool residual_gate(ffi::TensorView residual, ffi::TensorView update, ffi::TensorView gate, ffi::TensorView out) {
  return each_residual_gate(kDLCPU, residual, update, gate, out, run);
}

bool ernie_residual_gate(ffi::TensorView residual, ffi::TensorView update, ffi::TensorView gate, ffi::TensorView out) {
  return each_ernie_residual_gate(kDLCPU, residual, update, gate, out, run);
}

bool broadcast_add(ffi::TensorView a, ffi::TensorView b, ffi::TensorView out) {
  return each_broadcast_add(kDLCPU, a, b, out, run);
}

}  // namespace kernwright

TVM_FFI_DLL_EXPORT_TYPED_FUNC(late_residual_gate, kernwright::late_residual_gate);
TVM_FFI_DLL_EXPORT_TYPED_FUNC(kernels_left, kernwright::kernels_left);
TVM_FFI_DLL_EXPORT_TYPED_FUNC(scale_shift, kernwright::scale_shift);
TVM_FFI_DLL_EXPORT_TYPED_FUNC(residual_gate, kernwright::residual_gate);
TVM_FFI_DLL_EXPORT_TYPED_FUNC(broadcast_add, kernwright::broadcast_add);
TVM_FFI_DLL_EXPORT_TYPED_FUNC(ernie_residual_gate, kernwright::ernie_residual_gate);
