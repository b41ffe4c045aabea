// Problem: one call of scale_shift, residual_gate or broadcast_add, as every native kernel of the family takes it, or of
// ernie_residual_gate, which is residual_gate with no rounding but the last one:
//
//   y = x * (constant + scale) + shift        scale_shift
//   out = update * gate + residual            residual_gate: x is the update, scale the gate, shift the residual; or, where
//                                             the residual has another half-width dtype than the update or is narrower,
//                                             crossed: x is the residual, shift the update
//   out = a + b                               broadcast_add: x is one, shift the other; there is no scale
//
// Where the eager chain rounds, in torch's rules of promotion. constant + scale: in scale's dtype. The product: in x's (or,
// crossed, in shift's), if scale has it too, or is one number without an axis; else in float32, which holds any two dtypes. The
// sum would be rounded to x's, shift's or float32 and then to y's: of the two only the last can change a bit, so one rounding
// is both.
//
// The policy below chooses a kernel and its blocks. It launches nothing, so that it can be read and tested without a GPU.

#pragma once

#include <cstring>
#include <sstream>
#include <string>

#include "tensors.h"

namespace kernwright {

struct Problem : Extent {  // its type is x's
  Type result = Type::kFloat32;
  Tokens x, y;
  Modulation scale, shift;
  bool adds_constant = false;
  float constant = 0.f;
  bool is_crossed = false;          // x + shift * scale
  bool is_product_rounded = false;  // to x's dtype, or, crossed, to shift's, as below
  bool is_scale_cast = false, is_shift_cast = false;  // to x's dtype: on a GPU a number without an axis is, before its use
};

// ---- runs of vectors ------------------------------------------------------------------------------------------------

// Flat: a problem whose tokens lie one behind the other, so that a batch of them is one run of vectors of 16 bytes, whatever
// their width is; and the kernel for such runs that takes it, which is asked for first.

// One vector a thread: what hides latency here is many threads, and few registers let them be there. 128 and 512 threads a
// block are at most as fast, and so are two or four vectors a thread, which for few tokens are slower.
constexpr int kThreadsOfFlat = 256;

// What a thread reads of a modulation: its row for the thread's channels, or its own vector, in x's dtype or in float32.
enum class Kind {
  kNone,
  kRow,           // one for all tokens of a batch
  kDense,         // as the tokens lie
  kStepped,       // one for each token, however far apart
  kFloatRow,      // beside a narrower x
  kFloatStepped,
};

struct Pair {
  Kind scale, shift;
  bool rounds_product;  // to x's dtype
};

// What is compiled, in an order of preference: the first that fits is the one.
constexpr Pair kHalfPairs[] = {
    {Kind::kNone, Kind::kDense, false},
    {Kind::kNone, Kind::kRow, false},
    {Kind::kDense, Kind::kDense, true},
    {Kind::kRow, Kind::kDense, true},
    {Kind::kRow, Kind::kRow, true},
    {Kind::kStepped, Kind::kStepped, true},
    {Kind::kFloatRow, Kind::kDense, false},
    {Kind::kFloatRow, Kind::kFloatRow, false},
    {Kind::kFloatStepped, Kind::kDense, false},
    {Kind::kFloatStepped, Kind::kFloatStepped, false},
    {Kind::kDense, Kind::kDense, false},
    {Kind::kRow, Kind::kDense, false},
};
constexpr Pair kFloatPairs[] = {
    {Kind::kNone, Kind::kDense, false},
    {Kind::kNone, Kind::kRow, false},
    {Kind::kDense, Kind::kDense, false},
    {Kind::kRow, Kind::kDense, false},
    {Kind::kRow, Kind::kRow, false},
    {Kind::kStepped, Kind::kStepped, false},
};
// A float32 residual beside a narrower update.
constexpr Pair kWideningPairs[] = {
    {Kind::kRow, Kind::kFloatStepped, true},
    {Kind::kFloatRow, Kind::kFloatStepped, false},
    {Kind::kFloatStepped, Kind::kFloatStepped, false},
};

struct Pairs {
  const Pair* first;
  int count;
};

inline Pairs pairs_of(Type type, Type result) {
  auto all = [](const auto& pairs) { return Pairs{pairs, static_cast<int>(sizeof(pairs) / sizeof(pairs[0]))}; };
  return type != result ? all(kWideningPairs) : type == Type::kFloat32 ? all(kFloatPairs) : all(kHalfPairs);
}

constexpr bool is_float(Kind kind) { return kind == Kind::kFloatRow || kind == Kind::kFloatStepped; }
constexpr bool is_row(Kind kind) { return kind == Kind::kRow || kind == Kind::kFloatRow; }
constexpr bool is_stepped(Kind kind) { return kind == Kind::kStepped || kind == Kind::kFloatStepped; }

// Rows that start anywhere are gathered; what is stepped would have to be, for each token anew.
constexpr bool can_be_ragged(const Pair& pair) { return !is_stepped(pair.scale) && !is_stepped(pair.shift); }

struct FlatVariant {
  int pair = -1;           // of the table; -1: none fits
  bool is_ragged = false;  // a vector may have the end of a token and the start of the next one in it
};

// What a kernel gets. What calls of one batch and one half-width dtype read stands in the first 48 bytes: a GPU fetches its
// arguments a line at a time.
struct Flat {
  const void* x;
  void* y;
  const void *scale, *shift;
  uint32_t whole;          // vectors of a batch
  uint32_t a_token;        // vectors of a token, or its elements if it is ragged: what `magic` divides by
  uint32_t magic;
  uint16_t digits;
  uint16_t half_constant;  // as below, in x's dtype where that is half as wide
  float constant;          // that scale has added: -0 changes no number
  uint32_t rest;           // elements of a batch behind its last whole vector
  int64_t x_batch, y_batch, scale_batch, shift_batch, scale_token, shift_token;
};

// ---- what is chosen -------------------------------------------------------------------------------------------------

inline bool lies_dense(const Problem& p, int64_t token_step) { return p.tokens == 1 || token_step == p.width; }

inline bool is_of(Kind kind, const Modulation& of, const Problem& p) {
  if (kind == Kind::kNone || of.data == nullptr) return kind == Kind::kNone && of.data == nullptr;
  if (of.type != (is_float(kind) ? Type::kFloat32 : p.type) || of.channel_step != 1 || of.tokens_per_row != 1)
    return false;
  if (is_row(kind)) return of.token_step == 0;
  return kind == Kind::kDense ? lies_dense(p, of.token_step) : p.tokens == 1 || of.token_step != 0;
}

// To nearest even; of what float16 cannot hold as a normal number nothing is said.
inline uint16_t half_of(Type type, float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, 4);
  if (type == Type::kBFloat16) return static_cast<uint16_t>(bits >> 16);
  if ((bits << 1) == 0) return static_cast<uint16_t>(bits >> 16);
  return static_cast<uint16_t>((bits >> 16 & 0x8000u) | (((bits >> 13) & 0x3ffffu) - ((127 - 15) << 10)));
}

