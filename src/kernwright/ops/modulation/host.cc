// The foreign functions of scale_shift, residual_gate, broadcast_add and ernie_residual_gate on a GPU, for one dtype of x and one
// of the result. They are compiled apart from the kernels, at the same time.

#include "calling.h"
#include "policy.h"
#include "sums.h"

namespace kernwright {

int launch(const Problem& p, int device, void* stream);

namespace {

constexpr int kMultiprocessors = 132;  // of an H200, for which variants are described

struct Launched : CallDefaults {
  using Own = Problem;
  static constexpr int64_t kWidestRow = kWidestSum;
  static bool is_compiled(const Problem& p) { return p.type == Type::KERNWRIGHT_TYPE && p.result == Type::KERNWRIGHT_RESULT; }
  static int start(const Problem& p, int device, void* stream) { return launch(p, device, stream); }
  static std::string describe(const Problem& p) { return described(p, choose_variant(p, kMultiprocessors)); }
};

// The roundings that follow from dtypes and axes. float32 rounds nowhere.
void find_roundings(Problem* p, bool is_scale_number, bool is_shift_number) {
  const Type own = p->is_crossed ? p->shift.type : p->type;
  const bool is_half = own != Type::kFloat32;
  p->is_product_rounded = is_half && p->scale.data && (is_scale_number || p->scale.type == own);
  p->is_scale_cast = is_half && is_scale_number && p->scale.type != own;
  p->is_shift_cast = p->is_product_rounded && is_shift_number && p->shift.type != p->type;
}

struct ScaleShift : Launched {
  static constexpr Parameter<Problem> kParameters[] = {
      ARGUMENT(kFirst, x, x),
      ARGUMENT(kModulation, scale, scale),
      ARGUMENT(kModulation, shift, shift),
      ARGUMENT(kNumber, scale_constant, constant),
      ARGUMENT(kOutput, y, y),
  };

  template <typename Given>
  static void finish(Problem* p, Reader*, const Given& given) {
    p->result = p->type;
    p->adds_constant = true;
    find_roundings(p, given["scale"].ndim() == 0, given["shift"].ndim() == 0);
  }
};

// The residual is read as x and the update as shift. They change places, unless the residual has another half-width dtype than
// the update or is narrower: no library is compiled for that, and the one of the residual's dtype takes both (`is_crossed`).
template <Role kGate>
struct Gate : Launched {
  static constexpr Parameter<Problem> kParameters[] = {
      ARGUMENT(kFirst, residual, x),
      ARGUMENT(kSummand, update, shift),
      parameter(kGate, "gate", +[](Problem* p) { return &p->scale; }),
      ARGUMENT(kOutput, out, y),
  };

  template <typename Given>
  static void finish(Problem* p, Reader*, const Given& given) {
    p->result = p->type;
    p->is_crossed = p->result != p->shift.type && p->result != Type::kFloat32;
    if (!p->is_crossed) {
      const Tokens residual = p->x;
      p->x = {const_cast<void*>(p->shift.data), p->shift.batch_step, p->shift.token_step};
      p->type = p->shift.type;
      p->shift = {residual.data, residual.batch_step, residual.token_step, 1, p->width > 1, p->result};
    }
    // ERNIE's gate broadcasts by torch's rule, and its chain rounds the result alone.
    if (kGate == Role::kModulation) find_roundings(p, given["gate"].ndim() == 0, false);
  }
};

using ResidualGate = Gate<Role::kModulation>;
using ErnieResidualGate = Gate<Role::kBroadcast>;

// Either summand may be x: the larger one, where it has the dtype of the result. The other may be one row for many.
struct BroadcastAdd : Launched {
  static constexpr Parameter<Problem> kParameters[] = {
      ARGUMENT(kFirst, a, x),
      ARGUMENT(kBroadcast, b, shift),
      ARGUMENT(kOutput, out, y),
  };

