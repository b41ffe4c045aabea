// The foreign function of one of ERNIE's norms and one dtype on a GPU: checks the tensors, chooses the variant, launches it
// on the caller's stream. Kept apart from the kernels, so that both compile at the same time.

#include <tvm/ffi/extra/c_env_api.h>

#include "norm_arguments.h"

namespace kernwright {

int launch(const Problem& p, const TokenVariant& v, int device, void* stream);
const char* error_text(int error);

namespace {

bool run(Problem* problem, DLDevice device) {
  if (problem->type != Type::KERNWRIGHT_TYPE) return false;
  if (problem->batches * problem->tokens * problem->width == 0) return true;
  fold_batches(problem);
  void* stream = TVMFFIEnvGetStream(device.device_type, device.device_id);
  if (const int error = launch(*problem, choose_variant(*problem), device.device_id, stream))
    TVM_FFI_THROW(RuntimeError) << "the launch failed: " << error_text(error);
  return true;
}

#if KERNWRIGHT_RESIDUAL
bool ernie_residual_norm_modulate(ffi::TensorView residual, ffi::TensorView update, ffi::TensorView gate,
                                  ffi::TensorView weight, ffi::TensorView scale, ffi::TensorView shift, double eps,
                                  ffi::TensorView sum, ffi::TensorView y) {
  Problem problem;
  return read(&problem, kDLCUDA, residual, update, gate, weight, scale, shift, eps, y, sum) &&
         run(&problem, residual.device());
}
#else
bool ernie_norm_modulate(ffi::TensorView x, ffi::TensorView weight, ffi::TensorView scale, ffi::TensorView shift,
                         double eps, ffi::TensorView y) {
  Problem problem;
  return read(&problem, kDLCUDA, x, {}, {}, weight, scale, shift, eps, y, {}) && run(&problem, x.device());
}
#endif

}  // namespace
}  // namespace kernwright

#if KERNWRIGHT_RESIDUAL
TVM_FFI_DLL_EXPORT_TYPED_FUNC(ernie_residual_norm_modulate, kernwright::ernie_residual_norm_modulate);
#else
TVM_FFI_DLL_EXPORT_TYPED_FUNC(ernie_norm_modulate, kernwright::ernie_norm_modulate);
#endif
