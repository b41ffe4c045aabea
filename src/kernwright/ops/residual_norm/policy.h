// GeneralSum: one call of add_norm or fused_add_rms_norm_ in any form; and the policy that chooses its kernel:
//
//   r = x * row_scale + second + residual, of those that are given; y = norm(r) * weight + bias
//
// Each product and sum rounds by torch's rules of promotion: to the dtype that both sides share, or to float32. The last one rounds
// to the dtype of r, which is narrower or the same, so that only this rounding can change a bit.

#pragma once

#include <iterator>

#include "token_variant.h"

namespace kernwright {

struct GeneralSum : Extent {  // its type is that of x and y
  float eps = 0.f;
  bool is_rms = false;
  Type total = Type::kFloat32;  // of residual and sum
  Type scaled = Type::kFloat32, joined = Type::kFloat32;  // dtypes to which x * row_scale rounds, and the sum with second
  Tokens x, residual, y, sum;
  Modulation second, row_scale, weight, bias;  // second: a row per token, in any dtype; row_scale: a number per token
};

// In order of preference. Wider tokens, which none of them takes, are streamed. Kernels for single elements, and for rare pairs of
// dtypes, take rows of any kind.
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

// Returns the dtype whose vectors of 16 bytes a kernel processes: that of x. A LayerNorm of a float32 sum has the kernels of
// float32, which correct the mean: for a row of equal elements the norm would otherwise be the error of its mean.
inline Type step_of(const GeneralSum& p) { return p.total == Type::kFloat32 && !p.is_rms ? p.total : p.type; }

// The sum usually has the dtype of x or float32. Other pairs are rare.
template <Type kStep, Type kTotal>
constexpr const auto& general_shapes_of() {
  if constexpr (kStep != kTotal && kTotal != Type::kFloat32) return kGeneralRareShapes;
  else if constexpr (kStep == Type::kFloat32) return kGeneralFloatShapes;
  else return kGeneralHalfShapes;
}

inline void part(GeneralSum* p) {
  // Tensors that are not given have steps of 0, which any folding allows.
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
