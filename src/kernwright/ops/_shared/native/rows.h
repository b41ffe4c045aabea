// NormedRows: tensors of one shape, whatever their leading axes, as Problems of batches and tokens; or an error that names the
// argument.
//
// A norm alone asks of a row only where it lies, so axes may change places and grow together: a dense tensor, turned
// around or not, is one run of rows, and heads cut out of a packed projection are a batch of runs. Beyond two axes that
// will not merge, the shorter ones are walked through on the host, a launch for each step; no tensor is copied.
//
// What is wrong for every implementation throws ValueError. What is right, but not for these kernels (another dtype, a
// last axis with gaps), makes `takes` answer false. `rows.py` does the same for Triton.

#pragma once

#include <array>
#include <utility>

#include "parameters.h"

namespace kernwright {

template <typename Problem>
class NormedRows {
 public:
  using Place = Tokens* (*)(Problem*);

  NormedRows(Problem* problem, ffi::TensorView x, int32_t device_type) : problem_(problem), x_(x), last_(x.ndim() - 1) {
    if (x.ndim() == 0) TVM_FFI_THROW(ValueError) << "x: has no dimension to norm over";
    takes_ = x.device().device_type == device_type && read_type(x.dtype(), &problem->type, "x") &&
             x.size(last_) <= kWidest && last_ <= kMostAxes;
    problem->width = takes_ ? static_cast<int32_t>(x.size(last_)) : 0;
  }

  bool takes() const { return takes_; }

  // A tensor of x's shape and dtype.
  void tokens(ffi::TensorView own, Place to, const char* name, bool is_output = false) {
    if (!takes_) return;
    check_device(own, name);
    bool is_same = own.ndim() == x_.ndim();
    for (int axis = 0; is_same && axis <= last_; ++axis) is_same = own.size(axis) == x_.size(axis);
    if (!is_same) TVM_FFI_THROW(ValueError) << name << ": has another shape than x";
    Type type;
    if (!read_type(own.dtype(), &type, name) || type != problem_->type) {
      if (is_output) TVM_FFI_THROW(ValueError) << name << ": has another dtype than x";
      takes_ = false;
      return;
    }
    if (is_output) refuse_piled(own, name);
    takes_ = is_somewhere(own) && (problem_->width <= 1 || own.stride(last_) == 1);
    to(problem_)->data = own.data_ptr();
    for (int axis = 0; axis < last_; ++axis) axes_[axis].steps[members_] = own.stride(axis);
    places_[members_++] = to;
  }

  // A weight or a bias, in a dtype of its own.
  void affine(const MaybeTensor& maybe, Modulation* to, const char* name) {
    if (!takes_ || !maybe.has_value()) return;
    const ffi::TensorView own = maybe.value();
    check_device(own, name);
    if (own.ndim() != 1 || own.size(0) != problem_->width)
      TVM_FFI_THROW(ValueError) << name << ": must be [" << problem_->width << "], the width of x";
    takes_ = read_type(own.dtype(), &to->type, name) && is_somewhere(own) &&
             (problem_->width <= 1 || own.stride(0) == 1);
    to->data = own.data_ptr();
    to->channel_step = 1;
  }

  // Hands each Problem that the tensors amount to, one after the other, to `run`. Of no elements there is none.
  template <typename Run>
  void each(const Run& run) {
    if (x_.numel() == 0) return;
    merge_axes();
    // The two longest become the grid. Tokens, which share blocks, are the one whose rows lie closer, if it fills them.
    sort_axes([](const Axis& a, const Axis& b) { return a.size > b.size; });
    Axis token = count_ > 0 ? axes_[0] : Axis{}, batch = count_ > 1 ? axes_[1] : Axis{};
    if (batch.size >= kRowsThatFill && output_step(batch) < output_step(token)) std::swap(batch, token);
    Problem own = *problem_;
    own.batches = batch.size;
    own.tokens = token.size;
    for (int i = 0; i < members_; ++i) {
      places_[i](&own)->batch_step = batch.steps[i];
      places_[i](&own)->token_step = token.steps[i];
    }
    walk(own, 2, run);
  }

 private:
  static constexpr int kMostMembers = 4, kMostAxes = 15;
  static constexpr int64_t kRowsThatFill = 16;  // a block of small rows: 8 of 128 elements at once, 16 of 64

