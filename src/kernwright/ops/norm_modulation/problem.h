// Problem: one call of norm_scale_shift or residual_norm_scale_shift, as every native kernel of the family takes it.
//
// Plain data, so that a kernel's file needs no other header of ours. Steps are in elements, and 64 bits wide: a tensor may
// have more than 2^31 elements.

#pragma once

#include <cstdint>

namespace kernwright {

enum class Type : int32_t { kFloat32, kFloat16, kBFloat16 };

// Rows of width elements, one for each token (b, s); the last axis is dense.
struct Tokens {
  void* data = nullptr;
  int64_t batch_step = 0, token_step = 0;
};

// A tensor that modulates: its row for token (b, s) starts at b * batch_step + (s / tokens_per_row) * token_step. Per
// channel both steps are 0; per batch row, or per token, one of them; per frame a row serves several tokens.
struct Modulation {
  const void* data = nullptr;  // null: there is none
  int64_t batch_step = 0, token_step = 0, tokens_per_row = 1;
  int32_t channel_step = 0;  // 1, or 0 where one number serves all channels
  Type type = Type::kFloat32;
};

struct Problem {
  int64_t batches = 0, tokens = 0;
  int32_t width = 0;
  Type type = Type::kFloat32;  // of x, residual and both outputs
  bool is_rms = false, has_residual = false;
  float eps = 0.f;
  Tokens x, residual, y, sum;  // sum: residual + gate * x, the second output
  Modulation scale, shift, gate, weight, bias;
};

constexpr int64_t kWidest = 65536;

}  // namespace kernwright
