// NarrowRows: RMS norms of rows that eight or sixteen threads hold, such as heads of queries and keys; and the policy that chooses
// their kernel. It launches nothing, so that it can be read and tested without a GPU.

#pragma once

#include <string>

#include "norm_modulation/problem.h"

namespace kernwright {

// Arguments of the kernel. Calls with one batch read only the first 48 bytes: a GPU fetches arguments a cache line at a time.
struct NarrowRows {
  const void* x;
  void* y;
  const void* weight;
  uint32_t x_step, y_step;  // from row to row, in vectors of 16 bytes
  uint32_t rows;            // per batch
  float eps;
  int64_t x_batch, y_batch;  // from batch to batch, in vectors
  uint32_t batches;
};

constexpr int kThreadsOfNarrow = 128, kFewLanes = 8, kManyLanes = 16;  // lanes: threads per row

// Output bytes from which a row has sixteen threads. That is faster where there are more rows than a GPU holds at once (rows of
// 128: 648,720 take 79.7 us, with eight threads 80.3; 16,384 take 3.87 us, with eight threads 3.65). Tests pass a smaller number,
// so that small calls reach every kernel.
constexpr int64_t kBytesToSpread = 32 << 20;

struct NarrowVariant {
  int vectors = 0;  // of 16 bytes per thread: 1, 2 or 4; 0: these are not narrow rows
  int lanes = kFewLanes;
  bool has_weight = false;
};

inline NarrowVariant choose_narrow(const Problem& p, int64_t bytes_to_spread = kBytesToSpread) {
  constexpr int64_t kMostBatches = 65535;  // limit of a grid's y dimension
  const int64_t bytes = p.width * bytes_of(p.type), most_bytes = int64_t{UINT32_MAX} * 16;
  const bool is_weight_own =
      p.weight.data == nullptr || (p.weight.type == p.type && is_aligned(p.weight.data, 0, 0, p.type, 16));
  if (!p.is_rms || p.bias.data || !is_weight_own || p.tokens > INT32_MAX || p.batches > kMostBatches) return {};
  for (const Tokens* of : {&p.x, &p.y})
    if (!is_aligned(of->data, of->batch_step, of->token_step, p.type, 16) ||
        of->token_step * bytes_of(p.type) > most_bytes)
      return {};
  NarrowVariant own;
  for (const int vectors : {1, 2, 4})
    if (bytes == vectors * kFewLanes * 16) own.vectors = vectors;
  const int64_t all = p.batches * p.tokens * bytes;
  own.has_weight = p.weight.data != nullptr;
  if (own.vectors > 1 && all >= bytes_to_spread) own.lanes = kManyLanes, own.vectors /= 2;
  return own;
}

inline NarrowRows narrow_rows_of(const Problem& p) {
  const int64_t vector = 16 / bytes_of(p.type);
  return {p.x.data,
          p.y.data,
          p.weight.data,
          static_cast<uint32_t>(p.x.token_step / vector),
          static_cast<uint32_t>(p.y.token_step / vector),
          static_cast<uint32_t>(p.tokens),
          p.eps,
          p.x.batch_step / vector,
          p.y.batch_step / vector,
          static_cast<uint32_t>(p.batches)};
}

inline std::string described(const NarrowVariant& v) {
  return "narrow: " + std::to_string(v.lanes) + " threads, " + std::to_string(v.vectors) + " vectors each" +
         (v.has_weight ? ", weight" : "");
}

}  // namespace kernwright
