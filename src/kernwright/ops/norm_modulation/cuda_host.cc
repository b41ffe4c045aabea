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
#define KERNWRIGHT_READ(problem, device) \
  read(problem, device, x, residual, scale, shift, gate, weight, bias, norm_type, eps, y, sum)
#else
#define KERNWRIGHT_PARAMETERS                                                                              \
  ffi::TensorView x, ffi::TensorView scale, ffi::TensorView shift, MaybeTensor weight, MaybeTensor bias,       \
      ffi::String norm_type, double eps, ffi::TensorView y
#define KERNWRIGHT_READ(problem, device) \
  read(problem, device, x, {}, scale, shift, {}, weight, bias, norm_type, eps, y, {})
#endif

bool call(KERNWRIGHT_PARAMETERS) {
  Problem problem;
  return KERNWRIGHT_READ(&problem, kDLCUDA) && run(&problem, x.device());
}

// What a call would run, in words; of tensors on any device, since nothing is launched.
ffi::String variant(KERNWRIGHT_PARAMETERS) {
  Problem problem;
  if (!KERNWRIGHT_READ(&problem, x.device().device_type)) return "none";
  fold_batches(&problem);
  part_into_frames(&problem);
  const std::string batches = problem.batches > 1 ? ", " + std::to_string(problem.batches) + " batches" : "";
  return described(problem, choose_variant(problem)) + batches;
}

}  // namespace
}  // namespace kernwright

#if KERNWRIGHT_RESIDUAL
TVM_FFI_DLL_EXPORT_TYPED_FUNC(residual_norm_scale_shift, kernwright::call);
#else
TVM_FFI_DLL_EXPORT_TYPED_FUNC(norm_scale_shift, kernwright::call);
#endif
TVM_FFI_DLL_EXPORT_TYPED_FUNC(variant, kernwright::variant);
