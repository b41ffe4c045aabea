// layer_norm and rms_norm of one dtype on a GPU: checks the tensors, chooses the variant, launches it on the caller's
// stream. RMS norms of narrow rows are narrow_rows.cu's. All other kernels are those of norm_scale_shift, compiled without a
// modulation: see cuda_kernel.cu, whose contract and bytes a token (2 D s for D elements of s bytes) are theirs.
// Share of a copy's bandwidth: judged row by row, see tasks/norm_infer/RESULTS.md.

#include <sstream>

#include "calling.h"
#include "narrow_rows.h"
#include "rows.h"
#include "variant.h"

namespace kernwright {

int launch(const Problem& p, const Variant& v, int device, void* stream);
int launch_narrow(const NarrowRows& rows, const NarrowVariant& v, int device, void* stream);

namespace {

bool run(ffi::TensorView x, const MaybeTensor& weight, const MaybeTensor& bias, bool is_rms, double eps,
         ffi::TensorView y) {
  Problem problem;
  NormedRows rows = read_norm_rows(&problem, kDLCUDA, x, weight, bias, is_rms, eps, y);
  if (!rows.takes() || problem.type != Type::KERNWRIGHT_TYPE) return false;
  rows.each([&](const Problem& own) {
    const NarrowVariant narrow = choose_narrow(own);
    launch_for_caller(x.device(), [&](int device, void* stream) {
      return narrow.vectors > 0 ? launch_narrow(narrow_rows_of(own), narrow, device, stream)
                                : launch(own, choose_variant(own), device, stream);
    });
  });
  return true;
}

bool layer_norm(ffi::TensorView x, MaybeTensor weight, MaybeTensor bias, double eps, ffi::TensorView y) {
  return run(x, weight, bias, false, eps, y);
}

bool rms_norm(ffi::TensorView x, MaybeTensor weight, double eps, ffi::TensorView y) {
  return run(x, weight, {}, true, eps, y);
}

// What a call would launch, in words, a line each; of tensors on any device, since nothing is launched.
ffi::String variants(ffi::TensorView x, const MaybeTensor& weight, const MaybeTensor& bias, bool is_rms, ffi::TensorView y) {
  Problem problem;
  NormedRows rows = read_norm_rows(&problem, x.device().device_type, x, weight, bias, is_rms, 0.0, y);
  if (!rows.takes()) return "none";
  std::ostringstream out;
  rows.each([&](const Problem& own) {
    const NarrowVariant narrow = choose_narrow(own);
    out << (out.tellp() > 0 ? "\n" : "") << own.batches << " x " << own.tokens << " "
        << (narrow.vectors > 0 ? described(narrow) : described(own, choose_variant(own)));
  });
  return out.str();
}

ffi::String variant(ffi::TensorView x, MaybeTensor weight, MaybeTensor bias, ffi::TensorView y) {
  return variants(x, weight, bias, false, y);
}

ffi::String rms_variant(ffi::TensorView x, MaybeTensor weight, ffi::TensorView y) {
  return variants(x, weight, {}, true, y);
}

}  // namespace
}  // namespace kernwright

TVM_FFI_DLL_EXPORT_TYPED_FUNC(layer_norm, kernwright::layer_norm);
TVM_FFI_DLL_EXPORT_TYPED_FUNC(rms_norm, kernwright::rms_norm);
TVM_FFI_DLL_EXPORT_TYPED_FUNC(variant, kernwright::variant);
TVM_FFI_DLL_EXPORT_TYPED_FUNC(rms_variant, kernwright::rms_variant);
