// Problem: one call of ernie_norm_modulate or ernie_residual_norm_modulate, and which kernel takes it:
//
//   y = rms(x) * weight * (1 + scale) + shift
//   r = residual + gate * update; y = rms(r) * weight * (1 + scale) + shift        x is the residual
//
// Nothing rounds between loads and stores: what is normed is r before it is rounded for its own store.

#pragma once

#include <iterator>

#include "token_variant.h"

namespace kernwright {

struct Problem : Extent {  // its type is that of x and both outputs
  float eps = 0.f;
  Tokens x, y;
  Modulation scale, shift, weight;
  Tokens sum;                // of residuals alone, as all that follows
  Modulation update, gate;  // the update has a row for each token, in a dtype of its own
};

// In an order of preference. What none of them takes is streamed: odd widths with rows of several dtypes, and tokens that are
// wider.
constexpr TokenShape kHalfShapes[] = {
    {Rows::kEarly, true, true, 4, 4, 5},  // 4096 wide
    {Rows::kLate, true, false, 4, 16, 2},
    {Rows::kAny, true, false, 4, 16, 1},
    {Rows::kShiftedLate, true, false, 2, 16, 2},  // odd, up to 8185
    {Rows::kLate, false, false, 16, 32, 1},
};
constexpr TokenShape kHalfResidualShapes[] = {
    {Rows::kEarly, true, true, 2, 8, 3},  // 4096 wide
    {Rows::kLate, true, false, 4, 16, 2},
    {Rows::kAny, true, false, 4, 16, 1},
    {Rows::kShiftedLate, true, false, 2, 16, 2},  // odd, up to 8185
    {Rows::kLate, false, false, 8, 32, 1},
};
constexpr TokenShape kFloatShapes[] = {
    {Rows::kLate, true, false, 4, 16, 2},
    {Rows::kAny, true, false, 4, 16, 1},
    {Rows::kLate, false, false, 8, 32, 1},
};

template <Type kType, bool kResidual>
constexpr const auto& shapes_of() {
  if constexpr (kType == Type::kFloat32) return kFloatShapes;
  else if constexpr (kResidual) return kHalfResidualShapes;
  else return kHalfShapes;
}

inline void part(Problem* p) {
  // Without a residual its tensors have no steps, which any fold takes.
  fold_batches(p, {&p->x, &p->y, p->sum.data ? &p->sum : &p->y}, {&p->scale, &p->shift, &p->update, &p->gate});
}

inline TokenVariant choose_variant(const Problem& p, bool may_shift = true) {
  const auto rows = {&p.scale, &p.shift, &p.weight, &p.update, &p.gate};
  // The update is read as tokens are.
  const Tokens update{const_cast<void*>(p.update.data), p.update.batch_step, p.update.token_step};
  const bool lies_alike = lie_alike(p, {&p.x, &p.y, &p.sum, &update});
  const TokenCall call{p, is_wide(p, {&p.x, &p.y, &p.sum}, rows), are_rows_of(p.type, rows), lies_alike};
  const auto of = [&](const auto& shapes) { return choose_token_variant(call, shapes, std::size(shapes), may_shift); };
  if (p.type == Type::kFloat32) return of(kFloatShapes);
  return p.update.data != nullptr ? of(kHalfResidualShapes) : of(kHalfShapes);
}

}  // namespace kernwright