// Whether a constant is the same in a narrower dtype, so that arithmetic in that dtype rounds as the chain does.
inline bool is_held(Type type, float value) {
  if (type == Type::kFloat32 || value == 0.f) return true;
  uint32_t bits;
  std::memcpy(&bits, &value, 4);
  if (type == Type::kBFloat16) return (bits & 0xffffu) == 0;
  const int exponent = static_cast<int>(bits >> 23 & 0xffu) - 127;
  return (bits & 0x1fffu) == 0 && exponent >= -14 && exponent <= 15;
}

inline bool starts_on_vectors(const Problem& p, const void* data, int64_t batch_step, Type type) {
  return is_aligned(data, p.batches == 1 ? 0 : batch_step, 0, type, 16);
}

// `takes_vectors`: every row starts on 16 bytes, and ends there.
inline FlatVariant choose_flat(const Problem& p, bool takes_vectors) {
  FlatVariant own;
  const int64_t vector = 16 / bytes_of(p.type), elements = p.tokens * p.width;
  constexpr int64_t kMostBatches = 65535;  // a grid's y
  const bool fits = p.batches <= kMostBatches && elements / vector < INT32_MAX;
  if (!fits || !lies_dense(p, p.x.token_step) || !lies_dense(p, p.y.token_step)) return own;
  if (p.is_scale_cast || p.is_shift_cast || p.is_crossed) return own;
  own.is_ragged = !takes_vectors;
  if (own.is_ragged) {
    if (elements > INT32_MAX) return own;  // what is divided to find a channel has 32 bits
    if (p.width < vector) return own;      // a vector would have the ends of several tokens in it
    if (!starts_on_vectors(p, p.x.data, p.x.batch_step, p.type)) return own;
    if (!starts_on_vectors(p, p.y.data, p.y.batch_step, p.result)) return own;
  }
  const Pairs pairs = pairs_of(p.type, p.result);
  for (int i = 0; i < pairs.count; ++i) {
    const Pair& pair = pairs.first[i];
    if (pair.rounds_product != p.is_product_rounded || !is_of(pair.scale, p.scale, p) || !is_of(pair.shift, p.shift, p))
      continue;
    if (!is_float(pair.scale) && p.adds_constant && !is_held(p.type, p.constant)) continue;
    if (own.is_ragged) {
      auto starts = [&](Kind kind, const Modulation& of) {
        return kind != Kind::kDense || starts_on_vectors(p, of.data, of.batch_step, of.type);
      };
      if (!can_be_ragged(pair) || !starts(pair.scale, p.scale) || !starts(pair.shift, p.shift)) continue;
    }
    own.pair = i;
    break;
  }
  return own;
}

