// Variant: which of the compiled CUDA kernels takes a problem, and with how many threads.
//
// Policy apart from mechanism: this file decides and launches nothing, so it can be read, and tested, without a GPU.

#pragma once

#include "problem.h"

namespace kernwright {

constexpr int kMostThreads = 1024;
constexpr int kMostValues = 16;   // of a token that a thread holds: of 64 registers with 1024 threads, more would spill
constexpr int kValuesAtEase = 8;  // up to here there is room for modulations, and for the next token's loads, beside them
constexpr int kThreadsOfSmallRows = 128;  // a block of several tokens: enough warps to hide each other's latency

struct Variant {
  int vector = 1;        // elements a load: 16 bytes where the width and every row's start allow it
  int steps = 0;         // vectors of a token that one thread holds in registers; 0: the token is streamed
  bool is_kept = false;  // modulations stay in registers from token to token
  int lanes = 32;        // threads a token: a power of two up to a warp, whole warps beyond
  int rows = 1;          // tokens a block works on at once
};

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

inline void fold_batches(Problem* p) { fold_batches(p, {&p->x, &p->residual, &p->y, &p->sum}, {&p->scale, &p->shift, &p->gate}); }

// What is compiled: vectors of 16 bytes, as few a thread as the block's size allows; narrower ones (4 bytes, or one element)
// with 8 a thread; each width also streamed, for tokens that no block can hold.
inline Variant choose_variant(const Problem& p) {
  const int widest = static_cast<int>(16 / bytes_of(p.type));
  const int middle = static_cast<int>(4 / bytes_of(p.type));
  Variant own;
  own.vector = takes_vector(p, widest) ? widest : takes_vector(p, middle) ? middle : 1;
  const int64_t vectors = p.width / own.vector;
  const int most_steps = own.vector == widest ? kMostValues / widest : 8;
  int steps = own.vector == widest ? 1 : 8;
  while (steps < most_steps && (vectors + steps - 1) / steps > kMostThreads) steps *= 2;
  const int64_t lanes = (vectors + steps - 1) / steps;
  if (lanes > kMostThreads) {
    own.lanes = kMostThreads;
    return own;
  }
  own.steps = steps;
  own.is_kept = own.vector == widest && steps * widest <= kValuesAtEase && !is_per_token(p);
  if (lanes > 32) {
    own.lanes = static_cast<int>((lanes + 31) / 32 * 32);
    return own;
  }
  own.lanes = 1;
  while (own.lanes < lanes) own.lanes *= 2;
  own.rows = kThreadsOfSmallRows / own.lanes;
  return own;
}

}  // namespace kernwright
