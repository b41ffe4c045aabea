// Folding: the tensors of a call over x of more than three axes, as views of three that Reader takes; nothing is copied.
//
// A token asks only where it lies and where its rows of modulation do, so axes may change places, and grow together where
// every tensor walks through them in one stride. Of those that are left the two longest are batches and tokens; two that
// the tokens walk through in one stride are one, too, where modulations have a row for each step of the outer one: frames.
// Every other axis is walked through on the host, a launch for each step.
//
// What is wrong for every implementation throws ValueError, as in Reader. `folding.py` says the same for Triton.

#pragma once

#include <array>
#include <utility>

#include "reader.h"

namespace kernwright {

constexpr int kAxesOfReader = 3;

class Folding {
 public:
  using Views = const MaybeTensor*;  // in the order in which tensors were given

  explicit Folding(ffi::TensorView x, const char* x_name = "x", bool has_frames = true)
      : x_(x), x_name_(x_name), last_(x.ndim() - 1), takes_(last_ <= kMostAxes), has_frames_(has_frames) {}

  // A tensor of x's shape, in any dtype. The last one that is given, an output, says in what order axes are walked through.
  Folding& tokens(const MaybeTensor& maybe, const char* name, bool is_output = false) {
    if (!adds(maybe)) return *this;
    const ffi::TensorView own = maybe.value();
    bool is_same = own.ndim() == x_.ndim();
    for (int axis = 0; is_same && axis <= last_; ++axis) is_same = own.size(axis) == x_.size(axis);
    if (!is_same) TVM_FFI_THROW(ValueError) << name << ": has another shape than " << x_name_;
    if (is_output) refuse_piled(own, name);
    for (int axis = 0; axis < last_; ++axis) axes_[axis].steps[members_] = own.stride(axis);
    is_tokens_[members_] = true;
    lead_ = members_;
    places_[members_++] = count_ - 1;
    return *this;
  }

  // A modulation, which broadcasts as torch has it. `may_enlarge`: one that makes more of x than it is is for the reference.
  Folding& modulation(const MaybeTensor& maybe, const char* name, bool may_enlarge = false) {
    if (!adds(maybe)) return *this;
    const ffi::TensorView own = maybe.value();
    const int n = own.ndim(), ahead = x_.ndim() - n;
    if (ahead < 0 && !may_enlarge)
      TVM_FFI_THROW(ValueError) << name << ": has more dimensions than it can have beside " << x_name_;
    if (ahead < 0) return takes_ = false, *this;
    if (n < 2) return *this;  // one row, or one number, for all: it is handed on as it is
    for (int axis = 0; axis < last_; ++axis) {
      const int64_t size = axis < ahead ? 1 : own.size(axis - ahead), whole = x_.size(axis);
      if (size != 1 && size != whole && (whole != 1 || !may_enlarge))
        TVM_FFI_THROW(ValueError) << name << ": has " << size << " where " << x_name_ << " has " << whole << " in axis "
                                  << axis;
      if (size != 1 && size != whole) takes_ = false;
      axes_[axis].steps[members_] = size == 1 ? 0 : own.stride(axis - ahead);
    }
    is_tokens_[members_] = false;
    places_[members_++] = count_ - 1;
    return *this;
  }

  // Hands the views of each part of the call to `run`, which answers whether it took them: one part takes what all take.
  template <typename Run>
  bool each(const Run& run) {
    if (!takes_) return false;
    std::array<int64_t, kMostTensors> starts{};
    if (x_.numel() == 0) {  // looked at, and not launched
      token_ = Axis{0};
      return run(views(starts));
    }
    merge_axes();
    choose();
    return walk(0, starts, run);
  }

 private:
  static constexpr int kMostTensors = 12, kMostAxes = 15;

  struct Axis {
    int64_t size = 1;
    std::array<int64_t, kMostTensors> steps{};  // of each member
  };

  // Whether there is anything more to look at.
  bool adds(const MaybeTensor& maybe) {
    given_[count_++] = maybe;
    return takes_ && maybe.has_value();
  }

  void merge_axes() {
    left_ = 0;
    for (int axis = 0; axis < last_; ++axis) {
      if (x_.size(axis) == 1) continue;  // its stride leads nowhere, and may be any number
      axes_[left_] = axes_[axis];
      axes_[left_++].size = x_.size(axis);
    }
    for (int i = 1; i < left_; ++i)  // by insertion: there are few, and those that are equal keep their order
      for (int j = i; j > 0 && axes_[j].steps[lead_] > axes_[j - 1].steps[lead_]; --j) std::swap(axes_[j], axes_[j - 1]);
    int merged = 0;
    for (int i = 0; i < left_; ++i) {
      if (merged > 0 && continues(axes_[merged - 1], axes_[i], false)) {
        axes_[merged - 1].size *= axes_[i].size;
        axes_[merged - 1].steps = axes_[i].steps;
      } else {
        axes_[merged++] = axes_[i];
      }
    }
    left_ = merged;
  }

