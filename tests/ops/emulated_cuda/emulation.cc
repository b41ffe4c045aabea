// cuda_kernel.cu on a CPU, behind the same checks and the same choice of a variant as on a GPU.

#include <cuda_runtime.h>

#include "cuda_kernel.cu"

#include "arguments.h"

KERNWRIGHT_EMULATE(kernwright::Problem)

namespace kernwright {

bool run(ffi::TensorView x, MaybeTensor residual, ffi::TensorView scale, ffi::TensorView shift, MaybeTensor gate,
         MaybeTensor weight, MaybeTensor bias, ffi::String norm_type, double eps, ffi::TensorView y, MaybeTensor sum) {
  Problem problem;
  if (!read(&problem, kDLCPU, x, residual, scale, shift, gate, weight, bias, norm_type, eps, y, sum)) return false;
  if (problem.batches * problem.tokens * problem.width == 0) return true;
  fold_batches(&problem);
  launch(problem, choose_variant(problem), 0, nullptr);
  return true;
}

}  // namespace kernwright

TVM_FFI_DLL_EXPORT_TYPED_FUNC(run, kernwright::run);
