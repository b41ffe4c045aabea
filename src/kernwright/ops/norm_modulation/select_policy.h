// Problem: one call of norm_scale_shift_select or residual_norm_scale_shift_select, and which kernel takes it.

#pragma once

#include "token_variant.h"

namespace kernwright {

// A number for each token, of so many bytes. It lies over the tokens as a modulation of one channel does.
struct Choice : Modulation {
  int32_t bytes = 0;
};

struct Problem : Extent {  // its type is that of x, residual, y and sum
  float eps = 0.f;
  Type gate_type = Type::kFloat32;  // of the gate that is returned
  Tokens x;
  Choice index;
  Modulation scale[2], shift[2], gate[2];  // any index but 0 picks the second
  Tokens y, chosen_gate;
  Tokens residual, sum;  // sum: residual + residual_gate * x
  Modulation residual_gate, weight, bias;
};

// In an order of preference. What none of them takes is streamed: odd widths with rows of several dtypes, and tokens that are
// wider. Behind a residual a thread has three times the loads in flight, and two vectors are enough. Late rows of single
// elements are waited for one after the other: early ones are better, where there are registers for them.
constexpr TokenShape kHalfShapes[] = {
    {Rows::kLate, true, true, 3, 4, 8},      // 3072 wide
    {Rows::kLate, true, false, 4, 16, 2},    // up to 16384
    {Rows::kAny, true, false, 4, 16, 1},
    {Rows::kShiftedLate, true, false, 2, 16, 2},  // odd, up to 8185
    {Rows::kLate, false, false, 12, 32, 1},
};
constexpr TokenShape kHalfResidualShapes[] = {
    {Rows::kEarly, true, true, 2, 6, 5},   // 3072 wide
    {Rows::kLate, true, false, 2, 32, 1},  // up to 16384
    {Rows::kAny, true, false, 2, 32, 1},
    {Rows::kShiftedLate, true, false, 2, 16, 2},  // odd, up to 8185
    {Rows::kLate, false, false, 12, 32, 1},
};
constexpr TokenShape kFloatShapes[] = {
    {Rows::kLate, true, false, 4, 16, 2},  // up to 8192
    {Rows::kAny, true, false, 4, 16, 1},
    {Rows::kLate, false, false, 12, 32, 1},
};

template <Type kType, bool kResidual>
constexpr const auto& shapes_of() {
  if constexpr (kType == Type::kFloat32) return kFloatShapes;
  else if constexpr (kResidual) return kHalfResidualShapes;
  else return kHalfShapes;
}

// Brings a call to its fewest batches, and frames of the residual's gate to batches.
inline void part(Problem* p) {
  const std::initializer_list<Tokens*> tokens = {&p->x, &p->y, &p->chosen_gate, &p->residual, &p->sum};
  const std::initializer_list<Modulation*> rows = {&p->scale[0], &p->scale[1], &p->shift[0], &p->shift[1],
                                                   &p->gate[0],  &p->gate[1],  &p->index,    &p->residual_gate};
  fold_batches(p, tokens, rows);
  part_into_frames(p, tokens, rows);
}

template <bool kResidual>
TokenVariant choose_variant(const Problem& p, bool may_shift = true) {
  const std::initializer_list<const Modulation*> rows = {&p.scale[0], &p.scale[1], &p.shift[0],      &p.shift[1], &p.gate[0],
                                                         &p.gate[1],  &p.weight,   &p.residual_gate, &p.bias};
  const Tokens& gate = p.chosen_gate;
  const bool is_known = are_rows_of(p.type, rows) && p.weight.data == nullptr;  // a bias comes only with a weight
  TokenCall call{p, false, is_known, lie_alike(p, {&p.x, &p.y, &p.residual, &p.sum, &p.chosen_gate})};
  call.is_wide = is_wide(p, {&p.x, &p.y, &p.residual, &p.sum}, rows) &&
                 is_aligned(gate.data, gate.batch_step, gate.token_step, p.gate_type, 16);
  auto among = [&](const auto& shapes) { return choose_token_variant(call, shapes, std::size(shapes), may_shift); };
  if (p.type == Type::kFloat32) return among(kFloatShapes);
  return kResidual ? among(kHalfResidualShapes) : among(kHalfShapes);
}

}  // namespace kernwright
