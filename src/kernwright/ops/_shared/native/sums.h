// Sum: the axes of two summands that broadcast, folded into batches, tokens and channels. Nothing is copied. `sums.py` does the
// same for Triton.
//
// The two longest axes are batches and tokens, in their order; the last one is channels. Two axes that every tensor walks
// through in one stride are one. All others are walked through on the host, a launch for each place.

#pragma once

#include <utility>

#include "reader.h"

namespace kernwright {

constexpr int64_t kWidestSum = INT32_MAX - 4096;  // a column behind the last, in a block's uneven end, is counted too

struct Sum {
  static constexpr int kMostAxes = 16;

  // One axis of the result: how many elements apart its places lie in x, in the other summand, and in the result.
  struct Axis {
    int64_t size = 1, x = 1, shift = 0, y = 1;
  };

  Axis batch, token, last;
  Axis walked[kMostAxes];
  int count = 0;  // of the axes that are walked through

  // False: no merging of axes makes rows of channels of it.
  bool fold(ffi::TensorView x, ffi::TensorView other, ffi::TensorView out) {
    const int n = out.ndim();
    count = 0;
    for (int i = 0; i < n; ++i) {
      if (out.size(i) == 1) continue;
      const Axis own{out.size(i), step(x, i, n), step(other, i, n), out.stride(i)};
      if (count > 0 && continues(walked[count - 1], own)) walked[count - 1] = {walked[count - 1].size * own.size, own.x, own.shift, own.y};
      else walked[count++] = own;
    }
    last = count > 0 ? walked[--count] : Axis{};
    if (last.x != 1 || (last.shift != 0 && last.shift != 1) || last.y != 1) {
      if (out.size(n - 1) != 1) return false;
      walked[count++] = last, last = {};  // between rows of one channel there may be gaps
    }
    if (last.size > kWidestSum) return false;
    choose();
    return true;
  }

  // Whether out has the shape of a + b. Throws where they do not broadcast.
  static bool has_shape(ffi::TensorView a, ffi::TensorView b, ffi::TensorView out) {
    const int n = a.ndim() > b.ndim() ? a.ndim() : b.ndim();
    if (n == 0 || n > kMostAxes || out.ndim() != n) return false;
    for (int i = 0; i < n; ++i) {
      const int64_t own = size(a, i, n), other = size(b, i, n);
      if (own != other && own != 1 && other != 1)
        TVM_FFI_THROW(ValueError) << "b: has " << other << " where a has " << own << ", and they do not broadcast";
      if (out.size(i) != (own == 1 ? other : own)) return false;
    }
    return true;
  }

 private:
  static int64_t size(ffi::TensorView own, int axis, int ndim) {
    const int at = axis - (ndim - own.ndim());
    return at < 0 ? 1 : own.size(at);
  }

  static int64_t step(ffi::TensorView own, int axis, int ndim) {
    return size(own, axis, ndim) == 1 ? 0 : own.stride(axis - (ndim - own.ndim()));
  }

  static bool continues(const Axis& outer, const Axis& inner) {
    return outer.x == inner.size * inner.x && outer.shift == inner.size * inner.shift &&
           outer.y == inner.size * inner.y && outer.size * inner.size <= kWidestSum;
  }

  void choose() {
    int first = -1, second = -1;
    for (int i = 0; i < count; ++i) {
      if (first < 0 || walked[i].size > walked[first].size) second = first, first = i;
      else if (second < 0 || walked[i].size > walked[second].size) second = i;
    }
    if (second > first) std::swap(first, second);
    token = first < 0 ? Axis{} : walked[first];
    batch = second < 0 ? Axis{} : walked[second];
    int rest = 0;
    for (int i = 0; i < count; ++i)
      if (i != first && i != second) walked[rest++] = walked[i];
    count = rest;
  }
};

}  // namespace kernwright
