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
  return each_scale_shift(kDLCUDA, x, scale, shift, scale_constant, y, [&](Problem* own) { return run(own, x.device()); });
}

bool residual_gate(ffi::TensorView residual, ffi::TensorView update, ffi::TensorView gate, ffi::TensorView out) {
  return each_residual_gate(kDLCUDA, residual, update, gate, out,
                            [&](Problem* own) { return run(own, update.device()); });
}

bool ernie_residual_gate(ffi::TensorView residual, ffi::TensorView update, ffi::TensorView gate, ffi::TensorView out) {
  return each_ernie_residual_gate(kDLCUDA, residual, update, gate, out,
                                  [&](Problem* own) { return run(own, residual.device()); });
}

bool broadcast_add(ffi::TensorView a, ffi::TensorView b, ffi::TensorView out) {
  return each_broadcast_add(kDLCUDA, a, b, out, [&](Problem* own) { return run(own, a.device()); });
}

// What calls would run on a GPU of so many multiprocessors, in words, a line for each launch; of tensors on any device, since
// nothing is launched.
struct Words {
  int64_t multiprocessors;
  std::string lines = "";

  bool operator()(Problem* own) {
    if (!is_own(*own)) return false;
    fold_batches(own);
    part_into_frames(own);
    lines += (lines.empty() ? "" : "\n") + described(*own, choose_variant(*own, static_cast<int>(multiprocessors)));
    return true;
  }

  ffi::String said(bool takes) const { return takes ? lines : "none"; }
};

ffi::String scale_shift_variant(ffi::TensorView x, ffi::TensorView scale, ffi::TensorView shift, double scale_constant,
                                ffi::TensorView y, int64_t multiprocessors) {
  Words words{multiprocessors};
  auto add = [&](Problem* own) { return words(own); };
  return words.said(each_scale_shift(x.device().device_type, x, scale, shift, scale_constant, y, add));
}

ffi::String residual_gate_variant(ffi::TensorView residual, ffi::TensorView update, ffi::TensorView gate,
                                  ffi::TensorView out, int64_t multiprocessors) {
  Words words{multiprocessors};
  auto add = [&](Problem* own) { return words(own); };
  return words.said(each_residual_gate(update.device().device_type, residual, update, gate, out, add));
}

ffi::String broadcast_add_variant(ffi::TensorView a, ffi::TensorView b, ffi::TensorView out, int64_t multiprocessors) {
  Words words{multiprocessors};
  auto add = [&](Problem* own) { return words(own); };
  return words.said(each_broadcast_add(a.device().device_type, a, b, out, add));
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