  struct Axis {
    int64_t size = 1;
    std::array<int64_t, kMostMembers> steps{};  // of each member
  };

  // The last member is an output.
  int64_t output_step(const Axis& axis) const { return axis.steps[members_ - 1]; }

  // By insertion: there are few, and those that are equal keep their order.
  template <typename Before>
  void sort_axes(const Before& before) {
    for (int i = 1; i < count_; ++i)
      for (int j = i; j > 0 && before(axes_[j], axes_[j - 1]); --j) std::swap(axes_[j], axes_[j - 1]);
  }

  void merge_axes() {
    count_ = 0;
    for (int axis = 0; axis < last_; ++axis) {
      if (x_.size(axis) == 1) continue;  // its stride leads nowhere, and may be any number
      axes_[count_] = axes_[axis];
      axes_[count_++].size = x_.size(axis);
    }
    sort_axes([this](const Axis& a, const Axis& b) { return output_step(a) > output_step(b); });
    int merged = 0;
    for (int i = 0; i < count_; ++i) {
      bool continues = merged > 0;
      for (int m = 0; continues && m < members_; ++m)
        continues = axes_[merged - 1].steps[m] == axes_[i].size * axes_[i].steps[m];
      if (continues) {
        axes_[merged - 1].size *= axes_[i].size;
        axes_[merged - 1].steps = axes_[i].steps;
      } else {
        axes_[merged++] = axes_[i];
      }
    }
    count_ = merged;
  }

  // Every element of the axes from `first` on is a Problem that starts elsewhere.
  template <typename Run>
  void walk(const Problem& own, int first, const Run& run) const {
    if (first >= count_) return run(own);
    const int64_t bytes = own.type == Type::kFloat32 ? 4 : 2;
    for (int64_t index = 0; index < axes_[first].size; ++index) {
      Problem there = own;
      for (int i = 0; i < members_; ++i) {
        Tokens& member = *places_[i](&there);
        member.data = static_cast<char*>(member.data) + index * axes_[first].steps[i] * bytes;
      }
      walk(there, first + 1, run);
    }
  }

  void check_device(ffi::TensorView own, const char* name) const {
    if (own.device().device_type != x_.device().device_type || own.device().device_id != x_.device().device_id)
      TVM_FFI_THROW(ValueError) << name << ": is on another device than x";
  }

  // A tensor that stands for another one (a fake, a wrapper) has elements, and no memory.
  static bool is_somewhere(ffi::TensorView own) { return own.data_ptr() != nullptr || own.numel() == 0; }

  Problem* problem_;
  ffi::TensorView x_;
  int last_;
  bool takes_;
  int members_ = 0, count_ = 0;
  std::array<Place, kMostMembers> places_{};
  std::array<Axis, kMostAxes> axes_{};
};

// Reads a call of rows from its list of parameters: tokens, affine rows and outputs.
template <typename Call, size_t kCount>
NormedRows<typename Call::Own> read_rows(typename Call::Own* problem, int32_t device_type,
                                         const Arguments<typename Call::Own, kCount>& given) {
  NormedRows<typename Call::Own> rows(problem, given.first(), device_type);
  for (size_t i = 0; i < kCount; ++i) {
    const auto& own = given.list[i];
    if (!is_tensor(own.role) || !given.tensors[i].has_value()) continue;
    if (own.row) rows.affine(given.tensors[i], own.row(problem), own.name);
    else if (own.role != Role::kOutput) rows.tokens(given.tensors[i].value(), own.tokens, own.name);
  }
  for (size_t i = kCount; i-- > 0;)  // the first output comes last: it gives the order of axes
    if (given.list[i].role == Role::kOutput) rows.tokens(given.tensors[i].value(), given.list[i].tokens, "out", true);
  return rows;
}

// Hands each Problem of a call to `run`. False: these kernels do not take the call.
template <typename Call, size_t kCount, typename Run>
bool each_run(typename Call::Own problem, int32_t device_type, const Arguments<typename Call::Own, kCount>& given,
              const Run& run) {
  auto rows = read_rows<Call>(&problem, device_type, given);
  if (!rows.takes() || (device_type == kDLCUDA && !Call::is_compiled(problem))) return false;
  rows.each(run);
  return true;
}

}  // namespace kernwright
