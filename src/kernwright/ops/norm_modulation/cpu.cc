// norm_scale_shift and residual_norm_scale_shift for a CPU: each token in one go, tokens shared out among threads.
//
// Contract: close. What is normed is rounded to x's dtype, as it is returned; statistics in float32, centred before they
// are squared; then one chain of multiply-adds and one rounding, where the eager chain rounds after each step.
// Bytes a token: x (and residual) read once, y (and their sum) written once. Between its sweeps a token stays, widened, in
// the thread's own buffer, which the first-level cache holds up to a width of some 8,000.
// Share of a copy's bandwidth: not measured yet.
//
// The loops are written so that a compiler makes vector code of them without help: tokens are widened once, sums run in
// independent lanes, and nothing inside a loop over channels branches.

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include <omp.h>

#include "arguments.h"

namespace kernwright {
namespace {

constexpr int kLanes = 16;
constexpr int64_t kElementsPerThread = 32768;  // below that a thread costs more than it brings

struct BFloat16 {
  uint16_t bits;
};
struct Float16 {
  uint16_t bits;
};

template <typename To, typename From>
inline To bits_of(From from) {
  static_assert(sizeof(To) == sizeof(From));
  To to;
  std::memcpy(&to, &from, sizeof(to));
  return to;
}

inline float widen(float value) { return value; }
inline float widen(BFloat16 value) { return bits_of<float>(static_cast<uint32_t>(value.bits) << 16); }
inline float widen(Float16 value) {
  // The exponent's bias is corrected by a product, which is right for subnormals too; an infinity keeps its full exponent.
  const uint32_t magnitude = static_cast<uint32_t>(value.bits & 0x7fffu) << 13;
  uint32_t bits = bits_of<uint32_t>(bits_of<float>(magnitude) * bits_of<float>(uint32_t{(254 - 15) << 23}));
  if ((value.bits & 0x7c00u) == 0x7c00u) bits |= 0x7f800000u;
  return bits_of<float>(bits | static_cast<uint32_t>(value.bits & 0x8000u) << 16);
}

template <typename T>
inline T narrow(float value);
template <>
inline float narrow<float>(float value) {
  return value;
}
template <>
inline BFloat16 narrow<BFloat16>(float value) {
  const uint32_t bits = bits_of<uint32_t>(value);
  const uint32_t rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;  // to nearest, ties to even
  const bool is_nan = (bits & 0x7fffffffu) > 0x7f800000u;                 // whose carry would make an infinity of it
  return {static_cast<uint16_t>(is_nan ? (bits >> 16) | 0x40u : rounded)};
}
template <>
inline Float16 narrow<Float16>(float value) {
  const uint32_t bits = bits_of<uint32_t>(value);
  const uint32_t sign = (bits >> 16) & 0x8000u, magnitude = bits & 0x7fffffffu;
  uint32_t half;
  if (magnitude > 0x7f800000u) {
    half = 0x7e00u;
  } else if (magnitude >= 0x477ff000u) {
    half = 0x7c00u;
  } else if (magnitude < 0x38800000u) {
    // Subnormal: the sum with a half rounds at the right bit.
    half = bits_of<uint32_t>(bits_of<float>(magnitude) + 0.5f) - 0x3f000000u;
  } else {
    half = (magnitude + 0xc8000fffu + ((magnitude >> 13) & 1u)) >> 13;
  }
  return {static_cast<uint16_t>(sign | half)};
}

// The mean of so many terms. A float takes a few of them in each lane, a double what these come to: in a row of one
// magnitude all roundings go one way, and thousands of terms in a float would be off in its last three digits.
template <typename Term>
float mean_over(int64_t count, Term term) {
  constexpr int64_t kFew = 8 * kLanes;
  double sums[kLanes] = {};
  const int64_t whole = count - count % kLanes;
  for (int64_t first = 0; first < whole; first += kFew) {
    float lanes[kLanes] = {};
    const int64_t end = std::min(whole, first + kFew);
    for (int64_t i = first; i < end; i += kLanes)
      for (int lane = 0; lane < kLanes; ++lane) lanes[lane] += term(i + lane);
    for (int lane = 0; lane < kLanes; ++lane) sums[lane] += lanes[lane];
  }
  for (int64_t i = whole; i < count; ++i) sums[i - whole] += term(i);
  double sum = 0.;
  for (int lane = 0; lane < kLanes; ++lane) sum += sums[lane];
  return static_cast<float>(sum / static_cast<double>(count));
}

float mean_of(const float* values, int64_t count) {
  return mean_over(count, [=](int64_t i) { return values[i]; });
}

float mean_square_of(const float* values, float centre, int64_t count) {
  return mean_over(count, [=](int64_t i) { return (values[i] - centre) * (values[i] - centre); });
}

template <typename M>
void widen_row(const M* from, int32_t step, int64_t width, float* to) {
  if (step == 1) {
    for (int64_t i = 0; i < width; ++i) to[i] = widen(from[i]);
  } else {
    std::fill(to, to + width, widen(from[0]));
  }
}

// The row that a modulation has for a token, widened; read again only when another row's turn comes.
class WidenedRow {
 public:
  WidenedRow(const Modulation& from, int64_t width) : from_(from), values_(from.data ? width : 0) {}

  bool given() const { return from_.data != nullptr; }
  const float* values() const { return values_.data(); }

