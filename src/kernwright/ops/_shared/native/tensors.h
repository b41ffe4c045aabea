// Tokens and Modulation: tensors as the native kernels of every family take them.
//
// Plain data, so that a kernel's file needs no other header of ours. Steps are in elements, and 64 bits wide: a tensor may
// have more than 2^31 elements.

#pragma once

#include <cstdint>
#include <initializer_list>

namespace kernwright {

enum class Type : int32_t { kFloat32, kFloat16, kBFloat16 };

inline int64_t bytes_of(Type type) { return type == Type::kFloat32 ? 4 : 2; }

// Rows of width elements, one for each token (b, s); the last axis is dense.
struct Tokens {
  void* data = nullptr;
  int64_t batch_step = 0, token_step = 0;
};

// A tensor that modulates: its row for token (b, s) starts at b * batch_step + (s / tokens_per_row) * token_step. Per
// channel both steps are 0; per batch row, or per token, one of them; per frame a row serves several tokens.
struct Modulation {
  const void* data = nullptr;  // null: there is none
  int64_t batch_step = 0, token_step = 0, tokens_per_row = 1;
  int32_t channel_step = 0;  // 1, or 0 where one number serves all channels
  Type type = Type::kFloat32;
};

// The sizes that all tensors of a call are held against.
struct Extent {
  int64_t batches = 0, tokens = 0;
  int32_t width = 0;
  Type type = Type::kFloat32;  // of the tokens
};

inline bool is_empty(const Extent& of) { return of.batches == 0 || of.tokens == 0 || of.width == 0; }

constexpr int64_t kWidest = 65536;

// Whether rows that start at `data`, `step` elements apart, can be read `bytes` at a time.
inline bool is_aligned(const void* data, int64_t batch_step, int64_t token_step, Type type, int64_t bytes) {
  const int64_t size = bytes_of(type);
  return reinterpret_cast<uintptr_t>(data) % bytes == 0 && batch_step * size % bytes == 0 &&
         token_step * size % bytes == 0;
}

// Whether `vector` of its elements can be read at once; a wider dtype takes several loads of 16 bytes.
inline bool takes_vector(const Modulation& of, int vector) {
  if (of.data == nullptr || of.channel_step == 0) return true;
  const int64_t whole = vector * bytes_of(of.type);
  return is_aligned(of.data, of.batch_step, of.token_step, of.type, whole < 16 ? whole : 16);
}

// The same work with fewer batches, where it is the same: one long run of tokens.
template <typename Problem>
void fold_batches(Problem* p, std::initializer_list<Tokens*> tokens, std::initializer_list<Modulation*> modulations) {
  if (p->batches <= 1) return;
  if (p->tokens == 1) {  // a batch of single tokens is a run of tokens
    for (Tokens* of : tokens) of->token_step = of->batch_step;
    for (Modulation* of : modulations) of->token_step = of->batch_step, of->tokens_per_row = 1;
  } else {
    for (const Tokens* of : tokens)
      if (of->batch_step != p->tokens * of->token_step) return;
    for (const Modulation* of : modulations)
      if (of->batch_step != p->tokens / of->tokens_per_row * of->token_step) return;
  }
  for (Tokens* of : tokens) of->batch_step = 0;
  for (Modulation* of : modulations) of->batch_step = 0;
  p->tokens *= p->batches;
  p->batches = 1;
}

// Frames become batches, so that no token asks which frame it is in.
template <typename Problem>
void part_into_frames(Problem* p, std::initializer_list<Tokens*> tokens, std::initializer_list<Modulation*> modulations) {
  if (p->batches != 1) return;
  int64_t frame = 1;
  for (const Modulation* of : modulations)
    if (of->tokens_per_row > frame) frame = of->tokens_per_row;
  if (frame == 1) return;
  for (const Modulation* of : modulations)
    if (of->token_step != 0 && of->tokens_per_row != frame && of->tokens_per_row != 1) return;
  for (Modulation* of : modulations) {
    if (of->tokens_per_row == frame) {
      of->batch_step = of->token_step;
      of->token_step = 0;
    } else {
      of->batch_step = frame * of->token_step;
    }
    of->tokens_per_row = 1;
  }
  for (Tokens* of : tokens) of->batch_step = frame * of->token_step;
  p->batches = p->tokens / frame;
  p->tokens = frame;
}

}  // namespace kernwright
