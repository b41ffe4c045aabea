// The foreign function of ernie_residual_gate for one dtype on a GPU: checks the tensors, and launches on the caller's stream.
// The kernels are those of residual_gate, told to round once: see modulation's cuda_kernel.cu, whose contract (exact), bytes a
// token and shares of a copy's bandwidth are theirs.

#include <tvm/ffi/extra/c_env_api.h>

#include "gate_arguments.h"
#include "variant.h"

namespace kernwright {

int launch(const Problem& p, int device, void* stream);
const char* error_text(int error);

namespace {

bool ernie_residual_gate(ffi::TensorView residual, ffi::TensorView update, ffi::TensorView gate, ffi::TensorView out) {
  Problem problem;
  if (!read_ernie_residual_gate(&problem, kDLCUDA, residual, update, gate, out)) return false;
  if (problem.type != Type::KERNWRIGHT_TYPE) return false;
  if (problem.batches * problem.tokens * problem.width == 0) return true;
  fold_batches(&problem);
  const DLDevice device = residual.device();
  void* stream = TVMFFIEnvGetStream(device.device_type, device.device_id);
  if (const int error = launch(problem, device.device_id, stream))
    TVM_FFI_THROW(RuntimeError) << "the launch failed: " << error_text(error);
  return true;
}

}  // namespace
}  // namespace kernwright

TVM_FFI_DLL_EXPORT_TYPED_FUNC(ernie_residual_gate, kernwright::ernie_residual_gate);
