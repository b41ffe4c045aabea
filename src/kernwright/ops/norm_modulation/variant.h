// Variant: which of the compiled CUDA kernels takes a problem, with how many threads and in what blocks.
//
// Policy apart from mechanism: this file decides and launches nothing, so it can be read, and tested, without a GPU. Times
// are an H200's for bfloat16, in graph replay out of a cold cache; "of a copy" is what a copy of the same bytes takes.

#pragma once

#include <sstream>
#include <string>

#include "problem.h"

namespace kernwright {

// ---- what is compiled -----------------------------------------------------------------------------------------------

// Tokens that several vectors of 16 bytes a thread hold, of which a block has one. Few warps with 3 to 5 vectors each beat
// many with one: they meet sooner, and more blocks are there to load while one waits (3072 wide: 4 warps of 3 vectors take
// 83 us for 27,030 tokens, 12 of 1 take 109, a copy 80).
enum class RowKind {  // what the rows of modulation are
  kOwn,            // of x's dtype
  kFloat,          // of float32, beside a narrower x
  kAny,            // anything: numbers, mixed dtypes, a row for so many tokens, weights beside modulations
};

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
    {RowKind::kOwn, true, false, true, 3, 2, 16},  // 1536 wide
    {RowKind::kOwn, true, false, true, 4, 2, 12},  // 2048 wide
    {RowKind::kOwn, true, false, true, 3, 4, 8},   // 3072 wide: 0.96 of a copy
    {RowKind::kOwn, true, false, true, 4, 4, 6},   // 4096 wide
    {RowKind::kOwn, true, false, true, 5, 4, 5},   // 5120 wide: 0.96
    {RowKind::kOwn, false, false, false, 4, 16, 3},  // 16384 wide: 0.90; early, one block is left, and 0.64
    {RowKind::kOwn, false, false, false, 8, 32, 1},  // 65536 wide: 0.80
    {RowKind::kFloat, true, true, false, 2, 20, 1},
    {RowKind::kFloat, false, false, false, 5, 20, 1},  // 5120 wide: 0.88; 4 vectors a thread 0.82, early 0.52
    {RowKind::kAny, false, false, false, 4, 32, 1},
};
// Behind a residual a thread has twice the loads in flight, and two vectors are enough.
constexpr HeldShape kHalfResidualShapes[] = {
    {RowKind::kOwn, true, false, true, 2, 6, 5},    // 3072 wide: 0.91; of any width 0.83
    {RowKind::kOwn, true, false, true, 2, 10, 3},   // 5120 wide: 0.89; of any width 0.80
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

constexpr int kThreadsOfStreamed = 1024;

// ---- what is chosen -------------------------------------------------------------------------------------------------

// From which size of a call on what changes. A test has smaller ones, so that small calls come by every kernel.
struct Thresholds {
  // Outputs from a megabyte on are stored to leave the second-level cache first, so that what others read stays (3072 wide,
  // 27,030 tokens: 81 us, stored plainly 83; 195 tokens: 2.93 and 3.05; below that there is nothing to gain).
  int64_t bytes_to_stream = 1 << 20;
  // Threads of small tokens beyond what 132 multiprocessors hold at once: two tokens a thread then hide each other's
  // latency (16,384 rows of 128: 4.2 us, one by one 4.4; 1,320 rows: 2.1 and 1.9).
  int64_t threads_to_pair = 200'000;
};

enum class Kind {
  kHeld,      // one token a block, in registers
  kSmall,     // several tokens a block, in registers
  kOdd,       // one token a block, through shared memory
  kStreamed,  // too wide for any of them: read three times
};

struct Variant {
  Kind kind = Kind::kStreamed;
  int vector = 1;  // elements a load: 16 bytes where the width and every row's start allow it
  int shape = 0;   // kHeld: which of its table
  RowKind rows = RowKind::kAny;
  bool is_affine = false;  // weight and bias are the rows, and scale and shift numbers, or not there
  bool is_streaming = false;  // y is stored to leave the cache first
  int lanes = kThreadsOfStreamed;  // threads a token
  int groups = 1;                  // of lanes a block has
  int tokens = 1;                  // a group takes at once
};

struct Shapes {
  const HeldShape* first;
  int count;
};

inline Shapes shapes_of(Type type, bool has_residual) {
  auto all = [](const auto& shapes) { return Shapes{shapes, static_cast<int>(sizeof(shapes) / sizeof(shapes[0]))}; };
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

inline void fold_batches(Problem* p) {
  fold_batches(p, {&p->x, &p->residual, &p->y, &p->sum}, {&p->scale, &p->shift, &p->gate});
}

inline void part_into_frames(Problem* p) {
  part_into_frames(p, {&p->x, &p->residual, &p->y, &p->sum}, {&p->scale, &p->shift, &p->gate});
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

inline bool can_hold(const HeldShape& shape, int64_t vectors) {
  const int64_t beside = 32 * shape.warps;
  return vectors <= beside * shape.vectors && (!shape.is_exact || vectors > beside * (shape.vectors - 1));
}

inline bool find_held(const Problem& p, Variant* own) {
  const int64_t vectors = p.width / own->vector;
  const Shapes shapes = shapes_of(p.type, p.has_residual);
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
  own.is_streaming = own.vector > 1 && all_tokens * p.width * bytes_of(p.type) >= thresholds.bytes_to_stream;
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
  } else if (own.vector > 1 && !is_small && find_held(p, &own)) {
    own.kind = Kind::kHeld;
  } else if (own.vector == 1 && !is_small && p.width <= kElementsOfOdd * most_threads_of_odd(p.type)) {
    own.kind = Kind::kOdd;
    own.lanes = 32 * static_cast<int>(ceil_of(p.width, 32 * kElementsOfOdd));
  }
  return own;
}

// ---- in words -------------------------------------------------------------------------------------------------------

inline std::string described(const Problem& p, const Variant& v) {
  static const char* const kKinds[] = {"held", "small", "odd", "streamed"};
  static const char* const kRows[] = {"own", "float", "any"};
  std::ostringstream out;
  out << kKinds[static_cast<int>(v.kind)] << ": vector " << v.vector << ", ";
  if (v.kind == Kind::kHeld) {
    const HeldShape& shape = shapes_of(p.type, p.has_residual).first[v.shape];
    out << shape.vectors << " a thread, " << kRows[static_cast<int>(v.rows)] << " rows"
        << (shape.is_early ? " early, " : ", ");
  }
  out << v.lanes << " threads";
  if (v.kind == Kind::kSmall) out << ", " << v.groups << " x " << v.tokens << " tokens";
  if (v.is_streaming) out << ", streaming";
  return out.str();
}

}  // namespace kernwright
