// ExactProblem: a call of norm_scale_shift or residual_norm_scale_shift that asks for the bits of the eager chain, and where that
// chain rounds; LayerNorm without weight and bias alone.
//
// By torch's rules of promotion: 1 + scale rounds in scale's own dtype. A product rounds in x's, if its factor has it too, or
// is one number without an axis; else in float32, which holds any two dtypes. The sum would be rounded to x's dtype, the
// summand's or float32 and then to x's: of the two only the last can change a bit, so one rounding is both. The norm rounds to
// x's dtype, as does the sum with the residual ahead of it.
//
// The policy below chooses a kernel. It launches nothing, so that it can be read and tested without a GPU. Times are an H200's
// for bfloat16, in graph replay out of a cold cache; "of a copy" is relative to a copy of the same bytes. Shapes without a time
// were not timed: they have as many blocks as possible without a register in memory, or nearly so.

#pragma once

#include <sstream>
#include <string>

#include "problem.h"

namespace kernwright {

// Of one product: `factor * value`, whatever is added then.
struct Product {
  bool is_rounded = false;      // to x's dtype
  bool is_factor_cast = false;  // to x's dtype: on a GPU a number without an axis is, before its use
};

struct ExactProblem : Problem {
  Product modulated, gated;
  bool is_shift_cast = false;  // to x's dtype, as a factor is
};

inline Product product_of(const Modulation& factor, bool is_number, Type type) {
  Product own;
  const bool is_half = type != Type::kFloat32;
  own.is_rounded = is_half && (is_number || factor.type == type);
  own.is_factor_cast = is_half && is_number && factor.type != type;
  return own;
}

// Torch sums a token with so many threads, each of which takes groups of so many channels in turn. So do these kernels,
// whatever they hold: the order of the sum, and with it every bit, is the same in all of them.
constexpr int kThreads = 128;
constexpr int kGroup = 4;

// A token that the registers of its block hold, with rows of modulation that are vectors of one dtype.
struct ExactShape {
  bool has_float_rows;  // of float32 beside a narrower x; else of x's dtype
  // Rows are asked for together with the token, and so are there when its sum is, which is what counts in a small grid. They
  // take registers, so wide tokens ask afterwards.
  bool is_early;
  bool is_for_tokens;  // only where each token has rows of its own, which no cache has
  bool is_full;        // every thread holds all of them, so that no count is asked of any; else up to
  int groups;          // a thread
  int least_blocks;    // a multiprocessor: what a thread may have of registers follows from it
};

// In an order of preference: the first that can hold a token is the one.
constexpr ExactShape kExactHalfShapes[] = {
    {false, true, false, true, 3, 12},   // 1536 wide
    {false, true, false, true, 4, 10},   // 2048 wide
    {false, true, false, true, 6, 8},    // 3072 wide: 0.96 of a copy for 27,030 tokens, 195 take 2.8 us (late, 12 blocks: 0.95 and 3.1)
    {false, true, false, true, 8, 8},    // 4096 wide: 6.1 us for 997 tokens, 0.93 for 7,904; 7 blocks: 7.1 us and 0.92
    {false, true, true, true, 10, 6},
    {false, false, false, true, 10, 10},  // 5120 wide: 0.95 for 44,100 tokens, as early with 6 blocks
    {false, false, false, true, 12, 8},
    {false, false, false, true, 16, 7},
    {true, true, true, true, 6, 6},
    {true, true, true, true, 10, 4},
    {true, false, false, true, 6, 12},
    {true, false, false, true, 10, 6},  // 5120 wide: 0.96 for 37,800 tokens; 10 blocks: 0.94, early with 4: 0.87
    {false, true, false, false, 1, 12},
    {false, true, false, false, 2, 12},  // 1000 wide
    {false, true, false, false, 4, 9},
    {false, true, false, false, 8, 6},
    {false, false, false, false, 16, 7},
    {true, false, false, false, 4, 10},
    {true, false, false, false, 8, 8},
    {true, false, false, false, 16, 6},
};
constexpr ExactShape kExactFloatShapes[] = {
    {false, true, false, true, 3, 8},
    {false, true, false, true, 6, 5},
    {false, false, false, true, 8, 7},
    {false, false, false, true, 10, 6},
    {false, true, false, false, 1, 12},
    {false, true, false, false, 2, 8},
    {false, true, false, false, 4, 6},
    {false, false, false, false, 8, 6},
    {false, false, false, false, 16, 4},
};
constexpr ExactShape kExactHalfResidualShapes[] = {
    {false, true, false, true, 3, 8},
    {false, true, false, true, 6, 7},
    {false, true, false, true, 8, 6},
    {false, false, false, true, 10, 8},
    {true, true, true, true, 6, 4},
    {true, false, false, true, 10, 7},
    {false, true, false, false, 1, 8},
    {false, true, false, false, 2, 8},
    {false, true, false, false, 4, 6},
    {false, false, false, false, 8, 6},
    {false, false, false, false, 16, 4},
    {true, false, false, false, 4, 8},
    {true, false, false, false, 8, 6},
    {true, false, false, false, 16, 4},
};
constexpr ExactShape kExactFloatResidualShapes[] = {
    {false, true, false, true, 3, 5},
    {false, false, false, true, 10, 4},
    {false, true, false, false, 1, 8},
    {false, true, false, false, 2, 6},
    {false, false, false, false, 4, 6},
    {false, false, false, false, 8, 4},
    {false, false, false, false, 16, 2},
};

struct ExactShapes {
  const ExactShape* first;
  int count;
};

template <size_t kCount>
constexpr ExactShapes all_of(const ExactShape (&shapes)[kCount]) {
  return {shapes, static_cast<int>(kCount)};
}

constexpr ExactShapes exact_shapes_of(Type type, bool has_residual) {
  if (type == Type::kFloat32) return has_residual ? all_of(kExactFloatResidualShapes) : all_of(kExactFloatShapes);
  return has_residual ? all_of(kExactHalfResidualShapes) : all_of(kExactHalfShapes);
}

struct ExactVariant {
  int shape = -1;          // of its table; none: the token is read twice, with modulations of any kind
  bool is_vector = false;  // groups are loaded and stored whole
};

inline void part(ExactProblem* p) {
  const std::initializer_list<Tokens*> tokens = {&p->x, &p->residual, &p->y, &p->sum};
  fold_batches<ExactProblem>(p, tokens, {&p->scale, &p->shift, &p->gate});
  part_into_frames<ExactProblem>(p, tokens, {&p->scale, &p->shift, &p->gate});
}

inline bool takes_groups(const ExactProblem& p) {
  for (const Tokens* of : {&p.x, &p.residual, &p.y, &p.sum})
    if (!is_aligned(of->data, of->batch_step, of->token_step, p.type, kGroup * bytes_of(p.type))) return false;
  for (const Modulation* of : {&p.scale, &p.shift, &p.gate})
    if (!takes_vector(*of, kGroup)) return false;
  return true;
}

inline bool are_exact_rows_of(Type type, const ExactProblem& p) {
  for (const Modulation* of : {&p.scale, &p.shift, &p.gate})
    if (of->data && (of->type != type || of->channel_step != 1 || of->tokens_per_row != 1)) return false;
  return true;
}

// Whether all steps, in groups, have 32 bits.
inline bool has_brief_steps(const ExactProblem& p) {
  auto fits = [](const auto& of) {
    return of.token_step >= 0 && of.batch_step >= 0 && of.token_step / kGroup <= UINT32_MAX && of.batch_step / kGroup <= UINT32_MAX;
  };
  return fits(p.x) && fits(p.residual) && fits(p.y) && fits(p.sum) && fits(p.scale) && fits(p.shift) && fits(p.gate);
}

inline bool can_hold(const ExactShape& shape, int64_t groups) {
  return shape.is_full ? groups == shape.groups * kThreads : groups <= shape.groups * kThreads;
}

inline ExactVariant choose_variant(const ExactProblem& p) {
  ExactVariant own;
  own.is_vector = takes_groups(p);
  const bool has_own_rows = are_exact_rows_of(p.type, p), has_float_rows = are_exact_rows_of(Type::kFloat32, p);
  if (!own.is_vector || p.tokens > INT32_MAX || !has_brief_steps(p) || !(has_own_rows || has_float_rows)) return own;
  const bool has_rows_of_tokens = p.scale.token_step != 0 || p.shift.token_step != 0;
  const ExactShapes shapes = exact_shapes_of(p.type, p.has_residual);
  for (int i = 0; i < shapes.count; ++i) {
    const ExactShape& shape = shapes.first[i];
    if (shape.has_float_rows == has_own_rows || (shape.is_for_tokens && !has_rows_of_tokens)) continue;
    if (!can_hold(shape, p.width / kGroup)) continue;
    own.shape = i;
    break;
  }
  return own;
}

inline std::string described(const ExactProblem& p, const ExactVariant& v) {
  std::ostringstream out;
  if (v.shape < 0) {
    out << "read twice by " << (v.is_vector ? kGroup : 1);
    return out.str();
  }
  const ExactShape& shape = exact_shapes_of(p.type, p.has_residual).first[v.shape];
  out << (shape.is_full ? "" : "up to ") << shape.groups << " groups a thread, " << (shape.has_float_rows ? "float" : "own")
      << " rows " << (shape.is_early ? "early" : "late");
  return out.str();
}

}  // namespace kernwright
