// The foreign function of one op that selects a modulation, for one dtype on a GPU. It is compiled apart from the kernels.

#include "calling.h"
#include "select_policy.h"

namespace kernwright {

int launch(const Problem& p, const TokenVariant& v, int device, void* stream);

namespace {

// Reads the index: [B, S], each axis whole or 1, and leading axes may be missing. False: it has no memory.
bool read_choice(ffi::TensorView own, ffi::TensorView x, Choice* to) {
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

// Reads the chosen gate. It has the shape of index and gates, broadcast together: one row where all tokens, or all batch
// entries, pick one. False: it has fewer channels than x, x has no tokens to pick it, or `own` has another shape.
template <typename Given>
bool read_gate(Reader* reader, const Given& given, Problem* problem) {
  const ffi::TensorView x = given["x"], index = given["index"], own = given["gate_out"];
  const ffi::TensorView gate0 = given["gate0"], gate1 = given["gate1"];
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

struct Call : CallDefaults {
  using Own = Problem;
  static constexpr Parameter<Problem> kParameters[] = {
      ARGUMENT(kFirst, x, x),
#if KERNWRIGHT_RESIDUAL
      ARGUMENT(kTokens, residual, residual),
      ARGUMENT(kModulation, residual_gate, residual_gate),
#endif
      ARGUMENT(kModulation, scale0, scale[0]),
      ARGUMENT(kModulation, shift0, shift[0]),
      ARGUMENT(kModulation, gate0, gate[0]),
      ARGUMENT(kModulation, scale1, scale[1]),
      ARGUMENT(kModulation, shift1, shift[1]),
      ARGUMENT(kModulation, gate1, gate[1]),
      parameter<Problem>(Role::kWhole, "index"),
      ARGUMENT(kAffine, weight, weight),
      ARGUMENT(kBias, bias, bias),
      ARGUMENT(kNumber, eps, eps),
      ARGUMENT(kOutput, y, y),
#if KERNWRIGHT_RESIDUAL
      ARGUMENT(kOutput, residual_out, sum),
#endif
      parameter<Problem>(Role::kWhole, "gate_out"),
  };

  template <typename Given>
  static bool begin(Problem*, const Given& given) {
    const ffi::TensorView x = given["x"];
    if (x.ndim() != 3) TVM_FFI_THROW(ValueError) << "x: must be [B, S, D]";
    for (const char* name : {"scale0", "shift0", "gate0", "scale1", "shift1", "gate1"})
      if (given[name].ndim() != 2)
        TVM_FFI_THROW(ValueError) << name << ": must be [" << x.size(0) << ", " << x.size(2) << "], a row per batch entry of x";
    return true;
  }

  template <typename Given>
  static void finish(Problem* p, Reader* reader, const Given& given) {
    if (!reader->takes()) return;
    const Type first = p->gate[0].type, second = p->gate[1].type;
    p->gate_type = first == second ? first : Type::kFloat32;  // holds both
    if (!read_choice(given["index"], given["x"], &p->index) || !read_gate(reader, given, p)) reader->refuse();
  }

  static bool is_compiled(const Problem& p) { return p.type == Type::KERNWRIGHT_TYPE; }
  static TokenVariant choose(const Problem& p) { return choose_variant<KERNWRIGHT_RESIDUAL>(p); }
  static int start(const Problem& p, int device, void* stream) { return launch(p, choose(p), device, stream); }
  static std::string describe(const Problem& p) {
    return described(choose(p), shapes_of<Type::KERNWRIGHT_TYPE, KERNWRIGHT_RESIDUAL>());
  }
};

}  // namespace
}  // namespace kernwright

KERNWRIGHT_EXPORT(KERNWRIGHT_OP, kernwright::call<kernwright::Call>)
KERNWRIGHT_EXPORT(variant, kernwright::variant<kernwright::Call>)
KERNWRIGHT_EXPORT(parameters, kernwright::parameters<kernwright::Call>)