  template <typename Call, typename Given, typename Run>
  static bool parts(const Given& given, Problem p, int32_t device_type, const Run& run) {
    const ffi::TensorView a = given["a"], b = given["b"], out = given["out"];
    Type types[3];
    if (a.device().device_type != device_type) return false;
    for (int i = 0; i < 3; ++i) {
      const ffi::TensorView own = given.tensors[i].value();
      if (own.device().device_type != device_type || own.device().device_id != a.device().device_id)
        TVM_FFI_THROW(ValueError) << kParameters[i].name << ": is on another device than a";
      if (!read_type(own.dtype(), &types[i], kParameters[i].name)) return false;
    }
    if (!Sum::has_shape(a, b, out)) return false;
    refuse_piled(out, "out");
    // The sum of two dtypes has float32, and so must x. A number without an axis promotes by other rules.
    p.type = p.result = types[0] == types[1] ? types[0] : Type::kFloat32;
    if (types[2] != p.result || (types[0] != types[1] && (a.ndim() == 0 || b.ndim() == 0))) return false;
    if (out.numel() == 0) return run(&p);
    for (const auto& own : {a, b, out})
      if (own.data_ptr() == nullptr) return false;  // a tensor without memory stands for another one
    Sum sum;
    for (const bool is_a : {a.numel() >= b.numel(), a.numel() < b.numel()}) {
      if (types[is_a ? 0 : 1] != p.result || !sum.fold(is_a ? a : b, is_a ? b : a, out)) continue;
      p.shift.type = types[is_a ? 1 : 0];
      read(&p, sum, is_a ? a : b, is_a ? b : a, out);
      return walk(p, sum, 0, run);
    }
    return false;
  }

  static void read(Problem* p, const Sum& sum, ffi::TensorView x, ffi::TensorView other, ffi::TensorView out) {
    const auto &batch = sum.batch, &token = sum.token;
    p->batches = batch.size, p->tokens = token.size, p->width = static_cast<int32_t>(sum.last.size);
    p->x = {x.data_ptr(), batch.size == 1 ? 0 : batch.x, token.size == 1 ? 0 : token.x};
    p->y = {out.data_ptr(), batch.size == 1 ? 0 : batch.y, token.size == 1 ? 0 : token.y};
    p->shift = {other.data_ptr(), batch.shift, token.shift, 1, static_cast<int32_t>(sum.last.shift), p->shift.type};
  }

  // Every place of the axes from `first` on is a Problem that starts elsewhere.
  template <typename Run>
  static bool walk(Problem p, const Sum& sum, int first, const Run& run) {
    if (first >= sum.count) return run(&p);
    const auto& axis = sum.walked[first];
    for (int64_t index = 0; index < axis.size; ++index) {
      Problem there = p;
      there.x.data = static_cast<char*>(p.x.data) + index * axis.x * bytes_of(p.type);
      there.y.data = static_cast<char*>(p.y.data) + index * axis.y * bytes_of(p.result);
      there.shift.data = static_cast<const char*>(p.shift.data) + index * axis.shift * bytes_of(p.shift.type);
      if (!walk(there, sum, first + 1, run)) return false;
    }
    return true;
  }
};

}  // namespace
}  // namespace kernwright

#ifndef KERNWRIGHT_EMULATED  // tests export the same names for a CPU
#define KERNWRIGHT_EXPORT_OP(op, Call)                                        \
  KERNWRIGHT_EXPORT(op, kernwright::call<kernwright::Call>)                   \
  KERNWRIGHT_EXPORT(op##_variant, kernwright::variant<kernwright::Call>)      \
  KERNWRIGHT_EXPORT(op##_parameters, kernwright::parameters<kernwright::Call>)

KERNWRIGHT_EXPORT_OP(scale_shift, ScaleShift)
KERNWRIGHT_EXPORT_OP(residual_gate, ResidualGate)
KERNWRIGHT_EXPORT_OP(broadcast_add, BroadcastAdd)
KERNWRIGHT_EXPORT_OP(ernie_residual_gate, ErnieResidualGate)
#endif
