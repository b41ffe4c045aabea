// Variant: which of the compiled CUDA kernels takes a problem, with how many threads and in what blocks.
//
// Policy apart from mechanism: this file decides and launches nothing, so it can be read, and tested, without a GPU. Times
// are an H200's for bfloat16, in graph replay out of a cold cache; "of a copy" is what a copy of the same bytes takes.

#pragma once

#include <iterator>
#include <sstream>
#include <string>

#include "problem.h"

namespace kernwright {

#if defined(KERNWRIGHT_IN_PLACE) && KERNWRIGHT_IN_PLACE
constexpr bool kInPlace = true;
#else
constexpr bool kInPlace = false;
#endif

#if defined(KERNWRIGHT_MODULATED) && !KERNWRIGHT_MODULATED
constexpr bool kHasModulation = false;
#else
constexpr bool kHasModulation = true;
#endif

// ---- what is compiled -----------------------------------------------------------------------------------------------

// What the rows of modulation are.
enum class RowKind {
  kOwn,    // of x's dtype
  kFloat,  // of float32, beside a narrower x
  kAny,    // anything: numbers, mixed dtypes, a row for so many tokens, weights beside modulations
};

// Tokens of two-byte elements and their own rows, which vectors of 16 bytes a thread hold, one token a block. Few warps with
// 3 to 5 vectors each beat many with one: they meet sooner, and more blocks are there to load while one waits (3072 wide,
// 27,030 tokens: 4 warps of 3 vectors take 81 to 83 us, 12 of 1 take 103, a copy 80).
struct LeanShape {
  int vectors;  // a thread, all of them filled but the last
  int warps;
  int least_blocks;  // a multiprocessor: what a thread may have of registers follows from it
};

// From narrow to wide: the first that can hold a token is the one. Times were taken at 1536, 3072 and 5120.
constexpr LeanShape kLeanShapes[] = {
    {1, 3, 10},
    {2, 3, 10},  // 1536 wide
    {4, 2, 12},  // 2048 wide
    {3, 4, 8},   // 3072 wide: 0.97 to 0.99 of a copy
    {4, 4, 6},   // 4096 wide
    {4, 5, 5},   // 5120 wide: 0.96, as 4 warps of 5 are; 10 of 2 are at 0.81
    {3, 8, 4},   // 6144 wide
    {4, 8, 3},   // 8192 wide
};
// Behind a residual a thread has twice the loads in flight, and two vectors are enough.
constexpr LeanShape kLeanResidualShapes[] = {
    {1, 3, 10},
    {2, 3, 10},  // 1536 wide
    {2, 6, 5},   // 3072 wide: 0.96 to 0.99, as 12 warps of 1 and 4 of 3 are
    {2, 8, 4},   // 4096 wide
    // 5120 wide: 0.95, as 5 warps of 4 are. Without gate and modulation threads have fewer registers to keep, and 512 tokens are
    // all under way at once: 6.64 us, with 3 blocks 7.69; 8,192 tokens: 83.6, 83.4.
    {2, 10, kHasModulation ? 3 : 4},
    {2, 16, 2},  // 8192 wide
};

// The same for tokens that start anywhere, all of which lie alike: up to so many warps.
constexpr LeanShape kShiftedShapes[] = {
    {2, 7, 5},  // 3073 wide: 40.4 us for 8,424 tokens, by way of shared memory 87.9, a copy 39.9
    {2, 16, 2},
};
constexpr LeanShape kShiftedResidualShapes[] = {
    {2, 7, 4},  // 3073 wide: 68.7 us for 8,424 tokens, by way of shared memory 191.5, a copy 77.3
    {2, 16, 2},
};

// Two-byte elements with float32 rows that all tokens of a batch have in common: two tokens a block share each vector of them.
constexpr int kTokensOfShared = 2;
constexpr LeanShape kSharedShapes[] = {
    {2, 6, 5},
    {2, 8, 4},
    {2, 10, 3},  // 5120 wide: 0.98 of a copy for 37,800 tokens (187.7 us), as four tokens a block are; `held` 0.87
};

// All other tokens that registers hold, one a block.
struct HeldShape {
  RowKind rows;
  // Rows of modulation are asked for together with the token: there when its sums are, which is what counts in a small grid
  // (195 tokens: 2.9 us, asked for afterwards 3.4). They take registers, so wide tokens ask afterwards.
  bool is_early;
  bool is_for_tokens;  // only where each token has rows of its own, which no cache has
  bool is_exact;       // these warps, filled but for the last vectors, which saves a quarter of all instructions; else up to
  int vectors;         // a thread
  int warps;
  int least_blocks;  // a multiprocessor: what a thread may have of registers follows from it
};

// In an order of preference: the first that can hold a token is the one.
constexpr HeldShape kHalfShapes[] = {
    {RowKind::kOwn, false, false, false, 4, 16, 3},  // 16384 wide: 0.90; early, one block is left, and 0.64
    {RowKind::kOwn, false, false, false, 8, 32, 1},  // 65536 wide: 0.80
    {RowKind::kFloat, true, true, false, 2, 20, 1},
    {RowKind::kFloat, false, false, false, 5, 20, 1},  // 5120 wide: 0.88; 4 vectors a thread 0.82, early 0.52
    {RowKind::kAny, false, false, false, 4, 32, 1},
};
constexpr HeldShape kHalfResidualShapes[] = {
    {RowKind::kOwn, true, false, false, 2, 32, 1},
    {RowKind::kOwn, false, false, false, 4, 32, 1},
    {RowKind::kFloat, true, true, false, 2, 20, 1},
    {RowKind::kFloat, false, false, false, 4, 20, 1},  // 5120 wide: 0.94; 2 vectors a thread 0.92
    {RowKind::kAny, false, false, false, 2, 32, 1},
};
constexpr HeldShape kFloatShapes[] = {
    {RowKind::kOwn, true, false, true, 4, 10, 3},   // 5120 wide: 0.99; of any width 0.95
    {RowKind::kOwn, true, false, false, 4, 32, 1},
    {RowKind::kOwn, false, false, false, 8, 32, 1},
    {RowKind::kAny, false, false, false, 4, 32, 1},
};
constexpr HeldShape kFloatResidualShapes[] = {
    {RowKind::kOwn, true, false, false, 2, 32, 1},
    {RowKind::kOwn, false, false, false, 4, 32, 1},
    {RowKind::kAny, false, false, false, 2, 32, 1},
};

// Small tokens: a warp or a part of it each, one vector a thread, several tokens a block.
constexpr int kThreadsOfSmall = 128;
constexpr int kBlocksOfSmall = 10, kBlocksOfSmallResidual = 8;  // a multiprocessor, at least
constexpr int kSmallestLanes = 8;
constexpr int kElementsOfSmallOdd = 4;  // a thread, where only single elements can be loaded

// Tokens that start anywhere, or have an odd end: single elements a thread, out of whole vectors in shared memory. 13 of
// them let 8 warps hold 3073 (0.69 of a copy; 12 warps of 9 are at 0.66).
constexpr int kElementsOfOdd = 13;
constexpr int kThreadsOfOdd = 256;
constexpr int most_threads_of_odd(Type type) { return type == Type::kFloat32 ? 512 : 1024; }  // 26 KB of shared memory

constexpr int kStreamedThreads = 1024;

// ---- what is chosen -------------------------------------------------------------------------------------------------

// From which size of a call on what changes. A test has smaller ones, so that small calls come by every kernel.
struct Thresholds {
  // Threads of small tokens beyond what 132 multiprocessors hold at once: two tokens a thread then hide each other's
  // latency (16,384 rows of 128: 4.2 us, one by one 4.4; 1,320 rows: 2.1 and 1.9).
  int64_t threads_to_pair = 200'000;
  // From more tokens on than 132 multiprocessors hold at once, two of a block, they share their rows of modulation: fewer have
  // more multiprocessors to themselves if each is a block of its own.
  int64_t tokens_to_share = 800;
  bool may_shift = true;  // whether whole vectors may be read at the ends of rows
};

enum class Kind {
  kLean,      // one token a block, in registers: two-byte elements, rows of their dtype
  kShifted,   // the same where a token starts anywhere
  kShared,    // two tokens a block, in registers: two-byte elements, float32 rows that they have in common
  kHeld,      // one token a block, in registers
  kSmall,     // several tokens a block, in registers
  kOdd,       // one token a block, through shared memory
  kStreamed,  // too wide for any of them: read three times
};

struct Variant {
  Kind kind = Kind::kStreamed;
  int vector = 1;  // elements a load: 16 bytes where the width and every row's start allow it
  int shape = 0;   // kLean, kShifted, kShared, kHeld: which of its table
  RowKind rows = RowKind::kAny;
  bool is_affine = false;  // weight and bias are the rows, and scale and shift numbers, or not there
  bool is_gated = false;
  int lanes = kStreamedThreads;  // threads a token
  int groups = 1;                  // of lanes a block has
  int tokens = 1;                  // a group takes at once
};

template <typename Shape>
struct Shapes {
  const Shape* first;
  int count;
};

template <typename Shape, size_t kCount>
Shapes<Shape> all(const Shape (&shapes)[kCount]) {
  return {shapes, static_cast<int>(kCount)};
}

inline Shapes<LeanShape> lean_shapes_of(bool has_residual) {
  return has_residual ? all(kLeanResidualShapes) : all(kLeanShapes);
}

inline Shapes<LeanShape> shifted_shapes_of(bool has_residual) {
  return has_residual ? all(kShiftedResidualShapes) : all(kShiftedShapes);
}

inline Shapes<HeldShape> shapes_of(Type type, bool has_residual) {
  if (type == Type::kFloat32) return has_residual ? all(kFloatResidualShapes) : all(kFloatShapes);
  return has_residual ? all(kHalfResidualShapes) : all(kHalfShapes);
}

inline bool takes_vector(const Problem& p, int vector) {
  if (p.width % vector != 0) return false;
  for (const Tokens* of : {&p.x, &p.residual, &p.y, &p.sum})
    if (!is_aligned(of->data, of->batch_step, of->token_step, p.type, vector * bytes_of(p.type))) return false;
  for (const Modulation* of : {&p.scale, &p.shift, &p.gate, &p.weight, &p.bias})
    if (!takes_vector(*of, vector)) return false;
  return true;
}

inline bool is_per_token(const Problem& p) {
  for (const Modulation* of : {&p.scale, &p.shift, &p.gate})
    if (of->data != nullptr && of->token_step != 0) return true;
  return false;
}

inline void part(Problem* p) {
  const std::initializer_list<Tokens*> tokens = {&p->x, &p->residual, &p->y, &p->sum};
  fold_batches(p, tokens, {&p->scale, &p->shift, &p->gate});
  part_into_frames(p, tokens, {&p->scale, &p->shift, &p->gate});
}

inline bool is_number(const Modulation& of) {
  return of.data == nullptr || (of.channel_step == 0 && of.batch_step == 0 && of.token_step == 0);
}

// Whether scale, shift and gate, or weight, bias and gate beside numbers, are rows of one dtype.
inline bool are_rows_of(Type type, const Problem& p, bool is_affine) {
  const bool has_rest = is_affine ? !is_number(p.scale) || !is_number(p.shift) : p.weight.data || p.bias.data;
  if (has_rest) return false;
  for (const Modulation* of : {is_affine ? &p.weight : &p.scale, is_affine ? &p.bias : &p.shift, &p.gate})
    if (of->data && (of->type != type || of->channel_step != 1 || of->tokens_per_row != 1)) return false;
  return true;
}

inline void find_rows(const Problem& p, Variant* own) {
  own->is_affine = p.scale.data == nullptr || p.weight.data != nullptr;
  // Numbers beside rows cost instructions, which kernels for rows of half the bytes are not built with.
  const bool has_numbers = own->is_affine && (p.scale.data || p.shift.data);
  if (are_rows_of(p.type, p, own->is_affine) && (p.type == Type::kFloat32 || !has_numbers)) {
    own->rows = RowKind::kOwn;
  } else if (p.type != Type::kFloat32 && are_rows_of(Type::kFloat32, p, own->is_affine)) {
    own->rows = RowKind::kFloat;
  }
}

inline int64_t ceil_of(int64_t whole, int64_t part) { return (whole + part - 1) / part; }

// Whether all steps, in units of so many bytes, have 32 bits.
inline bool is_brief(const Problem& p, int64_t unit) {
  auto fits = [&](int64_t step) { return step >= 0 && step * bytes_of(p.type) / unit <= UINT32_MAX; };
  for (const Tokens* of : {&p.x, &p.residual, &p.y, &p.sum})
    if (!fits(of->batch_step) || !fits(of->token_step)) return false;
  for (const Modulation* of : {&p.scale, &p.shift, &p.gate})
    if (!fits(of->batch_step) || !fits(of->token_step)) return false;
  return true;
}

// Whether each token lies at the same place within 16 bytes in all tensors.
inline bool lie_alike(const Problem& p) {
  const auto step = [&](int64_t of) { return of * bytes_of(p.type) % 16; };
  for (const Tokens* of : {&p.residual, &p.y, &p.sum}) {
    if (of->data == nullptr) continue;
    const bool is_start_alike = reinterpret_cast<uintptr_t>(of->data) % 16 == reinterpret_cast<uintptr_t>(p.x.data) % 16;
    if (!is_start_alike || step(of->batch_step) != step(p.x.batch_step) || step(of->token_step) != step(p.x.token_step))
      return false;
  }
  return true;
}

// Whether all threads may ask for a token's first element (pivot.cuh) while others store its sum. In the place of x or of the
// residual that sum is another first element; kernels that are compiled to work in place meet ahead of it, all others do not.
inline bool may_have_pivot(const Problem& p) {
  const bool is_sum_in_place = p.has_residual && (p.sum.data == p.x.data || p.sum.data == p.residual.data);
  return kInPlace || p.is_rms || !is_sum_in_place;
}

inline bool find_lean(const Problem& p, Variant* own) {
  if (!may_have_pivot(p)) return false;
  if (own->rows != RowKind::kOwn || bytes_of(p.type) != 2 || !is_brief(p, 16)) return false;
  const int64_t vectors = p.width / own->vector;
  const Shapes<LeanShape> shapes = lean_shapes_of(p.has_residual);
  for (int shape = 0; shape < shapes.count; ++shape) {
    const int lanes = 32 * shapes.first[shape].warps, each = shapes.first[shape].vectors;
    if (vectors > lanes * each || vectors <= lanes * (each - 1)) continue;
    own->shape = shape, own->lanes = lanes;
    return true;
  }
  return false;
}

inline bool find_shared(const Problem& p, const Thresholds& thresholds, Variant* own) {
  if (own->rows != RowKind::kFloat || own->is_affine || p.has_residual || !is_brief(p, 16)) return false;
  if (is_per_token(p) || p.batches * p.tokens < thresholds.tokens_to_share || p.tokens >= UINT32_MAX) return false;
  const int64_t vectors = p.width / own->vector;
  for (own->shape = 0; own->shape < static_cast<int>(std::size(kSharedShapes)); ++own->shape) {
    const LeanShape& shape = kSharedShapes[own->shape];
    if (vectors > 32 * shape.warps * shape.vectors || vectors <= 32 * shape.warps * (shape.vectors - 1)) continue;
    own->lanes = 32 * shape.warps, own->tokens = kTokensOfShared;
    return true;
  }
  return false;
}

inline bool find_shifted(const Problem& p, Variant* own) {
  if (!may_have_pivot(p)) return false;
  if (own->rows != RowKind::kOwn || bytes_of(p.type) != 2 || !is_brief(p, 2) || !lie_alike(p)) return false;
  const int64_t vectors = ceil_of(p.width + 7, 8);  // at most: a token may begin in a vector's last element
  const Shapes<LeanShape> shapes = shifted_shapes_of(p.has_residual);
  for (int shape = 0; shape < shapes.count; ++shape) {
    const int64_t warps = ceil_of(vectors, 32 * shapes.first[shape].vectors);
    if (warps > shapes.first[shape].warps) continue;
    own->shape = shape, own->lanes = static_cast<int>(32 * warps);
    return true;
  }
  return false;
}

inline bool can_hold(const HeldShape& shape, int64_t vectors) {
  const int64_t beside = 32 * shape.warps;
  return vectors <= beside * shape.vectors && (!shape.is_exact || vectors > beside * (shape.vectors - 1));
}

inline bool find_held(const Problem& p, Variant* own) {
  const int64_t vectors = p.width / own->vector;
  const Shapes<HeldShape> shapes = shapes_of(p.type, p.has_residual);
  for (own->shape = 0; own->shape < shapes.count; ++own->shape) {
    const HeldShape& shape = shapes.first[own->shape];
    if (shape.rows != own->rows || (shape.is_for_tokens && !is_per_token(p)) || !can_hold(shape, vectors)) continue;
    own->lanes = 32 * (shape.is_exact ? shape.warps : static_cast<int>(ceil_of(vectors, 32 * shape.vectors)));
    return true;
  }
  return false;
}

inline Variant choose_variant(const Problem& p, const Thresholds& thresholds = {}) {
  const int widest = static_cast<int>(16 / bytes_of(p.type));
  const int64_t all_tokens = p.batches * p.tokens;
  Variant own;
  own.vector = takes_vector(p, widest) ? widest : 1;
  own.is_gated = p.gate.data != nullptr;
  find_rows(p, &own);
  const int64_t vectors = p.width / own.vector;
  const bool is_small = vectors <= (own.vector > 1 ? 32 : 32 * kElementsOfSmallOdd);
  const int64_t most_tokens = int64_t{1} << 31;  // that small kernels count in 32 bits
  if (is_small && p.tokens < most_tokens) {
    own.kind = Kind::kSmall;
    own.lanes = own.vector > 1 ? kSmallestLanes : 32;
    while (own.lanes < vectors && own.lanes < 32) own.lanes *= 2;
    own.groups = kThreadsOfSmall / own.lanes;
    const int64_t pairs = 2 * own.groups, idle = ceil_of(p.tokens, pairs) * pairs - p.tokens;  // of short batches
    const bool can_pair = own.vector > 1 && !p.has_residual && !is_per_token(p) && idle <= p.tokens / 8;
    if (can_pair && all_tokens * own.lanes > thresholds.threads_to_pair) own.tokens = 2;
  } else if (own.vector > 1 && !is_small && find_lean(p, &own)) {
    own.kind = Kind::kLean;
  } else if (own.vector > 1 && !is_small && find_shared(p, thresholds, &own)) {
    own.kind = Kind::kShared;
  } else if (own.vector > 1 && !is_small && find_held(p, &own)) {
    own.kind = Kind::kHeld;
  } else if (own.vector == 1 && !is_small && thresholds.may_shift && find_shifted(p, &own)) {
    own.kind = Kind::kShifted;
    own.vector = widest;
  } else if (own.vector == 1 && !is_small && p.width <= kElementsOfOdd * most_threads_of_odd(p.type)) {
    own.kind = Kind::kOdd;
    own.lanes = 32 * static_cast<int>(ceil_of(p.width, 32 * kElementsOfOdd));
  }
  return own;
}

// ---- in words -------------------------------------------------------------------------------------------------------

inline std::string described(const Problem& p, const Variant& v) {
  static const char* const kKinds[] = {"lean", "shifted", "shared", "held", "small", "odd", "streamed"};
  static const char* const kRows[] = {"own", "float", "any"};
  std::ostringstream out;
  out << kKinds[static_cast<int>(v.kind)] << ": vector " << v.vector << ", ";
  if (v.kind == Kind::kLean) out << lean_shapes_of(p.has_residual).first[v.shape].vectors << " a thread, ";
  if (v.kind == Kind::kShifted) out << shifted_shapes_of(p.has_residual).first[v.shape].vectors << " a thread, ";
  if (v.kind == Kind::kShared) out << kSharedShapes[v.shape].vectors << " a thread, " << v.tokens << " tokens, ";
  if (v.kind == Kind::kHeld) {
    const HeldShape& shape = shapes_of(p.type, p.has_residual).first[v.shape];
    out << shape.vectors << " a thread, " << kRows[static_cast<int>(v.rows)] << " rows"
        << (shape.is_early ? " early, " : ", ");
  }
  out << v.lanes << " threads";
  if (v.kind == Kind::kSmall) out << ", " << v.groups << " x " << v.tokens << " tokens";
  return out.str();
}

}  // namespace kernwright
