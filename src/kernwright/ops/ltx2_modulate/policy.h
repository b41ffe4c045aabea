// Problem: one call of rms_modulate, dual_modulate, or either from table and timestep:
//
//   y = rms(x) * (1 + scale) + shift      for one pair of scale and shift, or for two of the same norm
//
// Results are float32. 1 + scale rounds in scale's own dtype; where scale and shift are sums of a timestep's row and a
// table's, these round before that in the dtype that holds both, and 1 + scale rounds in it too. All else is float32.
//
// The policy below chooses a kernel. It launches nothing, so that it can be read and tested without a GPU.

#pragma once

#include <cstdint>
#include <sstream>
#include <string>

#include "tensors.h"

namespace kernwright {

enum class Form { kOne, kTwo, kOneOfTable, kTwoOfTable };

constexpr bool is_of_table(Form form) { return form == Form::kOneOfTable || form == Form::kTwoOfTable; }
constexpr int results_of(Form form) { return form == Form::kOne || form == Form::kOneOfTable ? 1 : 2; }

struct Pair {
  Modulation scale, shift;
  Modulation table_scale, table_shift;  // only from a table: the rows that are added to them
};

struct Problem : Extent {  // its type is x's
  Form form = Form::kOne;
  float eps = 0.f;
  Type sum = Type::kFloat32;  // only from a table: the dtype of the sums
  Tokens x, y[2];
  Pair pairs[2];
};

// Torch sums a token with kThreads threads, each of which takes groups of kGroup channels in turn. All kernels here do the same,
// so that the order of the sum, and with it every bit, is the same in all of them.
constexpr int kThreads = 128;
constexpr int kGroup = 4;

struct Variant {
  int groups = 0;             // most groups that a thread holds, with rows of x's dtype; 0: the token is read twice
  bool is_vector = false;     // groups are loaded and stored whole
};

// Returns the number of groups whose rows are loaded together with the token. They have arrived when the sum is done, which matters
// for grids of few blocks. They take registers, twice as many from a table: with many groups per thread only some are loaded ahead,
// and those of another group whenever a group is done. On an H200, two results from a table, 4096 wide: 1,536 tokens of two batches
// take 36.1 us with 32 registers, 38.1 with 64, 45.0 with 96, and 48.0 with all rows loaded after the sum; 8,160 tokens 88.3, 90.5,
// 109.1 and 94.2; 126 tokens, 2048 wide, 4 groups: 3.64, 3.29, 3.29 and 3.38. Without a table 32 registers are 2 to 4 % slower than
// 64, next to torch.compile in the same run.
constexpr int groups_ahead(Form form, Type type, int groups) {
  const int rows = results_of(form) * (is_of_table(form) ? 4 : 2);
  const int registers = is_of_table(form) && groups > 4 ? 32 : 64;
  const int fit = registers / (rows * (type == Type::kFloat32 ? 4 : 2));
  return fit < groups ? fit : groups;
}

inline int rows_of(const Problem& p, const Modulation* (&found)[8]) {
  int count = 0;
  for (int i = 0; i < results_of(p.form); ++i) {
    const Pair& own = p.pairs[i];
    for (const Modulation* of : {&own.scale, &own.shift, &own.table_scale, &own.table_shift})
      if (of->data != nullptr) found[count++] = of;
  }
  return count;
}

inline bool takes_groups(const Problem& p) {
  if (p.width % kGroup != 0) return false;
  if (!is_aligned(p.x.data, p.x.batch_step, p.x.token_step, p.type, kGroup * bytes_of(p.type))) return false;
  for (int i = 0; i < results_of(p.form); ++i)
    if (!is_aligned(p.y[i].data, p.y[i].batch_step, p.y[i].token_step, Type::kFloat32, 16)) return false;
  const Modulation* rows[8];
  for (int i = rows_of(p, rows) - 1; i >= 0; --i)
    if (!takes_vector(*rows[i], kGroup)) return false;
  return true;
}

inline bool are_rows_own(const Problem& p) {
  const Modulation* rows[8];
  for (int i = rows_of(p, rows) - 1; i >= 0; --i)
    if (rows[i]->type != p.type || rows[i]->channel_step != 1) return false;
  return true;
}

inline void part(Problem* p) {
  Pair &one = p->pairs[0], &two = p->pairs[1];
  fold_batches(p, {&p->x, &p->y[0], &p->y[results_of(p->form) - 1]},
               {&one.scale, &one.shift, &one.table_scale, &one.table_shift, &two.scale, &two.shift, &two.table_scale,
                &two.table_shift});
}

inline Variant choose_variant(const Problem& p) {
  Variant own;
  own.is_vector = takes_groups(p);
  const int64_t most_blocks = INT32_MAX;
  if (!own.is_vector || p.tokens > most_blocks || !are_rows_own(p)) return own;
  for (const int groups : {16, 8, 4})
    if (p.width <= groups * kThreads * kGroup) own.groups = groups;
  return own;
}

inline std::string described(const Problem& p, const Variant& v) {
  std::ostringstream out;
  if (v.groups) {
    out << v.groups << " groups a thread, rows of " << groups_ahead(p.form, p.type, v.groups) << " ahead";
  } else {
    out << "read twice by " << (v.is_vector ? kGroup : 1);
  }
  return out.str();
}

}  // namespace kernwright
