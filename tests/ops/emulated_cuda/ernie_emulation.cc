// ERNIE's norm_kernel.cu on a CPU, behind the same checks and the same choice of a variant as on a GPU, but for the size from
// which a call counts as large.

#pragma GCC optimize("O0")  // what it compiles runs for milliseconds

#include <cuda_runtime.h>

#include "norm_kernel.cu"

#include "norm_arguments.h"

namespace kernwright {

bool run(ffi::TensorView x, MaybeTensor update, MaybeTensor gate, ffi::TensorView weight, ffi::TensorView scale,
         ffi::TensorView shift, double eps, ffi::TensorView y, MaybeTensor sum) {
  return each(kDLCPU, x, update, gate, weight, scale, shift, eps, y, sum, [](Problem* problem) {
    if (problem->type != Type::KERNWRIGHT_TYPE) return false;
    if (is_empty(*problem)) return true;
    fold_batches(problem);
    return launch(*problem, choose_variant(*problem), 0, nullptr) == 0;
  });
}

bool ernie_norm_modulate(ffi::TensorView x, ffi::TensorView weight, ffi::TensorView scale, ffi::TensorView shift,
                         double eps, ffi::TensorView y) {
  return run(x, {}, {}, weight, scale, shift, eps, y, {});
}

bool ernie_residual_norm_modulate(ffi::TensorView residual, ffi::TensorView update, ffi::TensorView gate,
                                  ffi::TensorView weight, ffi::TensorView scale, ffi::TensorView shift, double eps,
                                  ffi::TensorView sum, ffi::TensorView y) {
  return run(residual, update, gate, weight, scale, shift, eps, y, sum);
}

}  // namespace kernwright

TVM_FFI_DLL_EXPORT_TYPED_FUNC(ernie_norm_modulate, kernwright::ernie_norm_modulate);
TVM_FFI_DLL_EXPORT_TYPED_FUNC(ernie_residual_norm_modulate, kernwright::ernie_residual_norm_modulate);
