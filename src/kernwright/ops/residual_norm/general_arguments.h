// Arguments of every form of a sum and its norm: from tensors to a GeneralSum, or to an error that names the argument.
//
// What is wrong for every implementation throws ValueError. What is right, but not for these kernels (another dtype, a last
// axis with gaps), makes `each_sum` answer false: the caller has other ways to run it.

#pragma once

#include <array>

#include "folding.h"
#include "general_problem.h"

namespace kernwright {

constexpr int kAxesOfSums = 16;

struct SumTensors {
  ffi::TensorView x;
  MaybeTensor residual, second, row_scale;  // the last with an axis of size 1 behind its own
  ffi::TensorView y, sum;
};

struct NormOfSum {
  MaybeTensor weight, bias;
  bool is_rms;
  double eps;
};

// A view of a tensor with one more axis, of size 1. It lives as long as this.
class OneAxisMore {
 public:
  ffi::TensorView behind(ffi::TensorView own) { return with(own, own.ndim()); }
  ffi::TensorView ahead(ffi::TensorView own) { return with(own, 0); }

 private:
  ffi::TensorView with(ffi::TensorView own, int place) {
    const int count = own.ndim() + 1;
    for (int axis = 0; axis < count; ++axis) {
      const int from = axis < place ? axis : axis - 1;
      sizes_[axis] = axis == place ? 1 : own.size(from);
      strides_[axis] = axis == place ? 1 : own.stride(from);
    }
    const auto ndim = static_cast<size_t>(count);
    return own.as_strided({sizes_.data(), ndim}, {strides_.data(), ndim}, 0);
  }

  std::array<int64_t, kAxesOfSums + 1> sizes_{}, strides_{};
};

// As torch promotes two of these dtypes.
inline Type promoted(Type one, Type other) { return one == other ? one : Type::kFloat32; }

// A tensor of x's shape, in a dtype of its own.
inline void read_tokens(Reader* reader, ffi::TensorView own, Tokens* to, Type* type, const char* name) {
  if (!reader->takes()) return;
  if (read_type(own.dtype(), type, name)) reader->tokens_of(*type, own, to, name);
  else reader->refuse();
}

// Of x with two or three axes. False: these kernels do not take the call.
inline bool read_sum(GeneralSum* p, int32_t device_type, const SumTensors& of, const NormOfSum& norm) {
  p->is_rms = norm.is_rms;
  p->eps = static_cast<float>(norm.eps);
  Reader reader(p, of.x, device_type);
  reader.tokens(of.x, &p->x, "x");
  Type current = p->type;
  p->total = p->type;
  if (of.row_scale.has_value()) {
    reader.modulation(of.row_scale.value(), &p->row_scale, "row_scale");
    p->scaled = current = promoted(current, p->row_scale.type);
  }
  if (of.second.has_value()) {
    Tokens second;
    read_tokens(&reader, of.second.value(), &second, &p->second.type, "second");
    p->second.data = second.data, p->second.batch_step = second.batch_step, p->second.token_step = second.token_step;
    p->second.channel_step = 1;
    p->joined = promoted(current, p->second.type);
  }
  if (of.residual.has_value()) read_tokens(&reader, of.residual.value(), &p->residual, &p->total, "residual");
  reader.affine(norm.weight, &p->weight, "weight");
  reader.affine(norm.bias, &p->bias, "bias");
  reader.tokens_of(p->total, of.sum, &p->sum, "out", true);
  reader.tokens(of.y, &p->y, "out", true);
  return reader.takes();
}

// As above, of x with any axes: hands each GeneralSum that the call amounts to to `run`. Here row_scale has its own axes alone.
template <typename Run>
bool each_sum(int32_t device_type, const SumTensors& given, const NormOfSum& norm, const Run& run) {
  const ffi::TensorView x = given.x;
  if (x.ndim() == 0) TVM_FFI_THROW(ValueError) << "x: has no dimension to norm over";
  if (x.device().device_type != device_type || x.ndim() > kAxesOfSums) return false;
  auto one = [&](const SumTensors& own) {
    GeneralSum problem;
    return read_sum(&problem, device_type, own, norm) && run(&problem);
  };
  SumTensors of = given;
  std::array<OneAxisMore, 6> more;
  if (given.row_scale.has_value()) {
    const ffi::TensorView own = given.row_scale.value();
    bool is_same = own.ndim() == x.ndim() - 1;
    for (int axis = 0; is_same && axis < own.ndim(); ++axis) is_same = own.size(axis) == x.size(axis);
    if (!is_same) TVM_FFI_THROW(ValueError) << "row_scale: has another shape than x without its last axis";
    of.row_scale = more[0].behind(own);
  }
  if (x.ndim() == 1) {  // one row
    auto as_row = [&](int number, ffi::TensorView own, const char* name) {
      if (own.ndim() != 1) TVM_FFI_THROW(ValueError) << name << ": has another shape than x";
      return more[number].ahead(own);
    };
    of.x = as_row(1, x, "x");
    if (given.residual.has_value()) of.residual = as_row(2, given.residual.value(), "residual");
    if (given.second.has_value()) of.second = as_row(3, given.second.value(), "second");
    of.y = as_row(4, given.y, "out"), of.sum = as_row(5, given.sum, "out");
  }
  if (of.x.ndim() <= kAxesOfReader) return one(of);
  Folding folding(x, "x", false);
  folding.tokens(x, "x").tokens(of.residual, "residual").tokens(of.second, "second");
  folding.modulation(of.row_scale, "row_scale").tokens(of.sum, "out", true).tokens(of.y, "out", true);
  return folding.each([&](Folding::Views own) {
    return one({own[0].value(), own[1], own[2], own[3], own[5].value(), own[4].value()});
  });
}

}  // namespace kernwright
