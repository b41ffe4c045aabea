// Arguments: from tensors to a Problem, or to an error that names the argument.
//
// What is wrong for every implementation throws ValueError. What is right, but not for these kernels (another
// dtype, a last axis with gaps), makes `read` answer false: the caller has other ways to run it.

#pragma once

#include <tvm/ffi/container/tensor.h>
#include <tvm/ffi/error.h>
#include <tvm/ffi/function.h>
#include <tvm/ffi/optional.h>
#include <tvm/ffi/string.h>

#include "problem.h"

namespace kernwright {

namespace ffi = tvm::ffi;
using MaybeTensor = ffi::Optional<ffi::TensorView>;

inline bool read_type(DLDataType own, Type* type, const char* name) {
  if (own.lanes == 1 && own.code == kDLFloat && own.bits == 32) return *type = Type::kFloat32, true;
  if (own.lanes == 1 && own.code == kDLFloat && own.bits == 16) return *type = Type::kFloat16, true;
  if (own.lanes == 1 && own.code == kDLBfloat && own.bits == 16) return *type = Type::kBFloat16, true;
  if (own.code != kDLFloat && own.code != kDLBfloat)
    TVM_FFI_THROW(ValueError) << name << ": is no floating-point tensor";
  return false;
}

class Reader {
 public:
  // x gives the sizes that all others are held against: [B, S, D] or [S, D].
  Reader(Problem* problem, ffi::TensorView x, int32_t device_type)
      : problem_(problem), ndim_(x.ndim()), device_(x.device()) {
    takes_ = device_.device_type == device_type && read_type(x.dtype(), &problem->type, "x") && (ndim_ == 2 || ndim_ == 3);
    if (!takes_) return;
    problem->batches = ndim_ == 3 ? x.size(0) : 1;
    problem->tokens = x.size(ndim_ - 2);
    takes_ = x.size(ndim_ - 1) <= kWidest;
    problem->width = takes_ ? static_cast<int32_t>(x.size(ndim_ - 1)) : 0;
  }

  bool takes() const { return takes_; }

  // A tensor of x's shape and dtype.
  void tokens(ffi::TensorView own, Tokens* to, const char* name, bool is_output = false) {
    if (!takes_) return;
    check_device(own, name);
    const bool same = own.ndim() == ndim_ && own.size(ndim_ - 1) == problem_->width &&
                      own.size(ndim_ - 2) == problem_->tokens && (ndim_ == 2 || own.size(0) == problem_->batches);
    if (!same) fail(name, "has another shape than x");
    Type type;
    if (!read_type(own.dtype(), &type, name) || type != problem_->type) {
      if (is_output) TVM_FFI_THROW(ValueError) << name << ": has another dtype than x";
      takes_ = false;  // the reference promotes
      return;
    }
    if (problem_->width > 1 && own.stride(ndim_ - 1) != 1) {
      takes_ = false;
      return;
    }
    to->data = own.data_ptr();
    refuse_nowhere(own);
    // The stride of an axis of size 1 leads nowhere, and may be any number.
    to->token_step = problem_->tokens == 1 ? 0 : own.stride(ndim_ - 2);
    to->batch_step = problem_->batches == 1 ? 0 : own.stride(0);
  }

  // Scale, shift or gate: one number, [D], [B, D], [B, S, D] with any axis 1, or [B, F, 1, D].
  void modulation(ffi::TensorView own, Modulation* to, const char* name) {
    if (!takes_) return;
    check_device(own, name);
    if (!read_type(own.dtype(), &to->type, name)) {
      takes_ = false;
      return;
    }
    to->data = own.data_ptr();
    refuse_nowhere(own);
    const int n = own.ndim();
    if (n == 0) return;
    last_axis(own, to, name);
    auto step = [&](int axis, int64_t whole, const char* of) {
      if (own.size(axis) == 1) return int64_t{0};
      if (own.size(axis) != whole)
        TVM_FFI_THROW(ValueError) << name << ": has " << own.size(axis) << " where x has " << whole << " " << of;
      return own.stride(axis);
    };
    if (n == 4 && ndim_ == 3) {
      const int64_t frames = own.size(1);
      if (frames == 0 || problem_->tokens % frames != 0)
        TVM_FFI_THROW(ValueError) << name << ": " << problem_->tokens << " tokens do not divide into " << frames
                                  << " frames";
      if (own.size(2) != 1) fail(name, "must have size 1 behind its frames, as in [B, F, 1, D]");
      to->batch_step = step(0, problem_->batches, "batch entries");
      to->token_step = frames == 1 ? 0 : own.stride(1);
      to->tokens_per_row = frames == 1 ? 1 : problem_->tokens / frames;
    } else if (n > ndim_) {
      fail(name, "has more dimensions than it can have beside x");
    } else if (n == 3) {
      to->batch_step = step(0, problem_->batches, "batch entries");
      to->token_step = step(1, problem_->tokens, "tokens");
    } else if (n == 2 && ndim_ == 3) {
      to->batch_step = step(0, problem_->batches, "batch entries");
    } else if (n == 2) {
      to->token_step = step(0, problem_->tokens, "tokens");
    }
  }

