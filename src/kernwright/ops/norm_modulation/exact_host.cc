// The foreign function of one op and dtype on a GPU with the bits of the eager chain: checks the tensors, chooses the variant,
// launches it on the caller's stream. Kept apart from the kernels, so that both compile at the same time.

#include <tvm/ffi/extra/c_env_api.h>

#include "exact_arguments.h"

namespace kernwright {

int launch(const ExactProblem& p, const ExactVariant& v, int device, void* stream);
const char* error_text(int error);

namespace {

bool run(ExactProblem* problem, DLDevice device) {
  if (problem->type != Type::KERNWRIGHT_TYPE) return false;
  if (problem->batches * problem->tokens * problem->width == 0) return true;
  fold_batches(problem);
  part_into_frames(problem);
  void* stream = TVMFFIEnvGetStream(device.device_type, device.device_id);
  if (const int error = launch(*problem, choose_variant(*problem), device.device_id, stream))
    TVM_FFI_THROW(RuntimeError) << "the launch failed: " << error_text(error);
  return true;
}

#if KERNWRIGHT_RESIDUAL
bool call(ffi::TensorView x, ffi::TensorView residual, ffi::TensorView scale, ffi::TensorView shift, MaybeTensor gate,
          MaybeTensor weight, MaybeTensor bias, ffi::String norm_type, double eps, ffi::TensorView y, ffi::TensorView sum) {
  ExactProblem problem;
  return read_exact(&problem, kDLCUDA, x, residual, scale, shift, gate, weight, bias, norm_type, eps, y, sum) &&
         run(&problem, x.device());
}
#else
bool call(ffi::TensorView x, ffi::TensorView scale, ffi::TensorView shift, MaybeTensor weight, MaybeTensor bias,
          ffi::String norm_type, double eps, ffi::TensorView y) {
  ExactProblem problem;
  return read_exact(&problem, kDLCUDA, x, {}, scale, shift, {}, weight, bias, norm_type, eps, y, {}) &&
         run(&problem, x.device());
}
#endif

}  // namespace
}  // namespace kernwright

#if KERNWRIGHT_RESIDUAL
TVM_FFI_DLL_EXPORT_TYPED_FUNC(residual_norm_scale_shift_exact, kernwright::call);
#else
TVM_FFI_DLL_EXPORT_TYPED_FUNC(norm_scale_shift_exact, kernwright::call);
#endif
