// Arguments: from tensors to a Problem, or to an error that names the argument.
//
// What is wrong for every implementation throws ValueError. What is right, but not for these kernels (another dtype, a last
// axis with gaps, tensors that make more of x than it is), makes `read` answer false: the caller has other ways to run it.

#pragma once

#include "folding.h"
#include "norm_problem.h"

namespace kernwright {

// Update, gate and sum come together: x is a residual then. False: these kernels do not take the call.
inline bool read(Problem* problem, int32_t device_type, ffi::TensorView x, MaybeTensor update, MaybeTensor gate,
                 ffi::TensorView weight, ffi::TensorView scale, ffi::TensorView shift, double eps, ffi::TensorView y,
                 MaybeTensor sum) {
  problem->eps = static_cast<float>(eps);
  Reader reader(problem, x, device_type, update.has_value() ? "residual" : "x");
  reader.tokens(x, &problem->x, update.has_value() ? "residual" : "x");
  if (update.has_value()) {
    reader.broadcast(update.value(), &problem->update, "update");
    reader.broadcast(gate.value(), &problem->gate, "gate");
    for (int i = 0; i < x.ndim(); ++i)  // a row for many tokens is for the reference
      if (update.value().ndim() != x.ndim() || update.value().size(i) != x.size(i)) reader.refuse();
  }
  reader.broadcast(weight, &problem->weight, "weight");
  if (weight.ndim() != 1 || weight.size(0) != problem->width) reader.refuse();
  reader.broadcast(scale, &problem->scale, "scale");
  reader.broadcast(shift, &problem->shift, "shift");
  if (sum.has_value()) reader.tokens(sum.value(), &problem->sum, "out", true);
  reader.tokens(y, &problem->y, "out", true);
  return reader.takes();
}

// As `read`, of x with any axes: hands each Problem that the call amounts to to `run`.
template <typename Run>
bool each(int32_t device_type, ffi::TensorView x, MaybeTensor update, MaybeTensor gate, ffi::TensorView weight,
          ffi::TensorView scale, ffi::TensorView shift, double eps, ffi::TensorView y, MaybeTensor sum, const Run& run) {
  auto one = [&](ffi::TensorView x, const MaybeTensor& update, const MaybeTensor& gate, ffi::TensorView scale,
                 ffi::TensorView shift, ffi::TensorView y, const MaybeTensor& sum) {
    Problem problem;
    return read(&problem, device_type, x, update, gate, weight, scale, shift, eps, y, sum) && run(&problem);
  };
  if (x.ndim() <= kAxesOfReader) return one(x, update, gate, scale, shift, y, sum);
  const char* name = update.has_value() ? "residual" : "x";
  Folding folding(x, name, false);
  folding.tokens(x, name).modulation(update, "update", true).modulation(gate, "gate", true);
  folding.modulation(scale, "scale", true).modulation(shift, "shift", true);
  folding.tokens(sum, "out", true).tokens(y, "out", true);
  for (int i = 0; update.has_value() && i < x.ndim(); ++i)  // a row for many tokens is for the reference
    if (update.value().ndim() != x.ndim() || update.value().size(i) != x.size(i)) return false;
  return folding.each([&](Folding::Views own) {
    return one(own[0].value(), own[1], own[2], own[3].value(), own[4].value(), own[6].value(), own[5]);
  });
}

}  // namespace kernwright
