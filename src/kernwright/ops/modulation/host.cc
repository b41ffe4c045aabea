// The foreign functions of the family on a GPU, for one dtype of x and one of the result, and of ernie_residual_gate. They are
// compiled apart from the kernels, at the same time.

#include <utility>

#include "calling.h"
#include "policy.h"

namespace kernwright {

int launch(const Problem& p, int device, void* stream);

constexpr int64_t kWidestColumns = INT32_MAX - 4096;  // a column behind the last, in a block's uneven end, is counted too

// Of a gate the result has the residual's dtype, which is read as shift.
inline Type output_type(const Problem& p, const Tokens*) { return p.adds_constant ? p.type : p.shift.type; }

namespace {

struct Launched : CallDefaults {
  using Own = Problem;
  static constexpr int64_t kWidestRow = kWidestColumns;

  static bool is_compiled(const Problem& p) { return p.type == Type::KERNWRIGHT_TYPE && p.result == Type::KERNWRIGHT_RESULT; }
  static int start(const Problem& p, int device, void* stream) { return launch(p, device, stream); }
};

// The roundings that follow from dtypes and axes; float32 rounds nowhere.
void find_roundings(Problem* p, bool is_scale_number, bool is_shift_number) {
  const Type own = p->is_crossed ? p->shift.type : p->type;
  const bool is_half = own != Type::kFloat32;
  p->is_product_rounded = is_half && p->scale.data && (is_scale_number || p->scale.type == own);
  p->is_scale_cast = is_half && is_scale_number && p->scale.type != own;
  p->is_shift_cast = p->is_product_rounded && is_shift_number && p->shift.type != p->type;
}

struct ScaleShift : Launched {
  static constexpr Parameter<Problem> kParameters[] = {
      ARGUMENT(kFirst, x, x), ARGUMENT(kModulation, scale, scale), ARGUMENT(kModulation, shift, shift),
      ARGUMENT(kNumber, scale_constant, constant), ARGUMENT(kOutput, y, y)};

  template <typename Given>
  static bool begin(Problem* start, const Given&) {
    return start->adds_constant = true;
  }
  template <typename Given>
  static void finish(Problem* p, Reader*, const Given& given) {
    p->result = p->type;
    find_roundings(p, given["scale"].ndim() == 0, given["shift"].ndim() == 0);
  }
};

bool have_one_shape(ffi::TensorView a, ffi::TensorView b) {
  bool same = a.ndim() == b.ndim();
  for (int i = 0; same && i < a.ndim(); ++i) same = a.size(i) == b.size(i);
  return same;
}

struct Gated : Launched {
  template <typename Given>
  static bool begin(Problem*, const Given& given) {
    return have_one_shape(given["residual"], given["update"]);  // the reference would broadcast them
  }

  // No library is compiled for a half-width residual of an update in another dtype: that of the residual's dtype takes both,
  // with the residual as x and the update as shift.
  static void cross(Problem* p, Reader* reader) {
    p->result = p->shift.type;
    p->is_crossed = p->result != p->type && p->result != Type::kFloat32;
    if (!p->is_crossed) return;
    if (p->shift.channel_step == 0 && p->width > 1) return reader->refuse();
    const Tokens update = p->x;
    p->x = {const_cast<void*>(p->shift.data), p->shift.batch_step, p->shift.token_step};
    p->shift = {update.data, update.batch_step, update.token_step, 1, 1, p->type};
    p->type = p->result;
  }
};

struct ResidualGate : Gated {
  static constexpr Parameter<Problem> kParameters[] = {
      ARGUMENT(kModulation, residual, shift), ARGUMENT(kFirst, update, x), ARGUMENT(kModulation, gate, scale),
      ARGUMENT(kOutput, out, y)};

  template <typename Given>
  static void finish(Problem* p, Reader* reader, const Given& given) {
    if (!reader->takes()) return;
    cross(p, reader);
    find_roundings(p, given["gate"].ndim() == 0, false);
  }
};

// Only the result is rounded, and a gate broadcasts by torch's rule, so that [S, D] is a row per token.
struct ErnieResidualGate : Gated {
  static constexpr Parameter<Problem> kParameters[] = {
      ARGUMENT(kBroadcast, residual, shift), ARGUMENT(kFirst, update, x), ARGUMENT(kBroadcast, gate, scale),
      ARGUMENT(kOutput, out, y)};

