// The norms behind a residual on a CPU: the same kernels without gate and modulation, into other tensors and in place.

#include "emulation.cc"

#include "sum_kernel.cu"

#include "sum_host.cc"  // with what it exports: on tensors of a CPU it launches nothing

namespace kernwright {

// The kernels of all other forms have an emulation of their own: here it is seen what the host hands on to them.
bool run_general(ffi::TensorView, MaybeTensor, MaybeTensor, MaybeTensor, MaybeTensor, MaybeTensor, bool, double,
                 ffi::TensorView, ffi::TensorView) {
  return true;
}

bool sum_and_norm(ffi::TensorView x, ffi::TensorView residual, MaybeTensor weight, MaybeTensor bias,
                  ffi::String norm_type, double eps, ffi::TensorView y, ffi::TensorView sum) {
  Problem problem;
  NormedRows rows = read_sums(&problem, kDLCPU, x, residual, weight, bias, read_is_rms(norm_type), eps, y, sum);
  if (!rows.takes()) return false;
  rows.each([](const Problem& own) { launch_either(own, chosen(own), 0, nullptr); });
  return true;
}

}  // namespace kernwright

TVM_FFI_DLL_EXPORT_TYPED_FUNC(sum_and_norm, kernwright::sum_and_norm);
