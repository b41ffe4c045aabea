// LTX-2's cuda_kernel.cu on a CPU, behind the same checks and the same choice of a variant as on a GPU.

#pragma GCC optimize("O0")  // what it compiles runs for milliseconds

#include <cuda_runtime.h>

#include "cuda_kernel.cu"

#include "arguments.h"

namespace kernwright {

std::string& latest() {
  static std::string words;
  return words;
}

bool run(Problem* problem) {
  if (problem->type != kType) return false;
  if (is_empty(*problem)) return true;
  fold_batches(problem);
  const Variant variant = choose_variant(*problem);
  latest() = described(*problem, variant);
  return launch(*problem, variant, 0, nullptr) == 0;
}

bool rms_modulate(ffi::TensorView x, ffi::TensorView scale, ffi::TensorView shift, double eps, ffi::TensorView y) {
  return each_rms_modulate(kDLCPU, x, scale, shift, eps, y, run);
}

bool dual_modulate(ffi::TensorView x, ffi::TensorView scale0, ffi::TensorView shift0, ffi::TensorView scale1,
                   ffi::TensorView shift1, double eps, ffi::TensorView y0, ffi::TensorView y1) {
  return each_dual_modulate(kDLCPU, x, scale0, shift0, scale1, shift1, eps, y0, y1, run);
}

bool rms_modulate_from_table(ffi::TensorView x, ffi::TensorView temb, ffi::TensorView table, double eps,
                             ffi::TensorView y) {
  return each_rms_modulate_from_table(kDLCPU, x, temb, table, eps, y, run);
}

bool dual_modulate_from_table(ffi::TensorView x, ffi::TensorView temb, ffi::TensorView table, double eps,
                              ffi::TensorView y0, ffi::TensorView y1) {
  return each_dual_modulate_from_table(kDLCPU, x, temb, table, eps, y0, y1, run);
}

// Of the latest call, in words.
ffi::String variant() { return latest(); }

}  // namespace kernwright

TVM_FFI_DLL_EXPORT_TYPED_FUNC(rms_modulate, kernwright::rms_modulate);
TVM_FFI_DLL_EXPORT_TYPED_FUNC(dual_modulate, kernwright::dual_modulate);
TVM_FFI_DLL_EXPORT_TYPED_FUNC(rms_modulate_from_table, kernwright::rms_modulate_from_table);
TVM_FFI_DLL_EXPORT_TYPED_FUNC(dual_modulate_from_table, kernwright::dual_modulate_from_table);
TVM_FFI_DLL_EXPORT_TYPED_FUNC(variant, kernwright::variant);