  void affine(MaybeTensor own, Modulation* to, const char* name) {
    if (!takes_ || !own.has_value()) return;
    if (own.value().ndim() != 1 || own.value().size(0) != problem_->width)
      TVM_FFI_THROW(ValueError) << name << ": must be [" << problem_->width << "], the width of x";
    modulation(own.value(), to, name);
  }

 private:
  [[noreturn]] static void fail(const char* name, const char* problem) {
    TVM_FFI_THROW(ValueError) << name << ": " << problem;
    throw;
  }

  void check_device(ffi::TensorView own, const char* name) const {
    if (own.device().device_type != device_.device_type || own.device().device_id != device_.device_id)
      fail(name, "is on another device than x");
  }

  // A tensor that stands for another one (a fake, a wrapper) has elements, and no memory.
  void refuse_nowhere(ffi::TensorView own) {
    if (own.data_ptr() == nullptr && own.numel() != 0) takes_ = false;
  }

  void last_axis(ffi::TensorView own, Modulation* to, const char* name) {
    const int last = own.ndim() - 1;
    if (own.size(last) == 1) return;
    if (own.size(last) != problem_->width)
      TVM_FFI_THROW(ValueError) << name << ": has " << own.size(last) << " channels, x has " << problem_->width;
    const int64_t step = own.stride(last);
    if (step != 0 && step != 1) takes_ = false;  // an expanded number has step 0, and is as good as one number
    to->channel_step = static_cast<int32_t>(step);
  }

  Problem* problem_;
  int ndim_;
  DLDevice device_;
  bool takes_;
};

inline bool read_norm(const ffi::String& norm_type, const MaybeTensor& weight, const MaybeTensor& bias) {
  const bool is_rms = norm_type == "rms";
  if (!is_rms && !(norm_type == "layer"))
    TVM_FFI_THROW(ValueError) << "norm_type is 'layer' or 'rms', not '" << std::string(norm_type) << "'";
  if (bias.has_value() && is_rms) TVM_FFI_THROW(ValueError) << "bias: an RMS norm has no bias";
  if (bias.has_value() && !weight.has_value()) TVM_FFI_THROW(ValueError) << "bias: comes only with a weight";
  return is_rms;
}

// False: these kernels do not take the call.
inline bool read(Problem* problem, int32_t device_type, ffi::TensorView x, MaybeTensor residual, ffi::TensorView scale,
                 ffi::TensorView shift, MaybeTensor gate, MaybeTensor weight, MaybeTensor bias,
                 const ffi::String& norm_type, double eps, ffi::TensorView y, MaybeTensor sum) {
  problem->is_rms = read_norm(norm_type, weight, bias);
  problem->eps = static_cast<float>(eps);
  problem->has_residual = residual.has_value();
  Reader reader(problem, x, device_type);
  reader.tokens(x, &problem->x, "x");
  if (residual.has_value()) reader.tokens(residual.value(), &problem->residual, "residual");
  reader.modulation(scale, &problem->scale, "scale");
  reader.modulation(shift, &problem->shift, "shift");
  if (gate.has_value()) reader.modulation(gate.value(), &problem->gate, "gate");
  reader.affine(weight, &problem->weight, "weight");
  reader.affine(bias, &problem->bias, "bias");
  reader.tokens(y, &problem->y, "out", true);
  if (sum.has_value()) reader.tokens(sum.value(), &problem->sum, "out", true);
  return reader.takes();
}

}  // namespace kernwright
