// The foreign function of one op of the pair with a choice, for one dtype on a GPU: checks the tensors, chooses the variant,
// launches it on the caller's stream. Kept apart from the kernels, so that both compile at the same time.

#include "calling.h"
#include "select_arguments.h"

namespace kernwright {

int launch(const Problem& p, const TokenVariant& v, int device, void* stream);

namespace {

bool run(Problem* problem, DLDevice device) {
  if (problem->type != Type::KERNWRIGHT_TYPE) return false;
  if (is_empty(*problem)) return true;
  part(problem);
  const TokenVariant variant = choose_variant<KERNWRIGHT_RESIDUAL>(*problem);
  launch_for_caller(device, [&](int own, void* stream) { return launch(*problem, variant, own, stream); });
  return true;
}

#define KERNWRIGHT_SETS                                                                                      \
  ffi::TensorView scale0, ffi::TensorView shift0, ffi::TensorView gate0, ffi::TensorView scale1, ffi::TensorView shift1, \
      ffi::TensorView gate1, ffi::TensorView index, MaybeTensor weight, MaybeTensor bias, double eps, ffi::TensorView y
#if KERNWRIGHT_RESIDUAL
#define KERNWRIGHT_PARAMETERS \
  ffi::TensorView x, ffi::TensorView residual, ffi::TensorView residual_gate, KERNWRIGHT_SETS, ffi::TensorView sum, ffi::TensorView gate
#define KERNWRIGHT_READ(problem, device)                                                                          \
  read(problem, device, x, residual, residual_gate, {scale0, shift0, gate0, scale1, shift1, gate1}, index, weight, bias, \
       eps, y, sum, gate)
#else
#define KERNWRIGHT_PARAMETERS ffi::TensorView x, KERNWRIGHT_SETS, ffi::TensorView gate
#define KERNWRIGHT_READ(problem, device) \
  read(problem, device, x, {}, {}, {scale0, shift0, gate0, scale1, shift1, gate1}, index, weight, bias, eps, y, {}, gate)
#endif

bool call(KERNWRIGHT_PARAMETERS) {
  Problem problem;
  return KERNWRIGHT_READ(&problem, kDLCUDA) && run(&problem, x.device());
}

// What a call would run, in words; of tensors on any device, since nothing is launched.
ffi::String variant(KERNWRIGHT_PARAMETERS) {
  Problem problem;
  if (!KERNWRIGHT_READ(&problem, x.device().device_type)) return "none";
  part(&problem);
  return described(choose_variant<KERNWRIGHT_RESIDUAL>(problem), shapes_of<Type::KERNWRIGHT_TYPE, KERNWRIGHT_RESIDUAL>());
}

}  // namespace
}  // namespace kernwright

#if KERNWRIGHT_RESIDUAL
TVM_FFI_DLL_EXPORT_TYPED_FUNC(residual_norm_scale_shift_select, kernwright::call);
#else
TVM_FFI_DLL_EXPORT_TYPED_FUNC(norm_scale_shift_select, kernwright::call);
#endif
TVM_FFI_DLL_EXPORT_TYPED_FUNC(variant, kernwright::variant);
