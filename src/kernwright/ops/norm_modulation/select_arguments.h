// Arguments of the pair with a choice: from tensors to a Problem, or to an error that names the argument.
//
// What is wrong for every implementation throws ValueError. What is right, but not for these kernels (another dtype, a last
// axis with gaps, a chosen gate of fewer channels than x), makes `read` answer false: the caller has other ways to run it.

#pragma once

#include "reader.h"
#include "select_problem.h"

namespace kernwright {

// [B, S], each axis the whole or 1, and axes before its own left out: whether it has memory.
inline bool read_choice(ffi::TensorView own, ffi::TensorView x, Choice* to) {
  const DLDataType type = own.dtype();
  if (type.lanes != 1 || (type.code != kDLInt && type.code != kDLUInt && type.code != kDLBool))
    TVM_FFI_THROW(ValueError) << "index: must be integers or booleans";
  if (own.device().device_type != x.device().device_type || own.device().device_id != x.device().device_id)
    TVM_FFI_THROW(ValueError) << "index: is on another device than x";
  const int n = own.ndim();
  for (int axis = 0; axis < n; ++axis) {
    const int over = axis + 2 - n;
    if (n > 2 || (own.size(axis) != 1 && own.size(axis) != x.size(over)))
      TVM_FFI_THROW(ValueError) << "index: must be [" << x.size(0) << ", " << x.size(1) << "], a number per token of x";
    if (own.size(axis) != 1) (over == 0 ? to->batch_step : to->token_step) = own.stride(axis);
  }
  to->data = own.data_ptr();
  to->bytes = (type.bits + 7) / 8;
  return own.data_ptr() != nullptr || own.numel() == 0;
}

// The chosen gate has the shape of index and gates, broadcast together, in which x has no part: where all tokens, or all batch
// entries, pick one row, it has one. False: it has fewer channels than x, x has no tokens to pick it, or `own` is no such tensor.
inline bool read_gate(Reader* reader, ffi::TensorView own, ffi::TensorView x, ffi::TensorView index, ffi::TensorView gate0,
                      ffi::TensorView gate1, Problem* problem) {
  const int n = index.ndim();
  const int64_t batches = n == 2 && index.size(0) != 1 ? index.size(0) : gate0.size(0) != 1 ? gate0.size(0) : gate1.size(0);
  const int64_t tokens = n > 0 ? index.size(n - 1) : 1, width = x.size(2);
  if (gate0.size(1) != width && gate1.size(1) != width) return false;
  if (batches == x.size(0) && tokens == x.size(1)) {
    reader->tokens_of(problem->gate_type, own, &problem->chosen_gate, "out", true);
    return reader->takes();
  }
  if (own.ndim() != 3 || own.size(0) != batches || own.size(1) != tokens || own.size(2) != width) return false;
  if (x.numel() == 0 && own.numel() != 0) return false;  // no token would store it
  refuse_piled(own, "out");
  const int64_t sizes[] = {x.size(0), x.size(1), width};
  const int64_t steps[] = {batches == 1 ? 0 : own.stride(0), tokens == 1 ? 0 : own.stride(1), own.stride(2)};
  reader->tokens_of(problem->gate_type, own.as_strided({sizes, 3}, {steps, 3}), &problem->chosen_gate, "out");
  return reader->takes();
}

// A set's row for each batch entry.
inline void read_set(Reader* reader, ffi::TensorView own, ffi::TensorView x, Modulation* to, const char* name) {
  if (own.ndim() != 2)
    TVM_FFI_THROW(ValueError) << name << ": must be [" << x.size(0) << ", " << x.size(2) << "], a row per batch entry of x";
  reader->modulation(own, to, name);
}

struct Sets {
  ffi::TensorView scale0, shift0, gate0, scale1, shift1, gate1;
};

// False: these kernels do not take the call.
inline bool read(Problem* problem, int32_t device_type, ffi::TensorView x, MaybeTensor residual, MaybeTensor residual_gate,
                 const Sets& sets, ffi::TensorView index, MaybeTensor weight, MaybeTensor bias, double eps,
                 ffi::TensorView y, MaybeTensor sum, ffi::TensorView chosen_gate) {
  if (x.ndim() != 3) TVM_FFI_THROW(ValueError) << "x: must be [B, S, D]";
  if (bias.has_value() && !weight.has_value()) TVM_FFI_THROW(ValueError) << "bias: comes only with a weight";
  problem->eps = static_cast<float>(eps);
  Reader reader(problem, x, device_type);
  if (!reader.takes()) return false;
  reader.tokens(x, &problem->x, "x");
  if (residual.has_value()) {
    reader.tokens(residual.value(), &problem->residual, "residual");
    reader.modulation(residual_gate.value(), &problem->residual_gate, "residual_gate");
  }
  read_set(&reader, sets.scale0, x, &problem->scale[0], "scale0");
  read_set(&reader, sets.shift0, x, &problem->shift[0], "shift0");
  read_set(&reader, sets.gate0, x, &problem->gate[0], "gate0");
  read_set(&reader, sets.scale1, x, &problem->scale[1], "scale1");
  read_set(&reader, sets.shift1, x, &problem->shift[1], "shift1");
  read_set(&reader, sets.gate1, x, &problem->gate[1], "gate1");
  if (!read_choice(index, x, &problem->index)) return false;
  reader.affine(weight, &problem->weight, "weight");
  reader.affine(bias, &problem->bias, "bias");
  if (!reader.takes()) return false;
  const Type first = problem->gate[0].type, second = problem->gate[1].type;
  problem->gate_type = first == second ? first : Type::kFloat32;  // what holds both
  reader.tokens(y, &problem->y, "out", true);
  if (sum.has_value()) reader.tokens(sum.value(), &problem->sum, "out", true);
  return reader.takes() && read_gate(&reader, chosen_gate, x, index, sets.gate0, sets.gate1, problem);
}

}  // namespace kernwright