inline Flat flat_of(const Problem& p, bool is_ragged) {
  const int64_t vector = 16 / bytes_of(p.type), elements = p.tokens * p.width;
  Flat own{p.x.data, p.y.data, p.scale.data, p.shift.data};
  own.whole = static_cast<uint32_t>(elements / vector);
  own.rest = static_cast<uint32_t>(elements % vector);
  own.a_token = static_cast<uint32_t>(is_ragged ? p.width : p.width / vector);
  // n / a_token is (n * magic / 2^32 + n) / 2^digits for each n below 2^31.
  while (uint64_t{1} << own.digits < own.a_token) ++own.digits;
  const uint64_t above = (uint64_t{1} << own.digits) - own.a_token;
  own.magic = static_cast<uint32_t>((above << 32) / own.a_token + 1);
  own.constant = p.adds_constant ? p.constant : -0.f;
  own.half_constant = half_of(p.type, own.constant);
  own.x_batch = p.x.batch_step;
  own.y_batch = p.y.batch_step;
  own.scale_batch = p.scale.batch_step, own.scale_token = p.scale.token_step;
  own.shift_batch = p.shift.batch_step, own.shift_token = p.shift.token_step;
  return own;
}

// ---- in words -------------------------------------------------------------------------------------------------------

inline std::string described(const Problem& p, const FlatVariant& v) {
  static const char* const kKinds[] = {"none", "row", "dense", "stepped", "float row", "float stepped"};
  const Pair& pair = pairs_of(p.type, p.result).first[v.pair];
  auto word = [](Kind kind) { return std::string(kKinds[static_cast<int>(kind)]); };
  return "flat: scale " + word(pair.scale) + ", shift " + word(pair.shift) + (pair.rounds_product ? ", rounded" : "") +
         (v.is_ragged ? ", ragged" : "");
}

// ---- rows of tokens -------------------------------------------------------------------------------------------------

constexpr int kThreads = 256;
constexpr int kMostLanes = 128;
// Tokens a thread asks for before it uses the first: 64 bytes in flight each with loads of 16 bytes.
constexpr int kTokensOfWide = 4, kTokensOfNarrow = 8;
// Blocks a multiprocessor should get before a thread takes more than one token: parallel work hides more than long work.
constexpr int kBlocksToShare = 2;

