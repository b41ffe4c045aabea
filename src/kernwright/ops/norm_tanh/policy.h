// Problem: one call of norm_tanh_mul_add or norm_tanh_mul_add_norm_scale; and the policy that chooses its kernel.

#pragma once

#include "token_variant.h"

namespace kernwright {

struct Problem : Extent {  // its type is that of x and both outputs
  float eps = 0.f;
  bool is_rms = false;
  Tokens x, y;
  Modulation scale, shift, weight, bias;
  Tokens y2;  // of the second norm, as all that follows
  Modulation scale2, weight2, bias2;
};

// In an order of preference. What none of them takes is streamed: odd widths with rows of several dtypes, and tokens that are
// wider. Late rows of single elements would be waited for one after the other.
constexpr TokenShape kHalfShapes[] = {
    {Rows::kEarly, true, true, 3, 5, 5},     // 3840 wide
    {Rows::kEarly, true, false, 2, 32, 1},   // up to 16384
    {Rows::kAny, true, false, 4, 16, 1},
    {Rows::kShiftedLate, true, false, 2, 16, 2},  // odd, up to 8185
    {Rows::kLate, false, false, 12, 32, 1},
};
constexpr TokenShape kFloatShapes[] = {
    {Rows::kLate, true, false, 4, 16, 2},  // up to 8192
    {Rows::kAny, true, false, 4, 16, 1},
    {Rows::kLate, false, false, 12, 32, 1},
};

template <Type kType>
constexpr const auto& shapes_of() {
  if constexpr (kType == Type::kFloat32) return kFloatShapes;
  else return kHalfShapes;
}

// With two norms, a kernel can keep the products of rows for many tokens. A thread holds one vector of a token. It was measured
// with 3,840 channels only. Two blocks of narrower tokens load fewer bytes at once, so these keep one token per block.
constexpr int kThreadsOfKept = 512, kBlocksOfKept = 2;  // blocks on a multiprocessor, of 64 registers a thread
constexpr int64_t kLeastTokensOfKept = 4;                // for each block
constexpr int32_t kLeastWidthOfKept = 3072;

// Whether that kernel can take a call of two norms and halves: all tokens of a batch share its rows, except that of the shift.
inline bool may_keep_gains(const Problem& p, const TokenVariant& v) {
  return v.kind == TokenKind::kHeld && kHalfShapes[v.shape].rows == Rows::kEarly && p.scale.token_step == 0 &&
         p.scale2.token_step == 0 && p.width >= kLeastWidthOfKept && p.width <= kThreadsOfKept * v.vector;
}

// Blocks for each batch, so that the blocks of all batches run at once. 0: each would have too few tokens.
inline int64_t blocks_of_kept(const Problem& p, int multiprocessors) {
  const int64_t blocks = int64_t{kBlocksOfKept} * multiprocessors / p.batches;
  return p.tokens >= kLeastTokensOfKept * blocks ? blocks : 0;
}

inline unsigned threads_of_kept(const Problem& p) {
  const int vectors = p.width / 8;
  return static_cast<unsigned>((vectors + 31) / 32 * 32);
}

inline void part(Problem* p) {
  fold_batches(p, {&p->x, &p->y, &p->y2}, {&p->scale, &p->shift, &p->scale2});
  part_into_frames(p, {&p->x, &p->y, &p->y2}, {&p->scale, &p->shift, &p->scale2});
}

inline TokenVariant choose_variant(const Problem& p, bool may_shift = true) {
  const auto rows = {&p.scale, &p.shift, &p.weight, &p.bias, &p.scale2, &p.weight2, &p.bias2};
  // A bias is none of the rows that kernels are compiled for.
  const bool is_known = are_rows_of(p.type, rows) && p.bias.data == nullptr && p.bias2.data == nullptr;
  const std::initializer_list<const Tokens*> tokens = {&p.x, &p.y, &p.y2};
  const TokenCall call{p, is_wide(p, tokens, rows), is_known, lie_alike(p, tokens)};
  if (p.type == Type::kFloat32) return choose_token_variant(call, kFloatShapes, std::size(kFloatShapes), may_shift);
  return choose_token_variant(call, kHalfShapes, std::size(kHalfShapes), may_shift);
}

}  // namespace kernwright
