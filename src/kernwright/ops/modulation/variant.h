// Variant: which of the compiled CUDA kernels takes a problem, and in what blocks.
//
// Policy apart from mechanism: this file decides and launches nothing, so it can be read, and tested, without a GPU.

#pragma once

#include <sstream>
#include <string>

#include "flat.h"
#include "problem.h"

namespace kernwright {

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

inline void fold_batches(Problem* p) { fold_batches(p, {&p->x, &p->y}, {&p->scale, &p->shift}); }

// A row of modulation is then read once for many tokens.
inline void part_into_frames(Problem* p) { part_into_frames(p, {&p->x, &p->y}, {&p->scale, &p->shift}); }

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
