// norm_tanh's cuda_kernel.cu on a CPU, behind the same checks and the same choice of a variant as on a GPU, but for the size
// from which a call counts as large.

#pragma GCC optimize("O1")  // what it compiles runs for milliseconds

#include <cuda_runtime.h>

#include "cuda_kernel.cu"

#include "arguments.h"
#include "token_emulation.h"

namespace kernwright {

// Answers in words what it ran: "none" if it did not take the call. Nothing is computed if it `only_chooses`.
ffi::String run(ffi::TensorView x, ffi::TensorView scale, ffi::TensorView shift, MaybeTensor scale2, MaybeTensor weight,
         MaybeTensor bias, MaybeTensor weight2, MaybeTensor bias2, ffi::String norm_type, double eps, ffi::TensorView y,
         MaybeTensor y2, bool only_chooses) {
  std::string ran = "none";
  each(kDLCPU, x, scale, shift, scale2, weight, bias, weight2, bias2, norm_type, eps, y, y2, [&](Problem* problem) {
    if (is_empty(*problem)) return ran = "nothing", true;
    part(problem);
    const TokenVariant variant = chosen<Family>(choose_variant(*problem));
    if (!only_chooses) launch(*problem, variant, 0, nullptr);
    return ran = described(variant, Family::kShapes), true;
  });
  return ran;
}

ffi::String kernels_left() { return left<Family>(); }

}  // namespace kernwright

TVM_FFI_DLL_EXPORT_TYPED_FUNC(run, kernwright::run);
TVM_FFI_DLL_EXPORT_TYPED_FUNC(kernels_left, kernwright::kernels_left);
