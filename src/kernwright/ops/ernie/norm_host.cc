// The foreign function of one of ERNIE's norms and one dtype on a GPU: checks the tensors, chooses the variant, launches it
// on the caller's stream. Kept apart from the kernels, so that both compile at the same time.

#include "calling.h"
#include "norm_arguments.h"

namespace kernwright {

int launch(const Problem& p, const TokenVariant& v, int device, void* stream);

namespace {

bool run(Problem* problem, DLDevice device) {
  if (problem->type != Type::KERNWRIGHT_TYPE) return false;
  if (is_empty(*problem)) return true;
  fold_batches(problem);
  launch_for_caller(device, [&](int own, void* stream) { return launch(*problem, choose_variant(*problem), own, stream); });
  return true;
}

#if KERNWRIGHT_RESIDUAL
bool ernie_residual_norm_modulate(ffi::TensorView residual, ffi::TensorView update, ffi::TensorView gate,
                                  ffi::TensorView weight, ffi::TensorView scale, ffi::TensorView shift, double eps,
                                  ffi::TensorView sum, ffi::TensorView y) {
  return each(kDLCUDA, residual, update, gate, weight, scale, shift, eps, y, sum,
              [&](Problem* own) { return run(own, residual.device()); });
}
#else
bool ernie_norm_modulate(ffi::TensorView x, ffi::TensorView weight, ffi::TensorView scale, ffi::TensorView shift,
                         double eps, ffi::TensorView y) {
  return each(kDLCUDA, x, {}, {}, weight, scale, shift, eps, y, {}, [&](Problem* own) { return run(own, x.device()); });
}
#endif

}  // namespace
}  // namespace kernwright

#if KERNWRIGHT_RESIDUAL
TVM_FFI_DLL_EXPORT_TYPED_FUNC(ernie_residual_norm_modulate, kernwright::ernie_residual_norm_modulate);
#else
TVM_FFI_DLL_EXPORT_TYPED_FUNC(ernie_norm_modulate, kernwright::ernie_norm_modulate);
#endif
