// Sums: the tensors of a norm behind a residual as Problems, by the rows of plain_norm; or an error that names the argument.
//
// These kernels take a sum of x and a residual in one dtype; general_arguments.h is for every other form. What is right, but
// not for them (another dtype, a last axis with gaps), makes `takes` answer false; what is wrong for every implementation
// throws ValueError.

#pragma once

#include "rows.h"

namespace kernwright {

inline NormedRows read_sums(Problem* problem, int32_t device_type, ffi::TensorView x, ffi::TensorView residual,
                            const MaybeTensor& weight, const MaybeTensor& bias, bool is_rms, double eps, ffi::TensorView y,
                            ffi::TensorView sum) {
  problem->is_rms = is_rms;
  problem->eps = static_cast<float>(eps);
  problem->has_residual = true;
  NormedRows rows(problem, x, device_type);
  rows.tokens(x, &Problem::x, "x");
  rows.tokens(residual, &Problem::residual, "residual");
  rows.affine(weight, &problem->weight, "weight");
  rows.affine(bias, &problem->bias, "bias");
  rows.tokens(sum, &Problem::sum, "out", true);
  rows.tokens(y, &Problem::y, "out", true);
  return rows;
}

// Whether each element of one lies where the other has the same one.
inline bool lies_in_place(ffi::TensorView one, ffi::TensorView other) {
  bool is_same = one.data_ptr() == other.data_ptr() && one.ndim() == other.ndim() && one.dtype().bits == other.dtype().bits;
  for (int axis = 0; is_same && axis < one.ndim(); ++axis)
    is_same = one.size(axis) == other.size(axis) && (one.size(axis) <= 1 || one.stride(axis) == other.stride(axis));
  return is_same;
}

inline void refuse_overlap(ffi::TensorView own, const char* name, ffi::TensorView other, const char* other_name) {
  if (share_memory(own, other)) TVM_FFI_THROW(ValueError) << name << ": overlaps " << other_name << ", and cannot be written";
}

// What fused_add_rms_norm_ changes, and what it reads beside that.
inline void check_in_place(ffi::TensorView x, ffi::TensorView residual, const MaybeTensor& weight) {
  refuse_piled(x, "x"), refuse_piled(residual, "residual");
  if (!lies_in_place(x, residual)) refuse_overlap(x, "x", residual, "residual");
  if (!weight.has_value()) return;
  refuse_overlap(x, "x", weight.value(), "weight");
  refuse_overlap(residual, "residual", weight.value(), "weight");
}

// y is x, and sum the residual.
inline NormedRows read_sums_in_place(Problem* problem, int32_t device_type, ffi::TensorView x, ffi::TensorView residual,
                                     const MaybeTensor& weight, double eps) {
  check_in_place(x, residual, weight);
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
