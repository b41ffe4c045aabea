// ernie_residual_gate on a CPU: the kernels of residual_gate behind checks of its own.

#include "modulation_emulation.cc"

#include "gate_arguments.h"

namespace kernwright {

bool ernie_residual_gate(ffi::TensorView residual, ffi::TensorView update, ffi::TensorView gate, ffi::TensorView out) {
  Problem problem;
  return read_ernie_residual_gate(&problem, kDLCPU, residual, update, gate, out) && run(&problem);
}

}  // namespace kernwright

TVM_FFI_DLL_EXPORT_TYPED_FUNC(ernie_residual_gate, kernwright::ernie_residual_gate);
