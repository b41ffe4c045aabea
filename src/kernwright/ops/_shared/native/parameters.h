// Parameters: the arguments of an op, listed once, in the order of its definition: tensors, scalars, then outputs.
//
// An entry has the argument's name, its role, and the member of the Problem that receives it. The foreign function, its
// checks and the folding of leading axes are derived from the list.
//
// An argument that is wrong for every implementation throws ValueError and names the argument. An argument that is right, but
// not for these kernels (another dtype, a last axis with gaps), makes the function return false: the caller runs another one.

#pragma once

#include <array>
#include <cstring>

#include "folding.h"

namespace kernwright {

enum class Role {
  kFirst,       // tokens that give the sizes for all others: [B, S, D] or [S, D]; more leading axes are folded
  kTokens,      // shape and dtype of the first tokens
  kUpdate,      // shape of the first tokens, any dtype; received by a Modulation
  kSummand,     // as kUpdate, but for shapes that torch broadcasts, which are left to the reference
  kModulation,  // one number, [D], [B, D], [B, S, D] with any axis 1, or [B, F, 1, D]
  kBroadcast,   // a modulation that broadcasts by torch's rule, so that [S, D] is a row for each token
  kRow,         // [D]; other shapes, which torch broadcasts, are left to the reference
  kAffine,      // [D], or none
  kBias,        // [D], or none; only with the weight listed before it, and not for an RMS norm
  kFolded,      // read by the op itself; leading axes are folded with those of the first tokens
  kWhole,       // read by the op itself, as it was given
  kOutput,      // shape of the first tokens, in the dtype that output_type() returns
  kNormType,    // "layer" or "rms"
  kNumber,
};

template <typename Problem>
struct Parameter {
  const char* name;
  Role role;
  bool is_optional = false;
  Tokens* (*tokens)(Problem*) = nullptr;
  Modulation* (*row)(Problem*) = nullptr;
  float* (*number)(Problem*) = nullptr;
  bool* (*flag)(Problem*) = nullptr;
};

template <typename P>
constexpr Parameter<P> parameter(Role role, const char* name, Tokens* (*to)(P*)) {
  return {name, role, false, to};
}
template <typename P>
constexpr Parameter<P> parameter(Role role, const char* name, Modulation* (*to)(P*), bool is_optional = false) {
  return {name, role, is_optional || role == Role::kAffine || role == Role::kBias, nullptr, to};
}
template <typename P>
constexpr Parameter<P> parameter(Role role, const char* name, float* (*to)(P*)) {
  return {name, role, false, nullptr, nullptr, to};
}
template <typename P>
constexpr Parameter<P> parameter(Role role, const char* name, bool* (*to)(P*)) {
  return {name, role, false, nullptr, nullptr, nullptr, to};
}
template <typename P>
constexpr Parameter<P> parameter(Role role, const char* name, bool is_optional = false) {
  return {name, role, is_optional};
}

// An entry of a list of Parameter<Problem>. `member` is an expression behind `problem->`.
#define ARGUMENT(role, name, member) parameter(Role::role, #name, +[](Problem* p) { return &p->member; })
#define OPTIONAL_ARGUMENT(role, name, member) parameter(Role::role, #name, +[](Problem* p) { return &p->member; }, true)

constexpr bool is_tensor(Role role) { return role != Role::kNormType && role != Role::kNumber; }

// Dtype of the output that `to` receives. A family whose outputs differ from its first tokens overloads it for its Problem.
inline Type output_type(const Extent& of, const Tokens* to) { return of.type; }

inline bool read_is_rms(const ffi::String& norm_type) {
  const bool is_rms = norm_type == "rms";
  if (!is_rms && !(norm_type == "layer"))
    TVM_FFI_THROW(ValueError) << "norm_type: is 'layer' or 'rms', not '" << std::string(norm_type) << "'";
  return is_rms;
}

// The tensors of a call, or of one part of it where leading axes are folded.
template <typename Problem, size_t kCount>
struct Arguments {
  using List = Parameter<Problem>[kCount];
  const List& list;
  std::array<MaybeTensor, kCount> tensors{};

  const MaybeTensor& maybe(const char* name) const {
    for (size_t i = 0; i < kCount; ++i)
      if (std::strcmp(list[i].name, name) == 0) return tensors[i];
    TVM_FFI_THROW(TypeError) << name << ": is not a parameter";
    throw;
  }
  ffi::TensorView operator[](const char* name) const { return maybe(name).value(); }

