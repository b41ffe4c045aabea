// rms_norm of narrow rows for NVIDIA GPUs, for one dtype: rows of 128, 256 or 512 bytes that start on vectors, with a weight
// of x's dtype or none. All other rows have the kernels of norm_modulation/kernel.cu.
//
// Contract: close. The mean of squares is summed in float32, and the result is rounded once.
// Bytes per row of D elements of s bytes: 2 D s.
// Share of a copy's bandwidth on an H200 for rows of 100 MB or more: rms_norm 99 to 101 %. tasks/norm_infer/RESULTS.md has every row, and
// small calls, which are bound by latency.
//
// A few threads share a row. They issue all loads of the row and the weight before they use any, and reduce by shuffles.

#include <cuda_runtime.h>

#include "elements.cuh"
#include "launching.cuh"
#include "policy.h"
#include "totals.cuh"

namespace kernwright {
namespace narrow {
namespace {

constexpr Type kOf = Type::KERNWRIGHT_TYPE;
constexpr int kElements = kOf == Type::kFloat32 ? 4 : 8;  // per vector of 16 bytes

template <int kLanes, int kVectors, bool kHasWeight>
__global__ void __launch_bounds__(kThreadsOfNarrow) rms(const __grid_constant__ NarrowRows r) {
  const uint32_t lane = threadIdx.x % kLanes;
  const uint32_t row = blockIdx.x * (kThreadsOfNarrow / kLanes) + threadIdx.x / kLanes;
  const bool is_there = row < r.rows;
  const char* x = static_cast<const char*>(r.x) + (static_cast<uint64_t>(row) * r.x_step + lane) * 16;
  char* y = static_cast<char*>(r.y) + (static_cast<uint64_t>(row) * r.y_step + lane) * 16;
  if (const int64_t batch = blockIdx.y) x += batch * r.x_batch * 16, y += batch * r.y_batch * 16;
  Raw<16> own[kVectors], weight[kHasWeight ? kVectors : 1];
  wait_for_turn();
#pragma unroll
  for (int i = 0; i < kVectors; ++i) {
    own[i] = Raw<16>{};
    if (is_there) own[i] = load_ahead<16>(x + i * kLanes * 16);
  }
  if constexpr (kHasWeight) {
#pragma unroll
    for (int i = 0; i < kVectors; ++i)
      weight[i] = load_ahead<16>(static_cast<const char*>(r.weight) + (i * kLanes + lane) * 16);
  }

  float two[2] = {0.f, 0.f};  // two chains of additions, which do not wait for each other
#pragma unroll
  for (int i = 0; i < kVectors; ++i) {
    float values[kElements];
    widen<kOf, kElements>(own[i], values);
#pragma unroll
    for (int j = 0; j < kElements; ++j) two[j % 2] = fmaf(values[j], values[j], two[j % 2]);
  }
  const float squares = lanes_total<kLanes>(two[0] + two[1]);
  if (!is_there) return;
  constexpr float kPerElement = 1.f / (kVectors * kLanes * kElements);
  const float inverse = rsqrtf(fmaf(squares, kPerElement, r.eps));

#pragma unroll
  for (int i = 0; i < kVectors; ++i) {
    float values[kElements], factors[kElements];
    widen<kOf, kElements>(own[i], values);
    if constexpr (kHasWeight) widen<kOf, kElements>(weight[i], factors);
#pragma unroll
    for (int j = 0; j < kElements; ++j) values[j] = values[j] * inverse * (kHasWeight ? factors[j] : 1.f);
    store_raw(y + i * kLanes * 16, narrow_to<kOf, kElements>(values));
  }
}

using Kernel = void (*)(NarrowRows);

template <int kLanes, int kVectors>
Kernel kernel_with(const NarrowVariant& v) {
  return v.has_weight ? rms<kLanes, kVectors, true> : rms<kLanes, kVectors, false>;
}

Kernel kernel_of(const NarrowVariant& v) {
  if (v.lanes == kManyLanes) return v.vectors == 1 ? kernel_with<kManyLanes, 1>(v) : kernel_with<kManyLanes, 2>(v);
  if (v.vectors == 4) return kernel_with<kFewLanes, 4>(v);
  return v.vectors == 1 ? kernel_with<kFewLanes, 1>(v) : kernel_with<kFewLanes, 2>(v);
}

}  // namespace
}  // namespace narrow

// Returns 0, or CUDA's number of the error.
int launch_narrow(const NarrowRows& rows, const NarrowVariant& v, int device, void* stream) {
  return on_device(device, [&] {
    const uint32_t rows_a_block = kThreadsOfNarrow / v.lanes;
    const dim3 grid((rows.rows + rows_a_block - 1) / rows_a_block, rows.batches);
    return launch_kernel(narrow::kernel_of(v), grid, dim3(kThreadsOfNarrow), rows, static_cast<cudaStream_t>(stream));
  });
}

}  // namespace kernwright
