// Overlaps: whether elements of a tensor, or of two, lie on top of each other. Exact, of any strides: tensors cut out of one
// buffer may lie between each other's rows and share nothing. `runtime/overlaps.py` says the same for Python.

#pragma once

#include <tvm/ffi/container/tensor.h>

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <vector>

namespace kernwright {

namespace ffi = tvm::ffi;

// Whether some of the numbers `step * n`, one of each term with n from 0 to `most`, add up to a total. As all terms ahead of one
// are larger, few of its multiples leave what those behind it can make up.
class StepSums {
 public:
  void add(int64_t step, int64_t most) {
    if (step <= 0 || most <= 0) return;
    for (Term& own : terms_)
      if (own.step == step) return void(own.most += most);  // to go through both would take the product of their steps
    terms_.push_back({step, most, 0, 0, false});
  }

  bool reach(int64_t total) {
    std::sort(terms_.begin(), terms_.end(), [](const Term& a, const Term& b) { return a.step > b.step; });
    int64_t farthest = 0, common = 0;
    bool is_gapless = true;
    for (size_t i = terms_.size(); i-- > 0;) {
      Term& own = terms_[i];
      is_gapless = is_gapless && (common == 0 || (own.step % common == 0 && own.step <= farthest + common));
      common = std::gcd(common, own.step);
      farthest += own.step * own.most;
      own.farthest = farthest, own.common = common, own.is_gapless = is_gapless;
    }
    left_ = kMostSteps;
    return reach_from(0, total);
  }

 private:
  struct Term {
    int64_t step, most;
    int64_t farthest, common;  // of the sums of this term and all behind it: the largest, and what divides all
    bool is_gapless;           // whether they are all multiples of it up to the largest
  };

  // Nobody cuts tensors so that this is not enough; of those that are made so to hold a program up nobody knows.
  static constexpr int kMostSteps = 100'000;

  bool reach_from(size_t first, int64_t total) {
    if (total == 0 || left_ == 0) return true;
    --left_;
    if (first == terms_.size() || total < 0) return false;
    const Term& own = terms_[first];
    if (total > own.farthest || total % own.common != 0) return false;
    if (own.is_gapless) return true;
    const int64_t behind = own.farthest - own.step * own.most;
    const int64_t least = total > behind ? (total - behind + own.step - 1) / own.step : 0;
    for (int64_t n = std::min(own.most, total / own.step); n >= least; --n)
      if (reach_from(first + 1, total - n * own.step)) return true;
    return false;
  }

  std::vector<Term> terms_;
  int left_ = 0;
};

// As `overlaps_itself`, of axes in any order. Two elements are one where their distance along the farthest axis that tells them
// apart is made up for by the others.
inline bool overlaps_itself_in_any_order(ffi::TensorView own) {
  struct Axis {
    int64_t step, last;
  };
  std::vector<Axis> axes;
  for (int axis = 0; axis < own.ndim(); ++axis)
    if (own.size(axis) > 1) axes.push_back({own.stride(axis), own.size(axis) - 1});
  std::sort(axes.begin(), axes.end(), [](const Axis& a, const Axis& b) { return a.step < b.step; });
  int64_t reach = 0;
  for (size_t outer = 0; outer < axes.size(); ++outer) {
    const auto [step, last] = axes[outer];
    if (step == 0) return true;
    if (step <= reach) {
      StepSums sums;
      sums.add(step, last - 1);
      for (size_t inner = 0; inner < outer; ++inner) sums.add(axes[inner].step, 2 * axes[inner].last);
      if (sums.reach(reach - step)) return true;
    }
    reach += step * last;
  }
  return false;
}

// Whether two of its elements lie in one place.
inline bool overlaps_itself(ffi::TensorView own) {
  int64_t reach = 0;  // how far the elements lie apart that differ in the axes so far: as a rule each axis is longer
  for (int axis = own.ndim() - 1; axis >= 0; --axis) {
    const int64_t last = own.size(axis) - 1;
    if (last < 0) return false;
    if (last == 0) continue;
    if (own.stride(axis) <= reach) return own.numel() > 0 && overlaps_itself_in_any_order(own);
    reach += own.stride(axis) * last;
  }
  return false;
}

// Whether a byte of one is a byte of the other.
inline bool share_memory(ffi::TensorView one, ffi::TensorView other) {
  if (one.numel() == 0 || other.numel() == 0 || one.data_ptr() == nullptr || other.data_ptr() == nullptr) return false;
  auto bytes_of_element = [](ffi::TensorView own) -> int64_t { return (own.dtype().bits * own.dtype().lanes + 7) / 8; };
  auto last_byte = [&](ffi::TensorView own) {
    int64_t last = 0;
    for (int axis = 0; axis < own.ndim(); ++axis) last += (own.size(axis) - 1) * own.stride(axis);
    return (last + 1) * bytes_of_element(own) - 1;
  };
  const auto at = reinterpret_cast<intptr_t>(one.data_ptr()), other_at = reinterpret_cast<intptr_t>(other.data_ptr());
  if (at == other_at) return true;
  const int64_t other_last = last_byte(other);
  if (at + last_byte(one) < other_at || other_at + other_last < at) return false;
  StepSums sums;  // from the first byte of one to its others, and from those of the other to its last
  for (const ffi::TensorView& own : {one, other}) {
    const int64_t bytes = bytes_of_element(own);
    sums.add(1, bytes - 1);
    for (int axis = 0; axis < own.ndim(); ++axis) sums.add(own.stride(axis) * bytes, own.size(axis) - 1);
  }
  return sums.reach(other_at + other_last - at);
}

}  // namespace kernwright
