// The foreign function of one op and dtype on a GPU: checks the tensors, chooses the variant, launches it on the caller's
// stream. Kept apart from the kernels, so that both compile at the same time.

#include "arguments.h"
#include "calling.h"
#include "variant.h"

namespace kernwright {

int launch(const Problem& p, const Variant& v, int device, void* stream);

namespace {

bool run(Problem* problem, DLDevice device) {
  if (problem->type != Type::KERNWRIGHT_TYPE) return false;
  if (is_empty(*problem)) return true;
  fold_batches(problem);
  part_into_frames(problem);
  const Variant variant = choose_variant(*problem);
  launch_for_caller(device, [&](int own, void* stream) { return launch(*problem, variant, own, stream); });
  return true;
}

#if KERNWRIGHT_RESIDUAL
#define KERNWRIGHT_PARAMETERS                                                                              \
  ffi::TensorView x, ffi::TensorView residual, ffi::TensorView scale, ffi::TensorView shift, MaybeTensor gate, \
      MaybeTensor weight, MaybeTensor bias, ffi::String norm_type, double eps, ffi::TensorView y, ffi::TensorView sum
#define KERNWRIGHT_EACH(device, run) \
  each(device, x, residual, scale, shift, gate, weight, bias, norm_type, eps, y, sum, run)
#else
#define KERNWRIGHT_PARAMETERS                                                                              \
  ffi::TensorView x, ffi::TensorView scale, ffi::TensorView shift, MaybeTensor weight, MaybeTensor bias,       \
      ffi::String norm_type, double eps, ffi::TensorView y
#define KERNWRIGHT_EACH(device, run) \
  each(device, x, {}, scale, shift, {}, weight, bias, norm_type, eps, y, {}, run)
#endif

bool call(KERNWRIGHT_PARAMETERS) {
  return KERNWRIGHT_EACH(kDLCUDA, [&](Problem* own) { return run(own, x.device()); });
}

// What a call would run, in words, a line for each launch; of tensors on any device, since nothing is launched.
ffi::String variant(KERNWRIGHT_PARAMETERS) {
  std::string words;
  auto describe = [&](Problem* own) {
    fold_batches(own);
    part_into_frames(own);
    words += (words.empty() ? "" : "\n") + described(*own, choose_variant(*own));
    if (own->batches > 1) words += ", " + std::to_string(own->batches) + " batches";
    return true;
  };
  return KERNWRIGHT_EACH(x.device().device_type, describe) ? words : "none";
}

}  // namespace
}  // namespace kernwright

#if KERNWRIGHT_RESIDUAL
TVM_FFI_DLL_EXPORT_TYPED_FUNC(residual_norm_scale_shift, kernwright::call);
#else
TVM_FFI_DLL_EXPORT_TYPED_FUNC(norm_scale_shift, kernwright::call);
#endif
TVM_FFI_DLL_EXPORT_TYPED_FUNC(variant, kernwright::variant);
