// The foreign function of one op and dtype on a GPU with the bits of the eager chain: checks the tensors, chooses the variant,
// launches it on the caller's stream. Kept apart from the kernels, so that both compile at the same time.

#include "calling.h"
#include "exact_arguments.h"

namespace kernwright {

int launch(const ExactProblem& p, const ExactVariant& v, int device, void* stream);

namespace {

bool run(ExactProblem* problem, DLDevice device) {
  if (problem->type != Type::KERNWRIGHT_TYPE) return false;
  if (is_empty(*problem)) return true;
  fold_batches(problem);
  part_into_frames(problem);
  launch_for_caller(device, [&](int own, void* stream) { return launch(*problem, choose_variant(*problem), own, stream); });
  return true;
}

#if KERNWRIGHT_RESIDUAL
bool call(ffi::TensorView x, ffi::TensorView residual, ffi::TensorView scale, ffi::TensorView shift, MaybeTensor gate,
          MaybeTensor weight, MaybeTensor bias, ffi::String norm_type, double eps, ffi::TensorView y, ffi::TensorView sum) {
  return each_exact(kDLCUDA, x, residual, scale, shift, gate, weight, bias, norm_type, eps, y, sum,
                    [&](ExactProblem* own) { return run(own, x.device()); });
}
#else
bool call(ffi::TensorView x, ffi::TensorView scale, ffi::TensorView shift, MaybeTensor weight, MaybeTensor bias,
          ffi::String norm_type, double eps, ffi::TensorView y) {
  return each_exact(kDLCUDA, x, {}, scale, shift, {}, weight, bias, norm_type, eps, y, {},
                    [&](ExactProblem* own) { return run(own, x.device()); });
}
#endif

}  // namespace
}  // namespace kernwright

#if KERNWRIGHT_RESIDUAL
TVM_FFI_DLL_EXPORT_TYPED_FUNC(residual_norm_scale_shift_exact, kernwright::call);
#else
TVM_FFI_DLL_EXPORT_TYPED_FUNC(norm_scale_shift_exact, kernwright::call);
#endif
