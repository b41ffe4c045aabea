// The norms behind a residual on a CPU: the same kernels without gate and modulation, into other tensors and in place.

#include "emulation.cc"

#include "residual_norm/sum_kernel.cu"

#include "residual_norm/host.cc"  // with its exports: on tensors of a CPU they launch nothing

namespace kernwright {

// The kernels of all other forms have an emulation of their own.
int launch(const GeneralSum&, const TokenVariant&, int, void*) { return 0; }

bool sum_and_norm(ffi::TensorView x, ffi::TensorView residual, MaybeTensor weight, MaybeTensor bias,
                  ffi::String norm_type, double eps, ffi::TensorView y, ffi::TensorView sum) {
  const Sum given{SumCall::kParameters, {x, residual, weight, bias, y, sum}};
  return each_sum(given, read_is_rms(norm_type), static_cast<float>(eps), kDLCPU, [](const Problem& own) {
    const Variant variant = chosen(own);
    const int shape = sum_shape_of(own, variant);
    shape < 0 ? launch(own, variant, 0, nullptr) : launch_sum(own, shape, 0, nullptr);
  });
}

// What add_norm hands on to the kernels of all other forms: whether it takes it.
bool takes_general(ffi::PackedArgs given) {
  GeneralOwn start;
  const General of = take(GeneralCall::kParameters, given, &start);
  return each_general(of, start, kDLCPU, [](GeneralOwn* own) { return GeneralCall::is_compiled(*own); });
}

}  // namespace kernwright

TVM_FFI_DLL_EXPORT_TYPED_FUNC(sum_and_norm, kernwright::sum_and_norm);
KERNWRIGHT_EXPORT(takes_general, kernwright::takes_general)
