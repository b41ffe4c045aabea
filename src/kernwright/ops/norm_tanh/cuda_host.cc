// The foreign function of one op and dtype on a GPU: checks the tensors, chooses the variant, launches it on the caller's
// stream. Kept apart from the kernels, so that both compile at the same time.

#include "arguments.h"
#include "calling.h"

namespace kernwright {

int launch(const Problem& p, const TokenVariant& v, int device, void* stream);

namespace {

bool run(Problem* problem, DLDevice device) {
  if (problem->type != Type::KERNWRIGHT_TYPE) return false;
  if (is_empty(*problem)) return true;
  part(problem);
  launch_for_caller(device, [&](int own, void* stream) { return launch(*problem, choose_variant(*problem), own, stream); });
  return true;
}

#if KERNWRIGHT_TWICE
#define KERNWRIGHT_PARAMETERS                                                                              \
  ffi::TensorView x, ffi::TensorView scale, ffi::TensorView shift, ffi::TensorView scale2, MaybeTensor weight, \
      MaybeTensor bias, MaybeTensor weight2, MaybeTensor bias2, ffi::String norm_type, double eps,             \
      ffi::TensorView y, ffi::TensorView y2
#define KERNWRIGHT_EACH(device, run) \
  each(device, x, scale, shift, scale2, weight, bias, weight2, bias2, norm_type, eps, y, y2, run)
#else
#define KERNWRIGHT_PARAMETERS                                                                              \
  ffi::TensorView x, ffi::TensorView scale, ffi::TensorView shift, MaybeTensor weight, MaybeTensor bias,       \
      ffi::String norm_type, double eps, ffi::TensorView y
#define KERNWRIGHT_EACH(device, run) \
  each(device, x, scale, shift, {}, weight, bias, {}, {}, norm_type, eps, y, {}, run)
#endif

bool call(KERNWRIGHT_PARAMETERS) {
  return KERNWRIGHT_EACH(kDLCUDA, [&](Problem* own) { return run(own, x.device()); });
}

// What a call would run, in words, a line for each launch; of tensors on any device, since nothing is launched.
ffi::String variant(KERNWRIGHT_PARAMETERS) {
  std::string words;
  auto describe = [&](Problem* own) {
    part(own);
    words += (words.empty() ? "" : "\n") + described(choose_variant(*own), shapes_of<Type::KERNWRIGHT_TYPE>());
    return true;
  };
  return KERNWRIGHT_EACH(x.device().device_type, describe) ? words : "none";
}

}  // namespace
}  // namespace kernwright

#if KERNWRIGHT_TWICE
TVM_FFI_DLL_EXPORT_TYPED_FUNC(norm_tanh_mul_add_norm_scale, kernwright::call);
#else
TVM_FFI_DLL_EXPORT_TYPED_FUNC(norm_tanh_mul_add, kernwright::call);
#endif
TVM_FFI_DLL_EXPORT_TYPED_FUNC(variant, kernwright::variant);
