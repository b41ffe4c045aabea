// Reader: from tensors to Tokens and Modulations, or to an error that names the argument.
//
// What is wrong for every implementation throws ValueError. What is right, but not for these kernels (another
// dtype, a last axis with gaps), makes `takes` answer false: the caller has other ways to run it.

#pragma once

#include <tvm/ffi/container/tensor.h>
#include <tvm/ffi/error.h>
#include <tvm/ffi/function.h>
#include <tvm/ffi/optional.h>
#include <tvm/ffi/string.h>

#include "overlaps.h"
#include "tensors.h"

namespace kernwright {

namespace ffi = tvm::ffi;
using MaybeTensor = ffi::Optional<ffi::TensorView>;

inline bool read_type(DLDataType own, Type* type, const char* name) {
  if (own.lanes == 1 && own.code == kDLFloat && own.bits == 32) return *type = Type::kFloat32, true;
  if (own.lanes == 1 && own.code == kDLFloat && own.bits == 16) return *type = Type::kFloat16, true;
  if (own.lanes == 1 && own.code == kDLBfloat && own.bits == 16) return *type = Type::kBFloat16, true;
  if (own.code == kDLInt || own.code == kDLUInt || own.code == kDLBool || own.code == kDLComplex)
    TVM_FFI_THROW(ValueError) << name << ": is no floating-point tensor";
  return false;
}

// Elements that lie on top of each other cannot each be written.
inline void refuse_piled(ffi::TensorView own, const char* name) {
  if (!overlaps_itself(own)) return;
  for (int axis = 0; axis < own.ndim(); ++axis)
    if (own.size(axis) > 1 && own.stride(axis) == 0)
      TVM_FFI_THROW(ValueError) << name << ": is expanded, and cannot be written";
  TVM_FFI_THROW(ValueError) << name << ": overlaps itself, and cannot be written";
}

class Reader {
 public:
  // x, whatever the op calls it, gives the sizes that all others are held against: [B, S, D] or [S, D].
  Reader(Extent* extent, ffi::TensorView x, int32_t device_type, const char* x_name = "x", int64_t widest = kWidest)
      : extent_(extent), ndim_(x.ndim()), device_(x.device()), x_name_(x_name) {
    takes_ = device_.device_type == device_type && read_type(x.dtype(), &extent->type, x_name) &&
             (ndim_ == 2 || ndim_ == 3);
    if (!takes_) return;
    extent->batches = ndim_ == 3 ? x.size(0) : 1;
    extent->tokens = x.size(ndim_ - 2);
    takes_ = x.size(ndim_ - 1) <= widest;
    extent->width = takes_ ? static_cast<int32_t>(x.size(ndim_ - 1)) : 0;
  }

  bool takes() const { return takes_; }

  // A tensor of x's shape and dtype.
  void tokens(ffi::TensorView own, Tokens* to, const char* name, bool is_output = false) {
    tokens_of(extent_->type, own, to, name, is_output);
  }

  // A tensor of x's shape in a dtype of its own.
  void tokens_of(Type wanted, ffi::TensorView own, Tokens* to, const char* name, bool is_output = false) {
    if (!takes_) return;
    check_device(own, name);
    const bool same = own.ndim() == ndim_ && own.size(ndim_ - 1) == extent_->width &&
                      own.size(ndim_ - 2) == extent_->tokens && (ndim_ == 2 || own.size(0) == extent_->batches);
    if (!same) TVM_FFI_THROW(ValueError) << name << ": has another shape than " << x_name_;
    Type type;
    if (!read_type(own.dtype(), &type, name) || type != wanted) {
      if (is_output) TVM_FFI_THROW(ValueError) << name << ": has another dtype than the result";
      takes_ = false;  // the reference promotes
      return;
    }
    if (is_output) refuse_piled(own, name);
    if (extent_->width > 1 && own.stride(ndim_ - 1) != 1) {
      takes_ = false;
      return;
    }
    to->data = own.data_ptr();
    refuse_nowhere(own);
    // The stride of an axis of size 1 leads nowhere, and may be any number.
    to->token_step = extent_->tokens == 1 ? 0 : own.stride(ndim_ - 2);
    to->batch_step = extent_->batches == 1 ? 0 : own.stride(0);
  }

  // Its data and dtype; where its rows lie is the caller's to say. False: nothing more is to be read.
  bool begins(ffi::TensorView own, Modulation* to, const char* name) {
    if (!takes_) return false;
    check_device(own, name);
    if (!read_type(own.dtype(), &to->type, name)) return takes_ = false;
    to->data = own.data_ptr();
    refuse_nowhere(own);
    return takes_;
  }

