// Every form of a sum and its norm on a GPU, for one dtype of x: checks the tensors, chooses the variant, launches it on the
// caller's stream. sum_host.cc calls it for what its own kernels do not take.

#include "calling.h"
#include "general_arguments.h"

namespace kernwright {

int launch(const GeneralSum& p, const TokenVariant& v, int device, void* stream);

bool run_general(ffi::TensorView x, MaybeTensor residual, MaybeTensor weight, MaybeTensor bias, MaybeTensor second,
                 MaybeTensor row_scale, bool is_rms, double eps, ffi::TensorView y, ffi::TensorView sum) {
  return each_sum(kDLCUDA, {x, residual, second, row_scale, y, sum}, {weight, bias, is_rms, eps}, [&](GeneralSum* own) {
    if (own->type != Type::KERNWRIGHT_TYPE) return false;
    if (is_empty(*own)) return true;
    fold_batches(own);
    launch_for_caller(x.device(), [&](int number, void* stream) { return launch(*own, choose_variant(*own), number, stream); });
    return true;
  });
}

}  // namespace kernwright
