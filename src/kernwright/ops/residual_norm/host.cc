// The foreign functions add_norm and fused_add_rms_norm_ for one dtype of x on a GPU.
//
// A sum of x and a residual in one dtype has the kernels of residual_norm_scale_shift, compiled without gate and modulation: see
// norm_modulation/kernel.cu for their contract, and sum_kernel.cu for shapes of its own. Bytes per row: 4 D s for D elements of s
// bytes. Every other form has the kernels of kernel.cu.
// Share of a copy's bandwidth: not measured yet; tasks/add_norm has the rows to judge.

#include "calling.h"
#include "policy.h"
#include "rows.h"
#include "sum_policy.h"

namespace kernwright {

int launch(const Problem& p, const Variant& v, int device, void* stream);
int launch_sum(const Problem& p, int shape, int device, void* stream);
int launch(const GeneralSum& p, const TokenVariant& v, int device, void* stream);

namespace {

struct GeneralOwn : GeneralSum {
  Modulation residual_row;  // the residual as it was read, in any dtype
  bool has_residual = false;
};

Type output_type(const GeneralOwn& p, const Tokens* to) {
  return to == &p.sum && p.has_residual ? p.residual_row.type : p.type;
}

// As torch promotes two of these dtypes.
Type promoted(Type one, Type other) { return one == other ? one : Type::kFloat32; }

struct GeneralCall : CallDefaults {
  using Problem = GeneralOwn;
  using Own = GeneralOwn;
  static constexpr Parameter<GeneralOwn> kParameters[] = {
      ARGUMENT(kFirst, x, x),
      OPTIONAL_ARGUMENT(kUpdate, residual, residual_row),
      ARGUMENT(kAffine, weight, weight),
      ARGUMENT(kAffine, bias, bias),
      OPTIONAL_ARGUMENT(kUpdate, second, second),
      OPTIONAL_ARGUMENT(kBroadcast, row_scale, row_scale),
      ARGUMENT(kNormType, norm_type, is_rms),
      ARGUMENT(kNumber, eps, eps),
      ARGUMENT(kOutput, y, y),
      ARGUMENT(kOutput, residual_out, sum),
  };

  template <typename Given>
  static bool begin(GeneralOwn* start, const Given& given) {
    start->has_residual = given.maybe("residual").has_value();
    return true;
  }

  template <typename Given>
  static void finish(GeneralOwn* p, Reader*, const Given&) {
    const Modulation& residual = p->residual_row;
    p->residual = {const_cast<void*>(residual.data), residual.batch_step, residual.token_step};
    p->total = p->has_residual ? residual.type : p->type;
    const Type scaled = p->row_scale.data ? promoted(p->type, p->row_scale.type) : p->type;
    if (p->row_scale.data) p->scaled = scaled;
    if (p->second.data) p->joined = promoted(scaled, p->second.type);
  }

  static bool is_compiled(const GeneralSum& p) { return p.type == Type::KERNWRIGHT_TYPE; }
  static int start(const GeneralSum& p, int device, void* stream) { return launch(p, choose_variant(p), device, stream); }
};

// A view of a tensor with one more axis, of size 1. It lives as long as this.
class OneAxisMore {
 public:
  ffi::TensorView at(int place, ffi::TensorView own) {
    const int count = own.ndim() + 1;
    for (int axis = 0; axis < count; ++axis) {
      const int from = axis < place ? axis : axis - 1;
      sizes_[axis] = axis == place ? 1 : own.size(from);
      strides_[axis] = axis == place ? 1 : own.stride(from);
    }
    const auto ndim = static_cast<size_t>(count);
    return own.as_strided({sizes_.data(), ndim}, {strides_.data(), ndim}, 0);
  }

