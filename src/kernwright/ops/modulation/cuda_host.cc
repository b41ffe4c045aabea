// The foreign functions of the family on a GPU, for one dtype of x and one of the result: check the tensors, and launch on
// the caller's stream. Kept apart from the kernels, so that both compile at the same time.

#include "arguments.h"
#include "calling.h"
#include "variant.h"

namespace kernwright {

int launch(const Problem& p, int device, void* stream);

namespace {

bool is_own(const Problem& p) { return p.type == Type::KERNWRIGHT_TYPE && p.result == Type::KERNWRIGHT_RESULT; }

bool run(Problem* problem, DLDevice device) {
  if (!is_own(*problem)) return false;
  if (is_empty(*problem)) return true;
  fold_batches(problem);
  part_into_frames(problem);
  launch_for_caller(device, [&](int own, void* stream) { return launch(*problem, own, stream); });
  return true;
}

bool scale_shift(ffi::TensorView x, ffi::TensorView scale, ffi::TensorView shift, double scale_constant,
                 ffi::TensorView y) {
  Problem problem;
  return read_scale_shift(&problem, kDLCUDA, x, scale, shift, scale_constant, y) && run(&problem, x.device());
}

bool residual_gate(ffi::TensorView residual, ffi::TensorView update, ffi::TensorView gate, ffi::TensorView out) {
  Problem problem;
  return read_residual_gate(&problem, kDLCUDA, residual, update, gate, out) && run(&problem, update.device());
}

bool ernie_residual_gate(ffi::TensorView residual, ffi::TensorView update, ffi::TensorView gate, ffi::TensorView out) {
  Problem problem;
  return read_ernie_residual_gate(&problem, kDLCUDA, residual, update, gate, out) && run(&problem, residual.device());
}

bool broadcast_add(ffi::TensorView a, ffi::TensorView b, ffi::TensorView out) {
  Problem problem;
  return read_broadcast_add(&problem, kDLCUDA, a, b, out) && run(&problem, a.device());
}

// What a call would run on a GPU of so many multiprocessors, in words; of tensors on any device, since nothing is launched.
ffi::String variant_of(Problem* problem, bool takes, int64_t multiprocessors) {
  if (!takes || !is_own(*problem)) return "none";
  fold_batches(problem);
  part_into_frames(problem);
  return described(*problem, choose_variant(*problem, static_cast<int>(multiprocessors)));
}

ffi::String scale_shift_variant(ffi::TensorView x, ffi::TensorView scale, ffi::TensorView shift, double scale_constant,
                                ffi::TensorView y, int64_t multiprocessors) {
  Problem problem;
  const bool takes = read_scale_shift(&problem, x.device().device_type, x, scale, shift, scale_constant, y);
  return variant_of(&problem, takes, multiprocessors);
}

ffi::String residual_gate_variant(ffi::TensorView residual, ffi::TensorView update, ffi::TensorView gate,
                                  ffi::TensorView out, int64_t multiprocessors) {
  Problem problem;
  const bool takes = read_residual_gate(&problem, update.device().device_type, residual, update, gate, out);
  return variant_of(&problem, takes, multiprocessors);
}

ffi::String broadcast_add_variant(ffi::TensorView a, ffi::TensorView b, ffi::TensorView out, int64_t multiprocessors) {
  Problem problem;
  const bool takes = read_broadcast_add(&problem, a.device().device_type, a, b, out);
  return variant_of(&problem, takes, multiprocessors);
}

}  // namespace
}  // namespace kernwright

TVM_FFI_DLL_EXPORT_TYPED_FUNC(scale_shift, kernwright::scale_shift);
TVM_FFI_DLL_EXPORT_TYPED_FUNC(residual_gate, kernwright::residual_gate);
TVM_FFI_DLL_EXPORT_TYPED_FUNC(ernie_residual_gate, kernwright::ernie_residual_gate);
TVM_FFI_DLL_EXPORT_TYPED_FUNC(broadcast_add, kernwright::broadcast_add);
TVM_FFI_DLL_EXPORT_TYPED_FUNC(scale_shift_variant, kernwright::scale_shift_variant);
TVM_FFI_DLL_EXPORT_TYPED_FUNC(residual_gate_variant, kernwright::residual_gate_variant);
TVM_FFI_DLL_EXPORT_TYPED_FUNC(broadcast_add_variant, kernwright::broadcast_add_variant);