  // A modulation as torch broadcasts it: its axes are the last ones of x, so [S, D] is a row per token.
  void broadcast(ffi::TensorView own, Modulation* to, const char* name) {
    if (!begins(own, to, name) || own.ndim() == 0) return;
    const int n = own.ndim();
    takes_ = n <= ndim_;
    if (!takes_) return;
    const int64_t channels = broadcast_step(own, n - 1, extent_->width, "channels", name);
    if (channels != 0 && channels != 1) takes_ = false;
    to->channel_step = static_cast<int32_t>(channels);
    if (n > 1) to->token_step = broadcast_step(own, n - 2, extent_->tokens, "tokens", name);
    if (n > 2) to->batch_step = broadcast_step(own, n - 3, extent_->batches, "batch entries", name);
  }

  // How far apart an axis's places lie: 0 where one serves all. What would make more of x is for the reference.
  int64_t broadcast_step(ffi::TensorView own, int axis, int64_t whole, const char* of, const char* name) {
    const int64_t size = own.size(axis);
    if (size == 1) return 0;
    if (size != whole && whole != 1)
      TVM_FFI_THROW(ValueError) << name << ": has " << size << " where " << x_name_ << " has " << whole << " " << of;
    if (size != whole) takes_ = false;
    return own.stride(axis);
  }

  void refuse() { takes_ = false; }

  // Scale, shift or gate: one number, [D], [B, D], [B, S, D] with any axis 1, or [B, F, 1, D].
  void modulation(ffi::TensorView own, Modulation* to, const char* name) {
    if (!begins(own, to, name) || own.ndim() == 0) return;
    const int n = own.ndim();
    last_axis(own, to, name);
    auto step = [&](int axis, int64_t whole, const char* of) {
      if (own.size(axis) == 1) return int64_t{0};
      if (own.size(axis) != whole)
        TVM_FFI_THROW(ValueError) << name << ": has " << own.size(axis) << " where " << x_name_ << " has " << whole << " " << of;
      return own.stride(axis);
    };
    if (n == 4 && ndim_ == 3) {
      const int64_t frames = own.size(1);
      if (frames == 0 || extent_->tokens % frames != 0)
        TVM_FFI_THROW(ValueError) << name << ": " << extent_->tokens << " tokens do not divide into " << frames
                                  << " frames";
      if (own.size(2) != 1) fail(name, "must have size 1 behind its frames, as in [B, F, 1, D]");
      to->batch_step = step(0, extent_->batches, "batch entries");
      to->token_step = frames == 1 ? 0 : own.stride(1);
      to->tokens_per_row = frames == 1 ? 1 : extent_->tokens / frames;
    } else if (n > ndim_) {
      TVM_FFI_THROW(ValueError) << name << ": has more dimensions than it can have beside " << x_name_;
    } else if (n == 3) {
      to->batch_step = step(0, extent_->batches, "batch entries");
      to->token_step = step(1, extent_->tokens, "tokens");
    } else if (n == 2 && ndim_ == 3) {
      to->batch_step = step(0, extent_->batches, "batch entries");
    } else if (n == 2) {
      to->token_step = step(0, extent_->tokens, "tokens");
    }
  }

  void affine(MaybeTensor own, Modulation* to, const char* name) {
    if (!takes_ || !own.has_value()) return;
    if (own.value().ndim() != 1 || own.value().size(0) != extent_->width)
      TVM_FFI_THROW(ValueError) << name << ": must be [" << extent_->width << "], the width of " << x_name_;
    modulation(own.value(), to, name);
  }

 private:
  [[noreturn]] static void fail(const char* name, const char* problem) {
    TVM_FFI_THROW(ValueError) << name << ": " << problem;
    throw;
  }

  void check_device(ffi::TensorView own, const char* name) const {
    if (own.device().device_type != device_.device_type || own.device().device_id != device_.device_id)
      TVM_FFI_THROW(ValueError) << name << ": is on another device than " << x_name_;
  }

  // A tensor that stands for another one (a fake, a wrapper) has elements, and no memory.
  void refuse_nowhere(ffi::TensorView own) {
    if (own.data_ptr() == nullptr && own.numel() != 0) takes_ = false;
  }

  void last_axis(ffi::TensorView own, Modulation* to, const char* name) {
    const int last = own.ndim() - 1;
    if (own.size(last) == 1) return;
    if (own.size(last) != extent_->width)
      TVM_FFI_THROW(ValueError) << name << ": has " << own.size(last) << " channels, " << x_name_ << " has " << extent_->width;
    const int64_t step = own.stride(last);
    if (step != 0 && step != 1) takes_ = false;  // an expanded number has step 0, and is as good as one number
    to->channel_step = static_cast<int32_t>(step);
  }

  Extent* extent_;
  int ndim_;
  DLDevice device_;
  const char* x_name_;
  bool takes_;
};

}  // namespace kernwright
