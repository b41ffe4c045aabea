// The norms alone on a CPU: the same kernels without a modulation, over rows of any leading axes.

#include "emulation.cc"

#include "rows.h"

namespace kernwright {

bool norm(ffi::TensorView x, MaybeTensor weight, MaybeTensor bias, bool is_rms, double eps, ffi::TensorView y) {
  Problem problem;
  Rows rows = read_norm_rows(&problem, kDLCPU, x, weight, bias, is_rms, eps, y);
  if (!rows.takes()) return false;
  rows.each([](const Problem& own) { launch(own, chosen(own), 0, nullptr); });
  return true;
}

}  // namespace kernwright

TVM_FFI_DLL_EXPORT_TYPED_FUNC(norm, kernwright::norm);