 private:
  std::array<int64_t, 17> sizes_{}, strides_{};
};

using General = Arguments<GeneralOwn, std::size(GeneralCall::kParameters)>;

// Every form of a sum and its norm.
template <typename Run>
bool each_general(General given, const GeneralOwn& start, int32_t device_type, const Run& run) {
  const ffi::TensorView x = given.first();
  if (x.ndim() == 0) TVM_FFI_THROW(ValueError) << "x: has no dimension to norm over";
  if (x.device().device_type != device_type || x.ndim() > 16) return false;
  std::array<OneAxisMore, std::size(GeneralCall::kParameters)> more;
  for (size_t i = 0; i < more.size(); ++i) {
    MaybeTensor& own = given.tensors[i];
    const Parameter<GeneralOwn>& parameter = given.list[i];
    if (!own.has_value()) continue;
    if (parameter.role == Role::kBroadcast) {  // row_scale: a number per row of x
      bool is_same = own.value().ndim() == x.ndim() - 1;
      for (int axis = 0; is_same && axis < own.value().ndim(); ++axis) is_same = own.value().size(axis) == x.size(axis);
      if (!is_same) TVM_FFI_THROW(ValueError) << "row_scale: has another shape than x without its last axis";
      own = more[i].at(own.value().ndim(), own.value());
    } else if (x.ndim() == 1 && parameter.role != Role::kAffine) {  // one row
      if (own.value().ndim() != 1)
        TVM_FFI_THROW(ValueError) << (parameter.tokens && i > 0 ? "out" : parameter.name) << ": has another shape than x";
      own = more[i].at(0, own.value());
    }
  }
  return each_part<GeneralCall>(given, start, device_type, run);
}

bool run_general(const General& given, const GeneralOwn& start) {
  const DLDevice device = given.first().device();
  return each_general(given, start, kDLCUDA, [&](GeneralOwn* own) { return launched<GeneralCall>(own, device); });
}

struct SumCall {
  using Own = Problem;
  static constexpr Parameter<Problem> kParameters[] = {ARGUMENT(kFirst, x, x),           ARGUMENT(kTokens, residual, residual),
                                                       ARGUMENT(kAffine, weight, weight), ARGUMENT(kAffine, bias, bias),
                                                       ARGUMENT(kOutput, y, y),          ARGUMENT(kOutput, residual_out, sum)};
  static bool is_compiled(const Problem& p) { return p.type == Type::KERNWRIGHT_TYPE; }
};

using Sum = Arguments<Problem, std::size(SumCall::kParameters)>;

bool are_alike(DLDataType one, DLDataType other) {
  return one.code == other.code && one.bits == other.bits && one.lanes == other.lanes;
}

// A sum of x and a residual in one dtype.
template <typename Run>
bool each_sum(const Sum& given, bool is_rms, float eps, int32_t device_type, const Run& run) {
  Problem problem;
  problem.is_rms = is_rms;
  problem.eps = eps;
  problem.has_residual = true;
  return each_run<SumCall>(problem, device_type, given, run);
}

bool run_sum(const Sum& given, bool is_rms, float eps) {
  const DLDevice device = given.first().device();
  return each_sum(given, is_rms, eps, kDLCUDA, [&](const Problem& own) {
    const Variant variant = choose_variant(own);
    const int shape = sum_shape_of(own, variant);
    launch_for_caller(device, [&](int number, void* stream) {
      return shape < 0 ? launch(own, variant, number, stream) : launch_sum(own, shape, number, stream);
    });
  });
}

bool add_norm(ffi::PackedArgs given) {
  GeneralOwn start;
  const General of = take(GeneralCall::kParameters, given, &start);
  const MaybeTensor residual = of.maybe("residual");
  const bool is_sum_of_two = residual.has_value() && !of.maybe("second").has_value() && !of.maybe("row_scale").has_value();
  if (!is_sum_of_two || !are_alike(of["x"].dtype(), residual.value().dtype())) return run_general(of, start);
  const Sum sum{SumCall::kParameters,
                {of["x"], residual, of.maybe("weight"), of.maybe("bias"), of["y"], of["residual_out"]}};
  return run_sum(sum, start.is_rms, start.eps);
}

// Whether each element of one lies where the other has the same one.
bool lies_in_place(ffi::TensorView one, ffi::TensorView other) {
  bool is_same = one.data_ptr() == other.data_ptr() && one.ndim() == other.ndim() && one.dtype().bits == other.dtype().bits;
  for (int axis = 0; is_same && axis < one.ndim(); ++axis)
    is_same = one.size(axis) == other.size(axis) && (one.size(axis) <= 1 || one.stride(axis) == other.stride(axis));
  return is_same;
}

void refuse_overlap(ffi::TensorView own, const char* name, ffi::TensorView other, const char* other_name) {
  if (share_memory(own, other)) TVM_FFI_THROW(ValueError) << name << ": overlaps " << other_name << ", and cannot be written";
}

// The outputs are x and the residual.
bool fused_add_rms_norm_(ffi::TensorView x, ffi::TensorView residual, MaybeTensor weight, double eps) {
  refuse_piled(x, "x"), refuse_piled(residual, "residual");
  if (!lies_in_place(x, residual)) refuse_overlap(x, "x", residual, "residual");
  if (weight.has_value()) {
    refuse_overlap(x, "x", weight.value(), "weight");
    refuse_overlap(residual, "residual", weight.value(), "weight");
  }
  if (are_alike(x.dtype(), residual.dtype()))
    return run_sum({SumCall::kParameters, {x, residual, weight, {}, x, residual}}, true, static_cast<float>(eps));
  GeneralOwn start;
  start.is_rms = true;
  start.eps = static_cast<float>(eps);
  return run_general({GeneralCall::kParameters, {x, residual, weight, {}, {}, {}, {}, {}, x, residual}}, start);
}

// What a sum of two would launch, in words, a line each; of tensors on any device, since nothing is launched.
ffi::String sum_variant(ffi::TensorView x, ffi::TensorView residual, MaybeTensor weight, MaybeTensor bias,
                        ffi::TensorView y, ffi::TensorView sum) {
  std::string words;
  const Sum given{SumCall::kParameters, {x, residual, weight, bias, y, sum}};
  const bool takes = each_sum(given, false, 0.f, x.device().device_type, [&](const Problem& own) {
    words += (words.empty() ? "" : "\n") + std::to_string(own.batches) + " x " + std::to_string(own.tokens) + " " +
             described_sum(own, choose_variant(own));
  });
  return takes ? words : "none";
}

}  // namespace
}  // namespace kernwright

KERNWRIGHT_EXPORT(add_norm, kernwright::add_norm)
KERNWRIGHT_EXPORT(add_norm_parameters, kernwright::parameters<kernwright::GeneralCall>)
TVM_FFI_DLL_EXPORT_TYPED_FUNC(fused_add_rms_norm_, kernwright::fused_add_rms_norm_);
TVM_FFI_DLL_EXPORT_TYPED_FUNC(variant, kernwright::sum_variant);