  template <typename Given>
  static void finish(Problem* p, Reader* reader, const Given&) {
    if (reader->takes()) cross(p, reader);
  }
};

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

int64_t broadcast_step(ffi::TensorView own, int axis, int ndim) {
  const int at = axis - (ndim - own.ndim());
  return at < 0 || own.size(at) == 1 ? 0 : own.stride(at);
}

int64_t broadcast_size(ffi::TensorView own, int axis, int ndim) {
  const int at = axis - (ndim - own.ndim());
  return at < 0 ? 1 : own.size(at);
}

// The two longest of the axes are batches and tokens, in their order.
void part_axes(const Axis* axes, int count, Axis* batch, Axis* token, Walked* walked) {
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

bool read_sum(Problem* p, Walked* walked, ffi::TensorView x, ffi::TensorView other, ffi::TensorView out) {
  const int n = out.ndim();
  Axis axes[kMostAxes];
  int count = 0;
  for (int i = 0; i < n; ++i) {
    if (out.size(i) == 1) continue;
    const Axis own{out.size(i), broadcast_step(x, i, n), broadcast_step(other, i, n), out.stride(i)};
    Axis* before = count ? &axes[count - 1] : nullptr;
    // Two axes that every tensor walks through in one stride are one.
    if (before && before->x == own.size * own.x && before->shift == own.size * own.shift &&
        before->y == own.size * own.y && before->size * own.size <= kWidestColumns) {
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
  if (last.size > kWidestColumns) return false;
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

bool read_broadcast_add(Problem* p, Walked* walked, int32_t device_type, ffi::TensorView a, ffi::TensorView b,
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
bool each_sum(int32_t device_type, ffi::TensorView a, ffi::TensorView b, ffi::TensorView out, const Run& run) {
  Problem problem;
  Walked walked;
  if (!read_broadcast_add(&problem, &walked, device_type, a, b, out)) return false;
  return walked.count ? walk(problem, walked, 0, run) : run(&problem);
}

bool broadcast_add(ffi::TensorView a, ffi::TensorView b, ffi::TensorView out) {
  return each_sum(kDLCUDA, a, b, out, [&](Problem* own) { return launched<Launched>(own, a.device()); });
}

// What calls would run on a GPU of so many multiprocessors, in words, a line for each launch; of tensors on any device, since
// nothing is launched.
struct Words {
  int multiprocessors;
  std::string lines = "";

  bool operator()(Problem* own) {
    if (!Launched::is_compiled(*own)) return false;
    part(own);
    lines += (lines.empty() ? "" : "\n") + described(*own, choose_variant(*own, multiprocessors));
    return true;
  }

  ffi::String said(bool takes) const { return takes ? lines : "none"; }
};

// The last argument, behind those of the op, is the number of multiprocessors.
template <typename Call>
ffi::String variant_on(ffi::PackedArgs given) {
  const int count = given.size() - 1;
  Words words{given[count].cast<int>()};
  return words.said(each<Call>(given.Slice(0, count), device_of<Call>(given).device_type, [&](Problem* own) { return words(own); }));
}

ffi::String broadcast_add_variant(ffi::TensorView a, ffi::TensorView b, ffi::TensorView out, int multiprocessors) {
  Words words{multiprocessors};
  return words.said(each_sum(a.device().device_type, a, b, out, [&](Problem* own) { return words(own); }));
}

}  // namespace
}  // namespace kernwright

#ifndef KERNWRIGHT_EMULATED  // tests export the same names for a CPU
KERNWRIGHT_EXPORT(scale_shift, kernwright::call<kernwright::ScaleShift>)
KERNWRIGHT_EXPORT(residual_gate, kernwright::call<kernwright::ResidualGate>)
KERNWRIGHT_EXPORT(ernie_residual_gate, kernwright::call<kernwright::ErnieResidualGate>)
TVM_FFI_DLL_EXPORT_TYPED_FUNC(broadcast_add, kernwright::broadcast_add);
KERNWRIGHT_EXPORT(scale_shift_variant, kernwright::variant_on<kernwright::ScaleShift>)
KERNWRIGHT_EXPORT(residual_gate_variant, kernwright::variant_on<kernwright::ResidualGate>)
TVM_FFI_DLL_EXPORT_TYPED_FUNC(broadcast_add_variant, kernwright::broadcast_add_variant);
KERNWRIGHT_EXPORT(scale_shift_parameters, kernwright::parameters<kernwright::ScaleShift>)
KERNWRIGHT_EXPORT(residual_gate_parameters, kernwright::parameters<kernwright::ResidualGate>)
KERNWRIGHT_EXPORT(ernie_residual_gate_parameters, kernwright::parameters<kernwright::ErnieResidualGate>)
#endif
