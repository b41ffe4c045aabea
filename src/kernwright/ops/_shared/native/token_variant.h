// TokenVariant: which of a family's compiled kernels takes a call, with how many threads and in what blocks.
//
// Policy apart from mechanism: this file decides and launches nothing, so it can be read, and tested, without a GPU. The
// kernels are those of token_norm.cuh; a family brings the table of its shapes.

#pragma once

#include <sstream>
#include <string>

#include "tensors.h"

namespace kernwright {

// How a kernel comes by its rows of modulation.
enum class Rows : int32_t {
  kEarly,  // of the one dtype that the kernel is compiled for, and asked for together with the token
  kLate,   // of that dtype, asked for when the token's sums are there: they take no registers before
  kAny,    // anything: numbers, mixed dtypes, a row for so many tokens
  // As the first two, where tokens and rows start anywhere, or have an odd end. A thread has vectors of 16 bytes as they lie
  // in x's memory; rows are shifted to them.
  kShiftedEarly,
  kShiftedLate,
};

constexpr bool is_shifted(Rows rows) { return rows == Rows::kShiftedEarly || rows == Rows::kShiftedLate; }
constexpr bool is_early(Rows rows) { return rows == Rows::kEarly || rows == Rows::kShiftedEarly; }

// A token in registers: `vectors` a thread, and up to `warps` of a block. Where it `is_exact` there are just these warps, and
// the token fills them: nobody asks whether a vector is there.
struct TokenShape {
  Rows rows;
  bool is_wide;  // vectors of 16 bytes; else single elements, for widths and starts that allow no more
  bool is_exact;
  int vectors, warps;
  int least_blocks;  // a multiprocessor: what a thread may have of registers follows from it
};

constexpr int kWarpsOfSmall = 4;  // of a block, each with a token of its own
constexpr int kVectorsOfSmall = 2, kElementsOfSmall = 8;  // a thread
constexpr int kThreadsOfStreamed = 512;

enum class TokenKind : int32_t {
  kHeld,      // one token a block, in registers
  kSmall,     // one token a warp, in registers
  kStreamed,  // too wide for either: read several times, all but once out of the cache
};

struct TokenVariant {
  TokenKind kind = TokenKind::kStreamed;
  int vector = 1;  // elements a load: 16 bytes where the width and every row's start allow it
  int shape = 0;   // kHeld: which of the family's table
  bool is_shifted = false;  // reads up to 14 bytes beside its rows: allocation.cuh says whether they are there
  int threads = kThreadsOfStreamed;
  int tokens = 1;  // a block
};

// What a family knows of a call.
struct TokenCall {
  Extent extent;
  bool is_wide;   // every tensor can be read 16 bytes of tokens at a time
  bool is_known;  // every row of modulation is of the dtype that the kernels are compiled for
  bool lies_alike;  // a token starts at the same place within 16 bytes in x and in each output and input of its kind
};

// Vectors that a token may take part of, wherever it starts.
inline int64_t vectors_around(int64_t width, int64_t vector) { return (width + 2 * (vector - 1)) / vector; }

inline bool can_hold(const TokenShape& shape, int64_t vectors) {
  const int64_t beside = 32 * shape.warps;
  return shape.is_exact ? vectors == beside * shape.vectors : vectors <= beside * shape.vectors;
}

// The first of the table that can hold the token is the one.
inline TokenVariant choose_token_variant(const TokenCall& call, const TokenShape* shapes, int count,
                                         bool may_shift = true) {
  const Extent& of = call.extent;
  const int64_t size = bytes_of(of.type), most_blocks = INT32_MAX;
  TokenVariant own;
  own.vector = call.is_wide ? static_cast<int>(16 / size) : 1;
  const int64_t vectors = of.width / own.vector;
  if (of.tokens > most_blocks) return own;  // a streamed block goes on with the next token
  if (vectors <= 32 * (call.is_wide ? kVectorsOfSmall : kElementsOfSmall)) {
    own.kind = TokenKind::kSmall;
    own.threads = 32 * kWarpsOfSmall;
    own.tokens = kWarpsOfSmall;
    return own;
  }
  for (int i = 0; i < count; ++i) {
    const TokenShape& shape = shapes[i];
    const bool is_shifted = kernwright::is_shifted(shape.rows);
    if (is_shifted ? call.is_wide || !call.lies_alike || !may_shift : shape.is_wide != call.is_wide) continue;
    const int64_t wanted = is_shifted ? vectors_around(of.width, 16 / size) : vectors;
    if ((shape.rows != Rows::kAny && !call.is_known) || !can_hold(shape, wanted)) continue;
    own.kind = TokenKind::kHeld;
    own.shape = i;
    const int64_t beside = 32 * shape.vectors;
    own.threads = 32 * (shape.is_exact ? shape.warps : static_cast<int>((wanted + beside - 1) / beside));
    if (is_shifted) own.is_shifted = true, own.vector = static_cast<int>(16 / size);
    return own;
  }
  return own;
}

inline std::string described(const TokenVariant& v, const TokenShape* shapes) {
  static const char* const kKinds[] = {"held", "small", "streamed"};
  static const char* const kRows[] = {"early rows", "late rows", "any rows", "shifted early rows", "shifted late rows"};
  std::ostringstream out;
  out << kKinds[static_cast<int>(v.kind)] << ": vector " << v.vector << ", ";
  if (v.kind == TokenKind::kHeld)
    out << shapes[v.shape].vectors << " a thread, " << kRows[static_cast<int>(shapes[v.shape].rows)] << ", ";
  out << v.threads << " threads";
  return out.str();
}

// Whether every token, and every row of modulation, can be read `vector` elements of x's dtype at a time. What is not there
// can.
inline bool is_wide(const Extent& of, std::initializer_list<const Tokens*> tokens,
                    std::initializer_list<const Modulation*> rows) {
  const int vector = static_cast<int>(16 / bytes_of(of.type));
  if (of.width % vector != 0) return false;
  for (const Tokens* own : tokens)
    if (!is_aligned(own->data, own->batch_step, own->token_step, of.type, 16)) return false;
  for (const Modulation* own : rows)
    if (!takes_vector(*own, vector)) return false;
  return true;
}

// Whether a token starts at the same place within 16 bytes in all of them. What is not there lies like any.
inline bool lie_alike(const Extent& of, std::initializer_list<const Tokens*> tokens) {
  const Tokens& first = **tokens.begin();
  const int64_t size = bytes_of(of.type);
  auto differs = [](int64_t a, int64_t b) { return (a - b) % 16 != 0; };
  for (const Tokens* own : tokens) {
    if (own->data == nullptr) continue;
    if (differs(reinterpret_cast<intptr_t>(own->data), reinterpret_cast<intptr_t>(first.data)) ||
        differs(own->batch_step * size, first.batch_step * size) || differs(own->token_step * size, first.token_step * size))
      return false;
  }
  return true;
}

// Whether every row that is there is of one dtype, with all its channels, and serves a token, a batch entry or all.
inline bool are_rows_of(Type type, std::initializer_list<const Modulation*> rows) {
  for (const Modulation* own : rows)
    if (own->data && (own->type != type || own->channel_step != 1 || own->tokens_per_row != 1)) return false;
  return true;
}

}  // namespace kernwright
