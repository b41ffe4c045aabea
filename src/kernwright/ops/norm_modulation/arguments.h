// Arguments: from tensors to a Problem, or to an error that names the argument.
//
// What is wrong for every implementation throws ValueError. What is right, but not for these kernels (another
// dtype, a last axis with gaps), makes `read` answer false: the caller has other ways to run it.

#pragma once

#include "folding.h"
#include "problem.h"

namespace kernwright {

inline bool read_norm(const ffi::String& norm_type, const MaybeTensor& weight, const MaybeTensor& bias) {
  const bool is_rms = norm_type == "rms";
  if (!is_rms && !(norm_type == "layer"))
    TVM_FFI_THROW(ValueError) << "norm_type: is 'layer' or 'rms', not '" << std::string(norm_type) << "'";
  if (bias.has_value() && is_rms) TVM_FFI_THROW(ValueError) << "bias: an RMS norm has no bias";
  if (bias.has_value() && !weight.has_value()) TVM_FFI_THROW(ValueError) << "bias: comes only with a weight";
  return is_rms;
}

// False: these kernels do not take the call.
inline bool read(Problem* problem, int32_t device_type, ffi::TensorView x, MaybeTensor residual, ffi::TensorView scale,
                 ffi::TensorView shift, MaybeTensor gate, MaybeTensor weight, MaybeTensor bias,
                 const ffi::String& norm_type, double eps, ffi::TensorView y, MaybeTensor sum) {
  problem->is_rms = read_norm(norm_type, weight, bias);
  problem->eps = static_cast<float>(eps);
  problem->has_residual = residual.has_value();
  Reader reader(problem, x, device_type);
  reader.tokens(x, &problem->x, "x");
  if (residual.has_value()) reader.tokens(residual.value(), &problem->residual, "residual");
  reader.modulation(scale, &problem->scale, "scale");
  reader.modulation(shift, &problem->shift, "shift");
  if (gate.has_value()) reader.modulation(gate.value(), &problem->gate, "gate");
  reader.affine(weight, &problem->weight, "weight");
  reader.affine(bias, &problem->bias, "bias");
  reader.tokens(y, &problem->y, "out", true);
  if (sum.has_value()) reader.tokens(sum.value(), &problem->sum, "out", true);
  return reader.takes();
}

// Hands `one` what x and all that lies over it amount to in no more axes than `read` takes, part by part.
template <typename One>
bool each_part(ffi::TensorView x, MaybeTensor residual, ffi::TensorView scale, ffi::TensorView shift, MaybeTensor gate,
               ffi::TensorView y, MaybeTensor sum, const One& one) {
  if (x.ndim() <= kAxesOfReader) return one(x, residual, scale, shift, gate, y, sum);
  Folding folding(x);
  folding.tokens(x, "x").tokens(residual, "residual");
  folding.modulation(scale, "scale").modulation(shift, "shift").modulation(gate, "gate");
  folding.tokens(y, "out", true).tokens(sum, "out", true);
  return folding.each([&](Folding::Views own) {
    return one(own[0].value(), own[1], own[2].value(), own[3].value(), own[4], own[5].value(), own[6]);
  });
}

// As `read`, of x with any axes: hands each Problem that the call amounts to to `run`.
template <typename Run>
bool each(int32_t device_type, ffi::TensorView x, MaybeTensor residual, ffi::TensorView scale, ffi::TensorView shift,
          MaybeTensor gate, MaybeTensor weight, MaybeTensor bias, const ffi::String& norm_type, double eps,
          ffi::TensorView y, MaybeTensor sum, const Run& run) {
  return each_part(x, residual, scale, shift, gate, y, sum,
                   [&](ffi::TensorView x, const MaybeTensor& residual, ffi::TensorView scale, ffi::TensorView shift,
                       const MaybeTensor& gate, ffi::TensorView y, const MaybeTensor& sum) {
                     Problem problem;
                     return read(&problem, device_type, x, residual, scale, shift, gate, weight, bias, norm_type, eps, y,
                                 sum) &&
                            run(&problem);
                   });
}

}  // namespace kernwright
