// select_kernel.cu on a CPU, behind the same checks and the same choice of a variant as on a GPU, but for the size from which
// a call counts as large.

#pragma GCC optimize("O1")  // what it compiles runs for milliseconds

#include <cuda_runtime.h>

#include "select_kernel.cu"

#include "select_arguments.h"
#include "token_emulation.h"

namespace kernwright {

// Answers in words what it ran: "none" if it did not take the call. Nothing is computed if it `only_chooses`.
ffi::String run(ffi::TensorView x, MaybeTensor residual, MaybeTensor residual_gate, ffi::TensorView scale0, ffi::TensorView shift0,
         ffi::TensorView gate0, ffi::TensorView scale1, ffi::TensorView shift1, ffi::TensorView gate1, ffi::TensorView index,
         MaybeTensor weight, MaybeTensor bias, double eps, ffi::TensorView y, MaybeTensor sum, ffi::TensorView gate,
         bool only_chooses) {
  Problem problem;
  const Sets sets{scale0, shift0, gate0, scale1, shift1, gate1};
  if (!read(&problem, kDLCPU, x, residual, residual_gate, sets, index, weight, bias, eps, y, sum, gate)) return "none";
  if (is_empty(problem)) return "nothing";
  part(&problem);
  const TokenVariant variant = chosen<Family>(choose_variant<kResidual>(problem));
  if (!only_chooses) launch(problem, variant, 0, nullptr);
  return described(variant, Family::kShapes);
}

ffi::String kernels_left() { return left<Family>(); }

}  // namespace kernwright

TVM_FFI_DLL_EXPORT_TYPED_FUNC(run, kernwright::run);
TVM_FFI_DLL_EXPORT_TYPED_FUNC(kernels_left, kernwright::kernels_left);
