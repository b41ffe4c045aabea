// Arguments: from tensors to a Problem, or to an error that names the argument.
//
// What is wrong for every implementation throws ValueError. What is right, but not for these kernels (another
// dtype, a last axis with gaps), makes `read` answer false: the caller has other ways to run it.

#pragma once

#include "folding.h"
#include "problem.h"

namespace kernwright {

inline void refuse_bias(const MaybeTensor& weight, const MaybeTensor& bias, bool is_rms, const char* weight_name,
                        const char* bias_name) {
  if (bias.has_value() && is_rms) TVM_FFI_THROW(ValueError) << bias_name << ": an RMS norm has no bias";
  if (bias.has_value() && !weight.has_value())
    TVM_FFI_THROW(ValueError) << bias_name << ": comes only with a " << weight_name;
}

// scale2 and y2 come together: without them there is no second norm. False: these kernels do not take the call.
inline bool read(Problem* problem, int32_t device_type, ffi::TensorView x, ffi::TensorView scale, ffi::TensorView shift,
                 MaybeTensor scale2, MaybeTensor weight, MaybeTensor bias, MaybeTensor weight2, MaybeTensor bias2,
                 const ffi::String& norm_type, double eps, ffi::TensorView y, MaybeTensor y2) {
  problem->is_rms = norm_type == "rms";
  if (!problem->is_rms && !(norm_type == "layer"))
    TVM_FFI_THROW(ValueError) << "norm_type: is 'layer' or 'rms', not '" << std::string(norm_type) << "'";
  refuse_bias(weight, bias, problem->is_rms, "weight", "bias");
  refuse_bias(weight2, bias2, problem->is_rms, "weight2", "bias2");
  problem->eps = static_cast<float>(eps);
  Reader reader(problem, x, device_type);
  reader.tokens(x, &problem->x, "x");
  reader.modulation(scale, &problem->scale, "scale");
  reader.modulation(shift, &problem->shift, "shift");
  if (scale2.has_value()) reader.modulation(scale2.value(), &problem->scale2, "scale2");
  reader.affine(weight, &problem->weight, "weight");
  reader.affine(bias, &problem->bias, "bias");
  reader.affine(weight2, &problem->weight2, "weight2");
  reader.affine(bias2, &problem->bias2, "bias2");
  reader.tokens(y, &problem->y, "out", true);
  if (y2.has_value()) reader.tokens(y2.value(), &problem->y2, "out", true);
  return reader.takes();
}

// As `read`, of x with any axes: hands each Problem that the call amounts to to `run`.
template <typename Run>
bool each(int32_t device_type, ffi::TensorView x, ffi::TensorView scale, ffi::TensorView shift, MaybeTensor scale2,
          MaybeTensor weight, MaybeTensor bias, MaybeTensor weight2, MaybeTensor bias2, const ffi::String& norm_type,
          double eps, ffi::TensorView y, MaybeTensor y2, const Run& run) {
  auto one = [&](ffi::TensorView x, ffi::TensorView scale, ffi::TensorView shift, const MaybeTensor& scale2,
                 ffi::TensorView y, const MaybeTensor& y2) {
    Problem problem;
    return read(&problem, device_type, x, scale, shift, scale2, weight, bias, weight2, bias2, norm_type, eps, y, y2) &&
           run(&problem);
  };
  if (x.ndim() <= kAxesOfReader) return one(x, scale, shift, scale2, y, y2);
  Folding folding(x);
  folding.tokens(x, "x").modulation(scale, "scale").modulation(shift, "shift").modulation(scale2, "scale2");
  folding.tokens(y, "out", true).tokens(y2, "out", true);
  return folding.each([&](Folding::Views own) {
    return one(own[0].value(), own[1].value(), own[2].value(), own[3], own[4].value(), own[5]);
  });
}

}  // namespace kernwright
