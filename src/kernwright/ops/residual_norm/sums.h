// Sums: the tensors of a norm behind a residual as Problems, by the rows of plain_norm; or an error that names the argument.
//
// These kernels take a sum of x and a residual in one dtype; general_arguments.h is for every other form. What is right, but
// not for them (another dtype, a last axis with gaps), makes `takes` answer false; what is wrong for every implementation
// throws ValueError.

#pragma once

#include "rows.h"

namespace kernwright {

inline Rows read_sums(Problem* problem, int32_t device_type, ffi::TensorView x, ffi::TensorView residual,
                      const MaybeTensor& weight, const MaybeTensor& bias, bool is_rms, double eps, ffi::TensorView y,
                      ffi::TensorView sum) {
  problem->is_rms = is_rms;
  problem->eps = static_cast<float>(eps);
  problem->has_residual = true;
  Rows rows(problem, x, device_type);
  rows.tokens(x, &Problem::x, "x");
  rows.tokens(residual, &Problem::residual, "residual");
  rows.affine(weight, &problem->weight, "weight");
  rows.affine(bias, &problem->bias, "bias");
  rows.tokens(sum, &Problem::sum, "out", true);
  rows.tokens(y, &Problem::y, "out", true);
  return rows;
}

// y is x, and sum the residual.
inline Rows read_sums_in_place(Problem* problem, int32_t device_type, ffi::TensorView x, ffi::TensorView residual,
                               const MaybeTensor& weight, double eps) {
  refuse_expanded(x, "x"), refuse_expanded(residual, "residual");
  return read_sums(problem, device_type, x, residual, weight, {}, true, eps, x, residual);
}

// Either norm has a bias here, with a weight or without one.
inline bool read_is_rms(const ffi::String& norm_type) {
  const bool is_rms = norm_type == "rms";
  if (!is_rms && !(norm_type == "layer"))
    TVM_FFI_THROW(ValueError) << "norm_type: is 'layer' or 'rms', not '" << std::string(norm_type) << "'";
  return is_rms;
}

}  // namespace kernwright
