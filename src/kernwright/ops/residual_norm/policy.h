// GeneralSum: one call of add_norm or fused_add_rms_norm_ in any of their forms, and which kernel takes it:
//
//   r = x * row_scale + second + residual, what is given of them; y = norm(r) * weight + bias
//
// Each product and sum rounds as torch's rules of promotion have it, in the one dtype that both sides have, or in float32. The
// last of them rounds to the dtype of r, which is narrower or the same: of the two roundings only that one can change a bit.

#pragma once

#include <iterator>

#include "token_variant.h"

namespace kernwright {

struct GeneralSum : Extent {  // its type is that of x and y
  float eps = 0.f;
  bool is_rms = false;
  Type total = Type::kFloat32;  // of residual and sum
  Type scaled = Type::kFloat32, joined = Type::kFloat32;  // in which x * row_scale rounds, and the sum with second
  Tokens x, residual, y, sum;
  Modulation second, row_scale, weight, bias;  // second has a row for each token, in a dtype of its own; row_scale a number
};

// In an order of preference. What none of them takes is streamed: tokens that are wider. Rows of single elements may be
// anything, as may those of pairs of dtypes that hardly anybody has.
constexpr TokenShape kGeneralHalfShapes[] = {
    {Rows::kEarly, true, true, 2, 5, 6},   // 2560 wide
    {Rows::kEarly, true, true, 2, 8, 4},   // 4096 wide
    {Rows::kEarly, true, false, 2, 16, 2},  // up to 8192
    {Rows::kLate, true, false, 4, 16, 1},   // up to 16384
    {Rows::kAny, true, false, 4, 16, 1},
    {Rows::kAny, false, false, 8, 32, 1},  // odd, up to 8192
};
constexpr TokenShape kGeneralFloatShapes[] = {
    {Rows::kLate, true, false, 4, 16, 2},  // up to 8192
    {Rows::kAny, true, false, 4, 16, 1},
    {Rows::kAny, false, false, 8, 32, 1},
};
constexpr TokenShape kGeneralRareShapes[] = {
    {Rows::kAny, true, false, 4, 16, 1},
    {Rows::kAny, false, false, 8, 32, 1},
};

// Of what dtype 16 bytes are a vector: of x's. But a float32 sum is centred with the care that its dtype asks for, and that is
// what kernels of float32 take: otherwise all that is left of a row of equal elements would be what its mean is off by.
inline Type step_of(const GeneralSum& p) { return p.total == Type::kFloat32 && !p.is_rms ? p.total : p.type; }

// Of half-width x the sum has its dtype or float32, of float32 its own; all else is rare.
template <Type kStep, Type kTotal>
constexpr const auto& general_shapes_of() {
  if constexpr (kStep != kTotal && kTotal != Type::kFloat32) return kGeneralRareShapes;
  else if constexpr (kStep == Type::kFloat32) return kGeneralFloatShapes;
  else return kGeneralHalfShapes;
}

inline void part(GeneralSum* p) {
  // What is not there has no steps, which any fold takes.
  fold_batches(p, {&p->x, &p->residual, &p->y, &p->sum}, {&p->second, &p->row_scale});
}

inline TokenVariant choose_variant(const GeneralSum& p) {
  Extent extent = p;
  extent.type = step_of(p);
  const int vector = static_cast<int>(16 / bytes_of(extent.type));
  auto takes_whole = [&](const Tokens& of, Type type) {  // a wider dtype takes several loads of 16 bytes
    const int64_t whole = vector * bytes_of(type);
    return is_aligned(of.data, of.batch_step, of.token_step, type, whole < 16 ? whole : 16);
  };
  const auto rows = {&p.second, &p.weight, &p.bias};
  bool are_wide = p.width % vector == 0 && takes_whole(p.x, p.type) && takes_whole(p.y, p.type) &&
                  takes_whole(p.residual, p.total) && takes_whole(p.sum, p.total);
  for (const Modulation* own : rows) are_wide = are_wide && takes_vector(*own, vector);
  const TokenCall call{extent, are_wide, are_rows_of(p.type, rows), false};
  const auto of = [&](const auto& shapes) { return choose_token_variant(call, shapes, std::size(shapes)); };
  if (p.total != extent.type && p.total != Type::kFloat32) return of(kGeneralRareShapes);
  return extent.type == Type::kFloat32 ? of(kGeneralFloatShapes) : of(kGeneralHalfShapes);
}

}  // namespace kernwright
