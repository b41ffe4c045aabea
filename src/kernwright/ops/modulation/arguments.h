// Arguments: from the tensors of each op to a Problem, or to an error that names the argument.
//
// What is wrong for every implementation throws ValueError. What is right, but not for these kernels (another dtype, a last
// axis with gaps), makes each function answer false: the caller has other ways to run it.

#pragma once

#include <utility>

#include "folding.h"
#include "problem.h"

namespace kernwright {

constexpr int64_t kWidestRow = INT32_MAX - 4096;  // a column beyond the last, of a block's uneven end, is a number too

// The roundings that follow from dtypes and axes; what is float32 rounds nowhere.
inline void find_roundings(Problem* p, bool is_scale_number, bool is_shift_number) {
  const Type own = p->is_crossed ? p->shift.type : p->type;
  const bool is_half = own != Type::kFloat32;
  p->is_product_rounded = is_half && p->scale.data && (is_scale_number || p->scale.type == own);
  p->is_scale_cast = is_half && is_scale_number && p->scale.type != own;
  p->is_shift_cast = p->is_product_rounded && is_shift_number && p->shift.type != p->type;
}

inline bool read_scale_shift(Problem* p, int32_t device_type, ffi::TensorView x, ffi::TensorView scale,
                             ffi::TensorView shift, double scale_constant, ffi::TensorView y) {
  Reader reader(p, x, device_type, "x", kWidestRow);
  p->result = p->type;
  p->adds_constant = true;
  p->constant = static_cast<float>(scale_constant);
  reader.tokens(x, &p->x, "x");
  reader.modulation(scale, &p->scale, "scale");
  reader.modulation(shift, &p->shift, "shift");
  reader.tokens(y, &p->y, "out", true);
  find_roundings(p, scale.ndim() == 0, shift.ndim() == 0);
  return reader.takes();
}

// As `read_scale_shift`, of x with any axes: hands each Problem that the call amounts to to `run`.
template <typename Run>
bool each_scale_shift(int32_t device_type, ffi::TensorView x, ffi::TensorView scale, ffi::TensorView shift,
                      double scale_constant, ffi::TensorView y, const Run& run) {
  auto one = [&](ffi::TensorView x, ffi::TensorView scale, ffi::TensorView shift, ffi::TensorView y) {
    Problem problem;
    return read_scale_shift(&problem, device_type, x, scale, shift, scale_constant, y) && run(&problem);
  };
  if (x.ndim() <= kAxesOfReader) return one(x, scale, shift, y);
  Folding folding(x);
  folding.tokens(x, "x").modulation(scale, "scale").modulation(shift, "shift").tokens(y, "out", true);
  return folding.each([&](Folding::Views own) {
    return one(own[0].value(), own[1].value(), own[2].value(), own[3].value());
  });
}

inline bool have_one_shape(ffi::TensorView a, ffi::TensorView b) {
  bool same = a.ndim() == b.ndim();
  for (int i = 0; same && i < a.ndim(); ++i) same = a.size(i) == b.size(i);
  return same;
}

// No library is compiled for a half-width residual of an update in another dtype: that of the residual's own takes both.
inline bool is_crossed(Type update, Type residual) { return residual != update && residual != Type::kFloat32; }

inline bool read_residual_gate(Problem* p, int32_t device_type, ffi::TensorView residual, ffi::TensorView update,
                               ffi::TensorView gate, ffi::TensorView out) {
  if (!have_one_shape(residual, update)) return false;  // the reference would broadcast them
  Type own;
  if (!read_type(update.dtype(), &own, "update") || !read_type(residual.dtype(), &p->result, "residual")) return false;
  p->is_crossed = is_crossed(own, p->result);
  Reader reader(p, p->is_crossed ? residual : update, device_type, "update", kWidestRow);
  reader.tokens(p->is_crossed ? residual : update, &p->x, p->is_crossed ? "residual" : "update");
  reader.modulation(gate, &p->scale, "gate");
  reader.modulation(p->is_crossed ? update : residual, &p->shift, p->is_crossed ? "update" : "residual");
  reader.tokens_of(p->result, out, &p->y, "out", true);
  find_roundings(p, gate.ndim() == 0, false);
  return reader.takes();
}

template <typename Run>
bool each_residual_gate(int32_t device_type, ffi::TensorView residual, ffi::TensorView update, ffi::TensorView gate,
                        ffi::TensorView out, const Run& run) {
  auto one = [&](ffi::TensorView residual, ffi::TensorView update, ffi::TensorView gate, ffi::TensorView out) {
    Problem problem;
    return read_residual_gate(&problem, device_type, residual, update, gate, out) && run(&problem);
  };
  if (update.ndim() <= kAxesOfReader || !have_one_shape(residual, update)) return one(residual, update, gate, out);
  Folding folding(update, "update");
  folding.tokens(residual, "residual").tokens(update, "update").modulation(gate, "gate").tokens(out, "out", true);
  return folding.each([&](Folding::Views own) {
    return one(own[0].value(), own[1].value(), own[2].value(), own[3].value());
  });
}

// ERNIE's: only the result is rounded, and a gate broadcasts as torch has it, so [S, D] is a row per token.
inline bool read_ernie_residual_gate(Problem* p, int32_t device_type, ffi::TensorView residual, ffi::TensorView update,
                                     ffi::TensorView gate, ffi::TensorView out) {
  Reader reader(p, residual, device_type, "residual", kWidestRow);
  p->result = p->type;
  reader.broadcast(residual, &p->shift, "residual");
  Modulation given;  // which is read for what is wrong with it
  reader.broadcast(update, &given, "update");
  if (!have_one_shape(residual, update)) return false;  // the reference would broadcast them
  p->is_crossed = is_crossed(given.type, p->result);
  if (p->is_crossed) {
    reader.tokens(residual, &p->x, "residual");
    p->shift = given;
  } else {
    reader.tokens_of(given.type, update, &p->x, "update");
  }
  reader.broadcast(gate, &p->scale, "gate");
  reader.tokens(out, &p->y, "out", true);
  if (!p->is_crossed) p->type = given.type;
  return reader.takes();
}

template <typename Run>
bool each_ernie_residual_gate(int32_t device_type, ffi::TensorView residual, ffi::TensorView update, ffi::TensorView gate,
                              ffi::TensorView out, const Run& run) {
  auto one = [&](ffi::TensorView residual, ffi::TensorView update, ffi::TensorView gate, ffi::TensorView out) {
    Problem problem;
    return read_ernie_residual_gate(&problem, device_type, residual, update, gate, out) && run(&problem);
  };
  if (residual.ndim() <= kAxesOfReader) return one(residual, update, gate, out);
  Folding folding(residual, "residual", false);
  folding.tokens(residual, "residual").modulation(update, "update", true).modulation(gate, "gate", true);
  folding.tokens(out, "out", true);
  if (!have_one_shape(residual, update)) return false;  // the reference would broadcast them
  return folding.each([&](Folding::Views own) {
    return one(own[0].value(), own[1].value(), own[2].value(), own[3].value());
  });
}

// ---- a sum of tensors of any shapes that broadcast ------------------------------------------------------------------

// One axis of the result: how many elements apart its steps lie in x, in the other summand, and in the result.
struct Axis {
  int64_t size, x, shift, y;
};

constexpr int kMostAxes = 16;

// Axes beyond batches, tokens and channels: a launch for each of their steps.
struct Walked {
  Axis axes[kMostAxes];
  int count = 0;
};

inline int64_t broadcast_step(ffi::TensorView own, int axis, int ndim) {
  const int at = axis - (ndim - own.ndim());
  return at < 0 || own.size(at) == 1 ? 0 : own.stride(at);
}

inline int64_t broadcast_size(ffi::TensorView own, int axis, int ndim) {
  const int at = axis - (ndim - own.ndim());
  return at < 0 ? 1 : own.size(at);
}

// The two longest of the axes are batches and tokens, in their order.
inline void part_axes(const Axis* axes, int count, Axis* batch, Axis* token, Walked* walked) {
  const Axis one{1, 1, 0, 1};
  int first = -1, second = -1;
  for (int i = 0; i < count; ++i) {
    if (first < 0 || axes[i].size > axes[first].size) second = first, first = i;
    else if (second < 0 || axes[i].size > axes[second].size) second = i;
  }
  if (second > first) std::swap(first, second);
  *token = first < 0 ? one : axes[first];
  *batch = second < 0 ? one : axes[second];
  walked->count = 0;
  for (int i = 0; i < count; ++i)
    if (i != first && i != second) walked->axes[walked->count++] = axes[i];
}

inline bool read_sum(Problem* p, Walked* walked, ffi::TensorView x, ffi::TensorView other, ffi::TensorView out) {
  const int n = out.ndim();
  Axis axes[kMostAxes];
  int count = 0;
  for (int i = 0; i < n; ++i) {
    if (out.size(i) == 1) continue;
    const Axis own{out.size(i), broadcast_step(x, i, n), broadcast_step(other, i, n), out.stride(i)};
    Axis* before = count ? &axes[count - 1] : nullptr;
    // Two axes that every tensor walks through in one stride are one.
    if (before && before->x == own.size * own.x && before->shift == own.size * own.shift &&
        before->y == own.size * own.y && before->size * own.size <= kWidestRow) {
      *before = {before->size * own.size, own.x, own.shift, own.y};
    } else {
      axes[count++] = own;
    }
  }
  Axis last = count ? axes[--count] : Axis{1, 1, 0, 1};
  if (last.x != 1 || (last.shift != 0 && last.shift != 1) || last.y != 1) {
    if (out.size(n - 1) != 1) return false;
    axes[count++] = last, last = {1, 1, 0, 1};  // between rows of one channel there may be gaps
  }
  if (last.size > kWidestRow) return false;
  Axis batch, token;
  part_axes(axes, count, &batch, &token, walked);
  p->width = static_cast<int32_t>(last.size);
  p->tokens = token.size;
  p->batches = batch.size;
  p->x = {x.data_ptr(), batch.size == 1 ? 0 : batch.x, token.size == 1 ? 0 : token.x};
  p->y = {out.data_ptr(), batch.size == 1 ? 0 : batch.y, token.size == 1 ? 0 : token.y};
  p->shift.data = other.data_ptr();
  p->shift.batch_step = batch.shift;
  p->shift.token_step = token.shift;
  p->shift.channel_step = static_cast<int32_t>(last.shift);
  return true;
}

inline bool read_broadcast_add(Problem* p, Walked* walked, int32_t device_type, ffi::TensorView a, ffi::TensorView b,
                               ffi::TensorView out) {
  Type type_a, type_b, type_out;
  if (a.device().device_type != device_type) return false;
  for (const auto& [own, name] : {std::pair{b, "b"}, std::pair{out, "out"}})
    if (own.device().device_type != a.device().device_type || own.device().device_id != a.device().device_id)
      TVM_FFI_THROW(ValueError) << name << ": is on another device than a";
  if (!read_type(a.dtype(), &type_a, "a") || !read_type(b.dtype(), &type_b, "b")) return false;
  if (!read_type(out.dtype(), &type_out, "out")) return false;
  if (a.ndim() > kMostAxes || b.ndim() > kMostAxes) return false;
  const int n = a.ndim() > b.ndim() ? a.ndim() : b.ndim();
  if (n == 0 || out.ndim() != n) return false;
  int64_t elements = 1;
  for (int i = 0; i < n; ++i) {
    const int64_t own = broadcast_size(a, i, n), other = broadcast_size(b, i, n);
    if (own != other && own != 1 && other != 1)
      TVM_FFI_THROW(ValueError) << "b: has " << other << " where a has " << own << ", and they do not broadcast";
    if (out.size(i) != (own == 1 ? other : own)) return false;
    elements *= out.size(i);
  }
  refuse_piled(out, "out");
  // Of two dtypes the sum has float32, and x must have it too. A number without an axis promotes by rules of its own.
  p->result = type_a == type_b ? type_a : Type::kFloat32;
  if (type_out != p->result) return false;
  if (type_a != type_b && (a.ndim() == 0 || b.ndim() == 0)) return false;
  p->type = p->result;
  if (elements == 0) return p->batches = p->tokens = p->width = 0, true;
  for (const auto& own : {a, b, out})
    if (own.data_ptr() == nullptr) return false;  // a tensor that stands for another one
  // The smaller summand is the one that modulates: what is one row for many is read once for many.
  const bool a_is_x = a.numel() >= b.numel();
  for (const bool is_a : {a_is_x, !a_is_x}) {
    p->shift.type = is_a ? type_b : type_a;
    if ((is_a ? type_a : type_b) == p->result && (is_a ? read_sum(p, walked, a, b, out) : read_sum(p, walked, b, a, out)))
      return true;
  }
  return false;
}

// Every step of the axes from `first` on is a Problem that starts elsewhere.
template <typename Run>
bool walk(const Problem& p, const Walked& walked, int first, const Run& run) {
  if (first >= walked.count) {
    Problem own = p;
    return run(&own);
  }
  const Axis& axis = walked.axes[first];
  for (int64_t index = 0; index < axis.size; ++index) {
    Problem there = p;
    there.x.data = static_cast<char*>(p.x.data) + index * axis.x * bytes_of(p.type);
    there.y.data = static_cast<char*>(p.y.data) + index * axis.y * bytes_of(p.result);
    there.shift.data = static_cast<const char*>(p.shift.data) + index * axis.shift * bytes_of(p.shift.type);
    if (!walk(there, walked, first + 1, run)) return false;
  }
  return true;
}

template <typename Run>
bool each_broadcast_add(int32_t device_type, ffi::TensorView a, ffi::TensorView b, ffi::TensorView out, const Run& run) {
  Problem problem;
  Walked walked;
  if (!read_broadcast_add(&problem, &walked, device_type, a, b, out)) return false;
  return walked.count ? walk(problem, walked, 0, run) : run(&problem);
}

}  // namespace kernwright
