// NarrowRows: RMS norms of rows that eight or sixteen threads hold, as of the heads of queries and keys; and which kernel takes them.
//
// Policy apart from mechanism: this file decides and launches nothing, so it can be read, and tested, without a GPU.

#pragma once

#include <string>

#include "norm_modulation/problem.h"

namespace kernwright {

// What a kernel gets. What calls of one batch read lies in the first 48 bytes: a GPU fetches its arguments a line at a time.
struct NarrowRows {
  const void* x;
  void* y;
  const void* weight;
  uint32_t x_step, y_step;  // from row to row, in vectors of 16 bytes
  uint32_t rows;            // of a batch
  float eps;
  int64_t x_batch, y_batch;  // in vectors
  uint32_t batches;
};

constexpr int kThreadsOfNarrow = 128, kFewLanes = 8, kManyLanes = 16;  // of a row

// More threads a row, with less each, are better where more rows are than a GPU holds at once (648,720 rows of 128: 79.7 us,
// eight threads each 80.3; 16,384 rows: 3.87 and 3.65). From so many bytes of output on; a test has less, so that small calls
// come by every kernel.
constexpr int64_t kBytesToSpread = 32 << 20;

struct NarrowVariant {
  int vectors = 0;  // of 16 bytes a thread has: 1, 2 or 4; 0: these are no narrow rows
  int lanes = kFewLanes;
  bool has_weight = false;
};

inline NarrowVariant choose_narrow(const Problem& p, int64_t bytes_to_spread = kBytesToSpread) {
  constexpr int64_t kMostBatches = 65535;  // a grid's y
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