  // Whether the row has changed.
  bool turn_to(int64_t batch, int64_t token) {
    if (!given()) return false;
    const int64_t start = batch * from_.batch_step + token / from_.tokens_per_row * from_.token_step;
    if (start == start_) return false;
    start_ = start;
    const int64_t width = static_cast<int64_t>(values_.size());
    switch (from_.type) {
      case Type::kFloat32: widen_row(at<float>(start), from_.channel_step, width, values_.data()); break;
      case Type::kFloat16: widen_row(at<Float16>(start), from_.channel_step, width, values_.data()); break;
      case Type::kBFloat16: widen_row(at<BFloat16>(start), from_.channel_step, width, values_.data()); break;
    }
    return true;
  }

 private:
  template <typename M>
  const M* at(int64_t start) const {
    return static_cast<const M*>(from_.data) + start;
  }

  const Modulation& from_;
  std::vector<float> values_;
  int64_t start_ = INT64_MIN;
};

// One thread's work: the tokens from `first` up to `end`, counted through all batches.
template <typename T>
void run_tokens(const Problem& p, int64_t first, int64_t end) {
  const int64_t width = p.width;
  WidenedRow scale(p.scale, width), shift(p.shift, width), gate(p.gate, width);
  WidenedRow weight(p.weight, width), bias(p.bias, width);
  weight.turn_to(0, 0);
  bias.turn_to(0, 0);
  // norm * weight + bias, then * (1 + scale) + shift, is norm * gain + offset.
  std::vector<float> value(width), gain(width), offset(width);
  for (int64_t i = first; i < end; ++i) {
    const int64_t b = i / p.tokens, s = i % p.tokens;
    auto row = [&](const Tokens& of) { return static_cast<T*>(of.data) + b * of.batch_step + s * of.token_step; };
    const T* x = row(p.x);
    if (p.has_residual) {
      gate.turn_to(b, s);
      const T* residual = row(p.residual);
      T* sum = row(p.sum);
      if (gate.given()) {
        const float* by = gate.values();
        for (int64_t c = 0; c < width; ++c) sum[c] = narrow<T>(widen(residual[c]) + by[c] * widen(x[c]));
      } else {
        for (int64_t c = 0; c < width; ++c) sum[c] = narrow<T>(widen(residual[c]) + widen(x[c]));
      }
      for (int64_t c = 0; c < width; ++c) value[c] = widen(sum[c]);
    } else {
      for (int64_t c = 0; c < width; ++c) value[c] = widen(x[c]);
    }
    const bool new_scale = scale.turn_to(b, s), new_shift = shift.turn_to(b, s);
    if (new_scale || new_shift) {
      const float *by = scale.values(), *to = shift.values();
      for (int64_t c = 0; c < width; ++c) gain[c] = 1.f + by[c];
      std::copy(to, to + width, offset.data());
      if (bias.given())
        for (int64_t c = 0; c < width; ++c) offset[c] += bias.values()[c] * gain[c];
      if (weight.given())
        for (int64_t c = 0; c < width; ++c) gain[c] *= weight.values()[c];
    }
    float mean = 0.f;
    if (!p.is_rms) {
      // Far from zero the first mean is off by its own roundings: what is left of it once values are centred is small.
      const float first = mean_of(value.data(), width);
      for (int64_t c = 0; c < width; ++c) value[c] -= first;
      mean = mean_of(value.data(), width);
    }
    const float inverse = 1.f / std::sqrt(mean_square_of(value.data(), mean, width) + p.eps);
    T* y = row(p.y);
    for (int64_t c = 0; c < width; ++c) y[c] = narrow<T>((value[c] - mean) * inverse * gain[c] + offset[c]);
  }
}

template <typename T>
void run(const Problem& p, int64_t most_threads) {
  const int64_t count = p.batches * p.tokens;
  const int64_t useful = std::max<int64_t>(1, count * p.width / kElementsPerThread);
  const int64_t threads = std::max<int64_t>(1, std::min({most_threads, useful, count}));
  if (threads == 1) return run_tokens<T>(p, 0, count);
#pragma omp parallel num_threads(static_cast<int>(threads))
  {
    const int64_t number = omp_get_thread_num(), all = omp_get_num_threads();
    run_tokens<T>(p, count * number / all, count * (number + 1) / all);
  }
}

bool run_any(const Problem& p, int64_t threads) {
  if (is_empty(p)) return true;
  switch (p.type) {
    case Type::kFloat32: run<float>(p, threads); break;
    case Type::kFloat16: run<Float16>(p, threads); break;
    case Type::kBFloat16: run<BFloat16>(p, threads); break;
  }
  return true;
}

// The last argument, behind those of the op, is the number of threads.
template <typename Call>
bool call_on_cpu(ffi::PackedArgs given) {
  const int count = given.size() - 1;
  return each<Call>(given.Slice(0, count), kDLCPU,
                    [threads = given[count].cast<int64_t>()](Problem* own) { return run_any(*own, threads); });
}

}  // namespace
}  // namespace kernwright

KERNWRIGHT_EXPORT(norm_scale_shift, kernwright::call_on_cpu<kernwright::NormCall>)
KERNWRIGHT_EXPORT(residual_norm_scale_shift, kernwright::call_on_cpu<kernwright::ResidualNormCall>)