  // Whether every tensor walks through both axes in one stride; as frames a modulation may have a row for many inner steps.
  bool continues(const Axis& outer, const Axis& inner, bool as_frames) const {
    for (int m = 0; m < members_; ++m) {
      const bool is_row = as_frames && !is_tokens_[m] && inner.steps[m] == 0;
      if (outer.steps[m] != inner.size * inner.steps[m] && !is_row) return false;
    }
    return true;
  }

  // The longest axis but those from `first` on to `last`; -1 if there is none.
  int longest_but(int first, int last) const {
    int found = -1;
    for (int i = 0; i < left_; ++i)
      if ((i < first || i > last) && (found < 0 || axes_[i].size > axes_[found].size)) found = i;
    return found;
  }

  // Which axes are batches, tokens and frames of tokens; of the others as few steps are left as can be.
  void choose() {
    int token = longest_but(-1, -1), batch = token < 0 ? -1 : longest_but(token, token), frame = -1;
    if (batch > token) std::swap(batch, token);  // tokens are the one whose rows lie closer
    int64_t covered = left_ > 1 ? axes_[token].size * axes_[batch].size : 0;
    for (int i = left_ - 2; has_frames_ && left_ > 2 && i >= 0; --i) {  // from the axes whose rows lie closest
      if (!continues(axes_[i], axes_[i + 1], true)) continue;
      const int other = longest_but(i, i + 1);
      const int64_t own = axes_[i].size * axes_[i + 1].size * axes_[other].size;
      if (own > covered) covered = own, frame = i, token = i + 1, batch = other;
    }
    if (token >= 0) token_ = axes_[token];
    if (batch >= 0) batch_ = axes_[batch];
    if (frame >= 0) frame_ = axes_[frame];
    int rest = 0;
    for (int i = 0; i < left_; ++i)
      if (i != token && i != batch && i != frame) axes_[rest++] = axes_[i];
    left_ = rest;
  }

  // Every element of the axes from `first` on is a part of the call that starts elsewhere.
  template <typename Run>
  bool walk(int first, const std::array<int64_t, kMostTensors>& starts, const Run& run) {
    if (first >= left_) return run(views(starts));
    for (int64_t index = 0; index < axes_[first].size; ++index) {
      auto there = starts;
      for (int m = 0; m < members_; ++m) there[m] += index * axes_[first].steps[m];
      if (!walk(first + 1, there, run)) return false;
    }
    return true;
  }

  Views views(const std::array<int64_t, kMostTensors>& starts) {
    for (int i = 0; i < count_; ++i) views_[i] = given_[i];
    for (int m = 0; m < members_; ++m) {
      const ffi::TensorView own = given_[places_[m]].value();
      const int64_t channels = own.size(own.ndim() - 1), step = own.stride(own.ndim() - 1);
      const int64_t outer = frame_.steps[m], inner = token_.steps[m], batch = batch_.steps[m];
      const bool is_frames = frame_.size > 1 && outer != token_.size * inner;
      auto &sizes = sizes_[m], &strides = strides_[m];
      if (is_frames) sizes = {batch_.size, frame_.size, 1, channels}, strides = {batch, outer, 0, step};
      else sizes = {batch_.size, frame_.size * token_.size, channels}, strides = {batch, inner, step};
      const size_t ndim = is_frames ? 4 : 3;
      views_[places_[m]] = own.as_strided({sizes.data(), ndim}, {strides.data(), ndim}, starts[m]);
    }
    return views_.data();
  }

  ffi::TensorView x_;
  const char* x_name_;
  int last_;
  bool takes_, has_frames_;
  int count_ = 0, members_ = 0, lead_ = 0, left_ = 0;
  std::array<MaybeTensor, kMostTensors> given_, views_;
  std::array<int, kMostTensors> places_{};  // of each member among what was given
  std::array<bool, kMostTensors> is_tokens_{};
  std::array<Axis, kMostAxes> axes_;
  Axis batch_, frame_, token_;
  std::array<std::array<int64_t, 4>, kMostTensors> sizes_{}, strides_{};
};

}  // namespace kernwright
