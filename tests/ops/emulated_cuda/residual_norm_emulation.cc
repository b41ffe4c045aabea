// Sums of two in one dtype and their norms on a CPU: the kernels without gate and modulation, into other tensors and in place.

#include "emulation.cc"

#include "residual_norm/sum_kernel.cu"

#include "rows.h"

#define kDLCUDA kDLCPU  // the foreign functions take tensors of a CPU
#include "residual_norm/host.cc"
#undef kDLCUDA

namespace kernwright {

// The kernels of all other forms have their own emulation. Calls that the host hands on to them are only counted.
int64_t general_launches = 0;

int launch(const GeneralSum&, const TokenVariant&, int, void*) { return ++general_launches, 0; }

int64_t handed_on() { return general_launches; }

// As add_norm, but calls count as large from the sizes of emulation.cc on.
bool sum_and_norm(ffi::TensorView x, ffi::TensorView residual, MaybeTensor weight, MaybeTensor bias,
                  ffi::String norm_type, double eps, ffi::TensorView y, ffi::TensorView sum) {
  const Sum given{SumCall::kParameters, {x, residual, weight, bias, y, sum}};
  return each_sum(given, read_is_rms(norm_type), static_cast<float>(eps), kDLCPU, [](const Problem& own) {
    const Variant variant = chosen(own);
    const int shape = sum_shape_of(own, variant);
    shape < 0 ? launch(own, variant, 0, nullptr) : launch_sum(own, shape, 0, nullptr);
  });
}

}  // namespace kernwright

TVM_FFI_DLL_EXPORT_TYPED_FUNC(sum_and_norm, kernwright::sum_and_norm);
TVM_FFI_DLL_EXPORT_TYPED_FUNC(handed_on, kernwright::handed_on);
