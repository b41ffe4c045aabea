// add_norm and fused_add_rms_norm_ on a GPU, for one dtype of x: checks the tensors, chooses the variant, launches it on the
// caller's stream. A sum of x and a residual in one dtype has the kernels of residual_norm_scale_shift, compiled without gate
// and modulation: see cuda_kernel.cu, whose contract and bytes a token (4 D s for D elements of s bytes) are theirs, and
// sum_kernel.cu for shapes of its own. Every other form has those of general_kernel.cu.
// Share of a copy's bandwidth: not measured yet; tasks/add_norm has the rows to judge.

#include <sstream>

#include "calling.h"
#include "sum_variant.h"
#include "sums.h"

namespace kernwright {

int launch(const Problem& p, const Variant& v, int device, void* stream);
int launch_sum(const Problem& p, int shape, int device, void* stream);

// Of general_host.cc.
bool run_general(ffi::TensorView x, MaybeTensor residual, MaybeTensor weight, MaybeTensor bias, MaybeTensor second,
                 MaybeTensor row_scale, bool is_rms, double eps, ffi::TensorView y, ffi::TensorView sum);

namespace {

bool are_alike(DLDataType one, DLDataType other) {
  return one.code == other.code && one.bits == other.bits && one.lanes == other.lanes;
}

int launch_either(const Problem& p, const Variant& v, int device, void* stream) {
  const int shape = sum_shape_of(p, v);
  return shape < 0 ? launch(p, v, device, stream) : launch_sum(p, shape, device, stream);
}

bool run(const Problem& problem, NormedRows* rows, DLDevice device) {
  if (!rows->takes() || problem.type != Type::KERNWRIGHT_TYPE) return false;
  rows->each([&](const Problem& own) {
    launch_for_caller(device, [&](int number, void* stream) {
      return launch_either(own, choose_variant(own), number, stream);
    });
  });
  return true;
}

bool add_norm(ffi::TensorView x, MaybeTensor residual, MaybeTensor weight, MaybeTensor bias, MaybeTensor second,
              MaybeTensor row_scale, ffi::String norm_type, double eps, ffi::TensorView y, ffi::TensorView sum) {
  const bool is_rms = read_is_rms(norm_type);
  const bool is_sum_of_two = residual.has_value() && !second.has_value() && !row_scale.has_value();
  if (!is_sum_of_two || !are_alike(x.dtype(), residual.value().dtype()))
    return run_general(x, residual, weight, bias, second, row_scale, is_rms, eps, y, sum);
  Problem problem;
  NormedRows rows = read_sums(&problem, kDLCUDA, x, residual.value(), weight, bias, is_rms, eps, y, sum);
  return run(problem, &rows, x.device());
}

bool fused_add_rms_norm_(ffi::TensorView x, ffi::TensorView residual, MaybeTensor weight, double eps) {
  if (!are_alike(x.dtype(), residual.dtype())) {
    check_in_place(x, residual, weight);
    return run_general(x, residual, weight, {}, {}, {}, true, eps, x, residual);
  }
  Problem problem;
  NormedRows rows = read_sums_in_place(&problem, kDLCUDA, x, residual, weight, eps);
  return run(problem, &rows, x.device());
}

// What a sum of two would launch, in words, a line each; of tensors on any device, since nothing is launched.
ffi::String variant(ffi::TensorView x, ffi::TensorView residual, MaybeTensor weight, MaybeTensor bias,
                    ffi::TensorView y, ffi::TensorView sum) {
  Problem problem;
  NormedRows rows = read_sums(&problem, x.device().device_type, x, residual, weight, bias, false, 0.0, y, sum);
  if (!rows.takes()) return "none";
  std::ostringstream out;
  rows.each([&](const Problem& own) {
    out << (out.tellp() > 0 ? "\n" : "") << own.batches << " x " << own.tokens << " "
        << described_sum(own, choose_variant(own));
  });
  return out.str();
}

}  // namespace
}  // namespace kernwright

TVM_FFI_DLL_EXPORT_TYPED_FUNC(add_norm, kernwright::add_norm);
TVM_FFI_DLL_EXPORT_TYPED_FUNC(fused_add_rms_norm_, kernwright::fused_add_rms_norm_);
TVM_FFI_DLL_EXPORT_TYPED_FUNC(variant, kernwright::variant);
