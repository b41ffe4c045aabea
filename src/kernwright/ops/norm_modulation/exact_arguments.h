// Arguments of an exact call: from tensors to an ExactProblem, or to an error that names the argument.
//
// Beside what every kernel of the family refuses (arguments.h), `read_exact` answers false for what torch itself norms in
// another order than these kernels: tokens of no multiple of four channels, and those that it would read where they are, from
// an address that is not one of four elements. Tokens that lie apart it copies first, and so a residual's sum is its own copy.

#pragma once

#include "arguments.h"
#include "exact_problem.h"
#include "exact_variant.h"

namespace kernwright {

inline bool lies_dense(ffi::TensorView own) {
  int64_t step = 1;
  for (int axis = own.ndim() - 1; axis >= 0; --axis) {
    if (own.size(axis) == 1) continue;
    if (own.stride(axis) != step) return false;
    step *= own.size(axis);
  }
  return true;
}

// `is_copied`: torch copies x before it norms it.
inline bool read_exact(ExactProblem* p, int32_t device_type, ffi::TensorView x, MaybeTensor residual, ffi::TensorView scale,
                       ffi::TensorView shift, MaybeTensor gate, MaybeTensor weight, MaybeTensor bias,
                       const ffi::String& norm_type, double eps, ffi::TensorView y, MaybeTensor sum, bool is_copied) {
  if (!read(p, device_type, x, residual, scale, shift, gate, weight, bias, norm_type, eps, y, sum)) return false;
  if (p->is_rms || weight.has_value() || p->width % kGroup != 0) return false;
  const bool is_where_it_is = !residual.has_value() && !is_copied;
  if (is_where_it_is && reinterpret_cast<uintptr_t>(x.data_ptr()) % (kGroup * bytes_of(p->type)) != 0) return false;
  p->modulated = product_of(p->scale, scale.ndim() == 0, p->type);
  p->is_shift_cast = p->modulated.is_rounded && shift.ndim() == 0 && p->shift.type != p->type;
  if (gate.has_value()) p->gated = product_of(p->gate, gate.value().ndim() == 0, p->type);
  return true;
}

// As `read_exact`, of x with any axes: hands each ExactProblem that the call amounts to to `run`.
template <typename Run>
bool each_exact(int32_t device_type, ffi::TensorView x, MaybeTensor residual, ffi::TensorView scale, ffi::TensorView shift,
                MaybeTensor gate, MaybeTensor weight, MaybeTensor bias, const ffi::String& norm_type, double eps,
                ffi::TensorView y, MaybeTensor sum, const Run& run) {
  const bool is_copied = !lies_dense(x);  // of all of it: a part may lie dense by itself
  return each_part(x, residual, scale, shift, gate, y, sum,
                   [&](ffi::TensorView x, const MaybeTensor& residual, ffi::TensorView scale, ffi::TensorView shift,
                       const MaybeTensor& gate, ffi::TensorView y, const MaybeTensor& sum) {
                     ExactProblem problem;
                     return read_exact(&problem, device_type, x, residual, scale, shift, gate, weight, bias, norm_type,
                                       eps, y, sum, is_copied) &&
                            run(&problem);
                   });
}

}  // namespace kernwright
