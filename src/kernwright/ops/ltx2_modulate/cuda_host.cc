// The foreign function of one op and dtype on a GPU: checks the tensors, chooses the variant, launches it on the caller's
// stream. Kept apart from the kernels, so that both compile at the same time.

#include "arguments.h"
#include "calling.h"
#include "variant.h"

namespace kernwright {

int launch(const Problem& p, const Variant& v, int device, void* stream);

namespace {

bool run(Problem* problem, DLDevice device) {
  if (problem->type != Type::KERNWRIGHT_TYPE || problem->form != Form::KERNWRIGHT_FORM) return false;
  if (is_empty(*problem)) return true;
  fold_batches(problem);
  const Variant variant = choose_variant(*problem);
  launch_for_caller(device, [&](int own, void* stream) { return launch(*problem, variant, own, stream); });
  return true;
}

bool rms_modulate(ffi::TensorView x, ffi::TensorView scale, ffi::TensorView shift, double eps, ffi::TensorView y) {
  return each_rms_modulate(kDLCUDA, x, scale, shift, eps, y, [&](Problem* own) { return run(own, x.device()); });
}

bool dual_modulate(ffi::TensorView x, ffi::TensorView scale0, ffi::TensorView shift0, ffi::TensorView scale1,
                   ffi::TensorView shift1, double eps, ffi::TensorView y0, ffi::TensorView y1) {
  return each_dual_modulate(kDLCUDA, x, scale0, shift0, scale1, shift1, eps, y0, y1,
                            [&](Problem* own) { return run(own, x.device()); });
}

bool rms_modulate_from_table(ffi::TensorView x, ffi::TensorView temb, ffi::TensorView table, double eps,
                             ffi::TensorView y) {
  return each_rms_modulate_from_table(kDLCUDA, x, temb, table, eps, y,
                                      [&](Problem* own) { return run(own, x.device()); });
}

bool dual_modulate_from_table(ffi::TensorView x, ffi::TensorView temb, ffi::TensorView table, double eps,
                              ffi::TensorView y0, ffi::TensorView y1) {
  return each_dual_modulate_from_table(kDLCUDA, x, temb, table, eps, y0, y1,
                                       [&](Problem* own) { return run(own, x.device()); });
}

}  // namespace
}  // namespace kernwright

TVM_FFI_DLL_EXPORT_TYPED_FUNC(rms_modulate, kernwright::rms_modulate);
TVM_FFI_DLL_EXPORT_TYPED_FUNC(dual_modulate, kernwright::dual_modulate);
TVM_FFI_DLL_EXPORT_TYPED_FUNC(rms_modulate_from_table, kernwright::rms_modulate_from_table);
TVM_FFI_DLL_EXPORT_TYPED_FUNC(dual_modulate_from_table, kernwright::dual_modulate_from_table);
