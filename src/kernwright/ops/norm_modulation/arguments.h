// Arguments: from tensors to a Problem, or to an error that names the argument.
//
// What is wrong for every implementation throws ValueError. What is right, but not for these kernels (another
// dtype, a last axis with gaps), makes `read` answer false: the caller has other ways to run it.

#pragma once

#include "problem.h"
#include "reader.h"

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

}  // namespace kernwright