// What a thread reads anew for each token; all else it reads once.
enum class Streams { kNone, kShift, kBoth };

struct Variant {
  FlatVariant flat;  // if one of its pairs fits, nothing below is looked at
  int vector = 1;  // elements of x a load: 16 bytes where the width and every row's start allow it
  int tokens = 1;  // a thread works on at once
  Streams streams = Streams::kBoth;
  int lanes = 32;  // threads beside each other on a token
  int rows = 8;    // tokens beside each other in a block
};

inline bool takes_vector(const Problem& p, int vector) {
  if (p.width % vector != 0) return false;
  const int64_t in = vector * bytes_of(p.type), out = vector * bytes_of(p.result);
  return is_aligned(p.x.data, p.x.batch_step, p.x.token_step, p.type, in < 16 ? in : 16) &&
         is_aligned(p.y.data, p.y.batch_step, p.y.token_step, p.result, out < 16 ? out : 16) &&
         takes_vector(p.scale, vector) && takes_vector(p.shift, vector);
}

// Brings a call to its fewest batches, and frames to batches: a row of modulation is then read once for many tokens.
inline void part(Problem* p) {
  fold_batches(p, {&p->x, &p->y}, {&p->scale, &p->shift});
  part_into_frames(p, {&p->x, &p->y}, {&p->scale, &p->shift});
}

inline int64_t ceil_of(int64_t whole, int64_t part) { return (whole + part - 1) / part; }

// Blocks of one batch.
inline int64_t blocks_of(const Problem& p, const Variant& v) {
  return ceil_of(p.width / v.vector, v.lanes) * ceil_of(p.tokens, static_cast<int64_t>(v.rows) * v.tokens);
}

// What is compiled for tokens that lie apart, and for numbers and mixed dtypes: vectors of 16 bytes for each kind of streams, with one token a thread or several; narrower ones (4
// bytes, or one element), which read all anew, with several.
inline Variant choose_variant(const Problem& p, int multiprocessors) {
  const int widest = static_cast<int>(16 / bytes_of(p.type)), middle = static_cast<int>(4 / bytes_of(p.type));
  Variant own;
  own.vector = takes_vector(p, widest) ? widest : takes_vector(p, middle) ? middle : 1;
  own.flat = choose_flat(p, own.vector == widest);
  if (own.flat.pair >= 0) return own;
  const int64_t vectors = p.width / own.vector;
  if (vectors <= 32) {
    own.lanes = 1;
    while (own.lanes < vectors) own.lanes *= 2;
  } else {  // as many as fit a token without a rest, so that a block reads long pieces and no thread is idle
    own.lanes = kMostLanes;
    while (own.lanes > 32 && vectors % own.lanes != 0) own.lanes /= 2;
  }
  own.rows = kThreads / own.lanes;
  if (own.vector != widest) {
    own.tokens = kTokensOfNarrow;
    return own;
  }
  if (p.scale.token_step == 0) own.streams = p.shift.token_step == 0 ? Streams::kNone : Streams::kShift;
  own.tokens = kTokensOfWide;
  if (blocks_of(p, own) * p.batches < static_cast<int64_t>(kBlocksToShare) * multiprocessors) own.tokens = 1;
  return own;
}

// ---- in words -------------------------------------------------------------------------------------------------------

inline std::string described(const Problem& p, const Variant& v) {
  static const char* const kStreams[] = {"nothing", "shift", "both"};
  std::ostringstream out;
  if (v.flat.pair >= 0) {
    out << described(p, v.flat);
  } else {
    out << "tiled: vector " << v.vector << ", " << v.tokens << " tokens a thread, streams "
        << kStreams[static_cast<int>(v.streams)] << ", " << v.lanes << " x " << v.rows << " threads";
  }
  if (p.batches > 1) out << ", " << p.batches << " batches";
  return out.str();
}

}  // namespace kernwright