  size_t first_place() const {
    size_t place = 0;
    while (list[place].role != Role::kFirst) ++place;
    return place;
  }
  ffi::TensorView first() const { return tensors[first_place()].value(); }
};

// Takes tensors and scalars out of a foreign call.
template <typename Own, typename Problem, size_t kCount>
Arguments<Problem, kCount> take(const Parameter<Problem> (&list)[kCount], ffi::PackedArgs given, Own* problem) {
  if (given.size() != static_cast<int>(kCount)) TVM_FFI_THROW(TypeError) << "takes " << kCount << " arguments";
  Arguments<Problem, kCount> own{list};
  bool is_rms = false;
  for (size_t i = 0; i < kCount; ++i) {
    const Parameter<Problem>& parameter = list[i];
    const ffi::AnyView value = given[static_cast<int>(i)];
    if (parameter.role == Role::kNumber) *parameter.number(problem) = static_cast<float>(value.cast<double>());
    else if (parameter.role == Role::kNormType) is_rms = *parameter.flag(problem) = read_is_rms(value.cast<ffi::String>());
    else if (auto tensor = value.try_cast<ffi::TensorView>()) own.tensors[i] = *tensor;
    else if (value != nullptr || !parameter.is_optional) TVM_FFI_THROW(TypeError) << parameter.name << ": is not a tensor";
  }
  for (size_t i = 0; i < kCount; ++i) {
    if (list[i].role != Role::kBias || !own.tensors[i].has_value()) continue;
    if (is_rms) TVM_FFI_THROW(ValueError) << list[i].name << ": an RMS norm has no bias";
    if (!own.tensors[i - 1].has_value())
      TVM_FFI_THROW(ValueError) << list[i].name << ": comes only with a " << list[i - 1].name;
  }
  return own;
}

// A tensor of the first tokens' shape in any dtype, as a modulation with a row for each token.
inline void read_update(Reader* reader, ffi::TensorView own, Modulation* to, const char* name) {
  if (!reader->takes()) return;
  if (!read_type(own.dtype(), &to->type, name)) return reader->refuse();
  Tokens tokens;
  reader->tokens_of(to->type, own, &tokens, name);
  to->data = tokens.data, to->batch_step = tokens.batch_step, to->token_step = tokens.token_step;
  to->channel_step = 1;
}

inline bool have_one_shape(ffi::TensorView a, ffi::TensorView b) {
  bool is_same = a.ndim() == b.ndim();
  for (int axis = 0; is_same && axis < a.ndim(); ++axis) is_same = a.size(axis) == b.size(axis);
  return is_same;
}

// Reads one part of a call into a Problem. False: these kernels do not take it.
template <typename Call, typename Own, typename Problem, size_t kCount>
bool read(Own* p, const Arguments<Problem, kCount>& given, int32_t device_type) {
  const size_t first = given.first_place();
  Reader reader(p, given.tensors[first].value(), device_type, given.list[first].name, Call::kWidestRow);
  for (size_t i = 0; i < kCount; ++i) {
    const Parameter<Problem>& own = given.list[i];
    if (!is_tensor(own.role) || !given.tensors[i].has_value()) continue;
    const ffi::TensorView tensor = given.tensors[i].value();
    switch (own.role) {
      case Role::kFirst:
      case Role::kTokens: reader.tokens(tensor, own.tokens(p), own.name); break;
      case Role::kUpdate: read_update(&reader, tensor, own.row(p), own.name); break;
      case Role::kSummand:
        if (have_one_shape(tensor, given.first())) read_update(&reader, tensor, own.row(p), own.name);
        else reader.broadcast(tensor, own.row(p), own.name), reader.refuse();
        break;
      case Role::kModulation: reader.modulation(tensor, own.row(p), own.name); break;
      case Role::kRow:
      case Role::kBroadcast:
        reader.broadcast(tensor, own.row(p), own.name);
        if (own.role == Role::kRow && (tensor.ndim() != 1 || tensor.size(0) != p->width)) reader.refuse();
        break;
      case Role::kAffine:
      case Role::kBias: reader.affine(tensor, own.row(p), own.name); break;
      case Role::kOutput: reader.tokens_of(output_type(*p, own.tokens(p)), tensor, own.tokens(p), "out", true); break;
      default: break;
    }
  }
  Call::finish(p, &reader, given);
  return reader.takes();
}

template <typename Call, typename Problem, size_t kCount, typename Run>
bool each_part(const Arguments<Problem, kCount>& given, typename Call::Own start, int32_t device_type, const Run& run);

// What an op may add to its list. An op is a struct that derives from this, with its Problem as `Own` and `kParameters`.
struct CallDefaults {
  static constexpr int64_t kWidestRow = kWidest;
  // Before tensors are read and axes are folded: sets what all parts share. False: these kernels do not take the call.
  template <typename Problem, typename Given>
  static bool begin(Problem*, const Given&) {
    return true;
  }
  // After all listed arguments were read: the others, and what follows from them.
  template <typename Problem, typename Given>
  static void finish(Problem*, Reader*, const Given&) {}
  // Hands each Problem to `run`, as the function below does. An op whose arguments are no tokens and rows replaces it.
  template <typename Call, typename Given, typename Own, typename Run>
  static bool parts(const Given& given, const Own& start, int32_t device_type, const Run& run) {
    return each_part<Call>(given, start, device_type, run);
  }
};

// Hands each Problem that a call amounts to to `run`, which returns whether it took it. There are several where leading axes
// can neither be merged nor be batches, tokens or frames.
template <typename Call, typename Problem, size_t kCount, typename Run>
bool each_part(const Arguments<Problem, kCount>& given, typename Call::Own start, int32_t device_type, const Run& run) {
  if (!Call::begin(&start, given)) return false;
  auto one = [&](const Arguments<Problem, kCount>& part) {
    typename Call::Own problem = start;
    return read<Call>(&problem, part, device_type) && run(&problem);
  };
  const ffi::TensorView x = given.first();
  if (x.ndim() <= kAxesOfReader) return one(given);
  bool has_frames = true;
  for (const auto& own : given.list) has_frames = has_frames && own.role != Role::kBroadcast && own.role != Role::kFolded;
  Folding folding(x, given.list[given.first_place()].name, has_frames);
  std::array<int, kCount> places{};
  int count = 0;
  for (size_t i = 0; i < kCount; ++i) {
    const char* name = given.list[i].name;
    places[i] = -1;
    switch (given.list[i].role) {
      case Role::kFirst:
      case Role::kTokens:
      case Role::kUpdate: folding.tokens(given.tensors[i], name), places[i] = count++; break;
      case Role::kSummand:
        if (!have_one_shape(given.tensors[i].value(), x)) return folding.modulation(given.tensors[i], name, true), false;
        folding.tokens(given.tensors[i], name), places[i] = count++;
        break;
      case Role::kModulation:
      case Role::kBroadcast:
      case Role::kFolded: folding.modulation(given.tensors[i], name, !has_frames), places[i] = count++; break;
      case Role::kOutput: folding.tokens(given.tensors[i], "out", true), places[i] = count++; break;
      default: break;
    }
  }
  return folding.each([&](Folding::Views views) {
    Arguments<Problem, kCount> part = given;
    for (size_t i = 0; i < kCount; ++i)
      if (places[i] >= 0) part.tensors[i] = views[places[i]];
    return one(part);
  });
}

template <typename Call, typename Run>
bool each(ffi::PackedArgs given, int32_t device_type, const Run& run) {
  typename Call::Own start;
  const auto arguments = take(Call::kParameters, given, &start);
  return Call::template parts<Call>(arguments, start, device_type, run);
}

// The device of a call: that of its first tokens.
template <typename Call>
DLDevice device_of(ffi::PackedArgs given) {
  int place = 0;
  while (Call::kParameters[place].role != Role::kFirst) ++place;
  if (auto tensor = place < given.size() ? given[place].try_cast<ffi::TensorView>() : std::nullopt) return tensor->device();
  TVM_FFI_THROW(TypeError) << Call::kParameters[place].name << ": is not a tensor";
  throw;
}

}  // namespace kernwright

// Exports a function, which takes ffi::PackedArgs, under a name.
#define KERNWRIGHT_EXPORT(name, ...) KERNWRIGHT_EXPORT_NAMED(name, __VA_ARGS__)
#define KERNWRIGHT_EXPORT_NAMED(name, ...)                                                                              \
  extern "C" TVM_FFI_DLL_EXPORT int __tvm_ffi_##name(void*, const TVMFFIAny* given, int32_t count, TVMFFIAny* result) { \
    TVM_FFI_SAFE_CALL_BEGIN();                                                                                          \
    *reinterpret_cast<tvm::ffi::Any*>(result) =                                                                         \
        __VA_ARGS__(tvm::ffi::PackedArgs(reinterpret_cast<const tvm::ffi::AnyView*>(given), count));                     \
    TVM_FFI_SAFE_CALL_END();                                                                                            \
  }
