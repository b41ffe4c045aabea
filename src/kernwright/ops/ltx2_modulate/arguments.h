// Arguments: from the tensors of each op to a Problem, or to an error that names the argument.
//
// What is wrong for every implementation throws ValueError. What is right, but not for these kernels (another dtype, a last
// axis with gaps, modulations that make more of x than it is), makes each function answer false: the caller has other ways.

#pragma once

#include "folding.h"
#include "problem.h"

namespace kernwright {

inline bool read_rms_modulate(Problem* p, int32_t device_type, ffi::TensorView x, ffi::TensorView scale,
                              ffi::TensorView shift, double eps, ffi::TensorView y) {
  p->form = Form::kOne;
  p->eps = static_cast<float>(eps);
  Reader reader(p, x, device_type);
  reader.tokens(x, &p->x, "x");
  reader.broadcast(scale, &p->pairs[0].scale, "scale");
  reader.broadcast(shift, &p->pairs[0].shift, "shift");
  reader.tokens_of(Type::kFloat32, y, &p->y[0], "out", true);
  return reader.takes();
}

inline bool read_dual_modulate(Problem* p, int32_t device_type, ffi::TensorView x, ffi::TensorView scale0,
                               ffi::TensorView shift0, ffi::TensorView scale1, ffi::TensorView shift1, double eps,
                               ffi::TensorView y0, ffi::TensorView y1) {
  p->form = Form::kTwo;
  p->eps = static_cast<float>(eps);
  Reader reader(p, x, device_type);
  reader.tokens(x, &p->x, "x");
  reader.broadcast(scale0, &p->pairs[0].scale, "scale0");
  reader.broadcast(shift0, &p->pairs[0].shift, "shift0");
  reader.broadcast(scale1, &p->pairs[1].scale, "scale1");
  reader.broadcast(shift1, &p->pairs[1].shift, "shift1");
  reader.tokens_of(Type::kFloat32, y0, &p->y[0], "out", true);
  reader.tokens_of(Type::kFloat32, y1, &p->y[1], "out", true);
  return reader.takes();
}

// As the two above, of x with any axes: hand each Problem that the call amounts to to `run`.
template <typename Run>
bool each_rms_modulate(int32_t device_type, ffi::TensorView x, ffi::TensorView scale, ffi::TensorView shift, double eps,
                       ffi::TensorView y, const Run& run) {
  auto one = [&](ffi::TensorView x, ffi::TensorView scale, ffi::TensorView shift, ffi::TensorView y) {
    Problem problem;
    return read_rms_modulate(&problem, device_type, x, scale, shift, eps, y) && run(&problem);
  };
  if (x.ndim() <= kAxesOfReader) return one(x, scale, shift, y);
  Folding folding(x, "x", false);
  folding.tokens(x, "x").modulation(scale, "scale", true).modulation(shift, "shift", true).tokens(y, "out", true);
  return folding.each([&](Folding::Views own) {
    return one(own[0].value(), own[1].value(), own[2].value(), own[3].value());
  });
}

template <typename Run>
bool each_dual_modulate(int32_t device_type, ffi::TensorView x, ffi::TensorView scale0, ffi::TensorView shift0,
                        ffi::TensorView scale1, ffi::TensorView shift1, double eps, ffi::TensorView y0,
                        ffi::TensorView y1, const Run& run) {
  auto one = [&](ffi::TensorView x, ffi::TensorView scale0, ffi::TensorView shift0, ffi::TensorView scale1,
                 ffi::TensorView shift1, ffi::TensorView y0, ffi::TensorView y1) {
    Problem problem;
    return read_dual_modulate(&problem, device_type, x, scale0, shift0, scale1, shift1, eps, y0, y1) && run(&problem);
  };
  if (x.ndim() <= kAxesOfReader) return one(x, scale0, shift0, scale1, shift1, y0, y1);
  Folding folding(x, "x", false);
  folding.tokens(x, "x").modulation(scale0, "scale0", true).modulation(shift0, "shift0", true);
  folding.modulation(scale1, "scale1", true).modulation(shift1, "shift1", true);
  folding.tokens(y0, "out", true).tokens(y1, "out", true);
  return folding.each([&](Folding::Views own) {
    return one(own[0].value(), own[1].value(), own[2].value(), own[3].value(), own[4].value(), own[5].value(),
               own[6].value());
  });
}

// A modulation of `row` elements further on.
inline Modulation behind(const Modulation& of, int64_t row) {
  Modulation own = of;
  own.data = static_cast<const char*>(of.data) + row * bytes_of(of.type);
  return own;
}

// A scale and a shift for each result, in turn.
inline void read_table(Problem* p, Reader* reader, int ndim, ffi::TensorView temb, ffi::TensorView table) {
  const char *temb_name = "temb_scale_shift", *table_name = "scale_shift_table";
  Modulation timestep, rows;
  if (!reader->begins(temb, &timestep, temb_name) || !reader->begins(table, &rows, table_name)) return;
  const int64_t width = p->width, count = 2 * results_of(p->form);
  if (table.ndim() != 2 || table.size(0) != count || table.size(1) != width)
    TVM_FFI_THROW(ValueError) << table_name << ": must be [" << count << ", " << width << "]";
  if (temb.ndim() != 3 || temb.size(2) != count * width)
    TVM_FFI_THROW(ValueError) << temb_name << ": must be [B, 1, " << count * width << "]";
  timestep.token_step = reader->broadcast_step(temb, 1, p->tokens, "tokens", temb_name);
  if (ndim != 3) return reader->refuse();  // the results have three axes, x has not
  timestep.batch_step = reader->broadcast_step(temb, 0, p->batches, "batch entries", temb_name);
  if ((width > 0 && temb.stride(2) != 1) || (width > 1 && table.stride(1) != 1)) return reader->refuse();
  timestep.channel_step = rows.channel_step = 1;
  p->sum = timestep.type == rows.type ? rows.type : Type::kFloat32;
  for (int i = 0; i < results_of(p->form); ++i) {
    p->pairs[i].scale = behind(timestep, 2 * i * width);
    p->pairs[i].shift = behind(timestep, (2 * i + 1) * width);
    p->pairs[i].table_scale = behind(rows, 2 * i * table.stride(0));
    p->pairs[i].table_shift = behind(rows, (2 * i + 1) * table.stride(0));
  }
}

inline bool read_rms_modulate_from_table(Problem* p, int32_t device_type, ffi::TensorView x, ffi::TensorView temb,
                                         ffi::TensorView table, double eps, ffi::TensorView y) {
  p->form = Form::kOneOfTable;
  p->eps = static_cast<float>(eps);
  Reader reader(p, x, device_type);
  reader.tokens(x, &p->x, "x");
  read_table(p, &reader, x.ndim(), temb, table);
  reader.tokens_of(Type::kFloat32, y, &p->y[0], "out", true);
  return reader.takes();
}

inline bool read_dual_modulate_from_table(Problem* p, int32_t device_type, ffi::TensorView x, ffi::TensorView temb,
                                          ffi::TensorView table, double eps, ffi::TensorView y0, ffi::TensorView y1) {
  p->form = Form::kTwoOfTable;
  p->eps = static_cast<float>(eps);
  Reader reader(p, x, device_type);
  reader.tokens(x, &p->x, "x");
  read_table(p, &reader, x.ndim(), temb, table);
  reader.tokens_of(Type::kFloat32, y0, &p->y[0], "out", true);
  reader.tokens_of(Type::kFloat32, y1, &p->y[1], "out", true);
  return reader.takes();
}

// Of x with any axes, too. `one` takes x, the timestep's embedding, and the results.
template <typename One>
bool each_part_of_table(ffi::TensorView x, ffi::TensorView temb, ffi::TensorView y0, MaybeTensor y1, const One& one) {
  if (x.ndim() <= kAxesOfReader || temb.ndim() != 3) return one(x, temb, y0, y1);
  Folding folding(x, "x", false);
  folding.tokens(x, "x").modulation(temb, "temb_scale_shift", true).tokens(y0, "out", true).tokens(y1, "out", true);
  return folding.each(
      [&](Folding::Views own) { return one(own[0].value(), own[1].value(), own[2].value(), own[3]); });
}

template <typename Run>
bool each_rms_modulate_from_table(int32_t device_type, ffi::TensorView x, ffi::TensorView temb, ffi::TensorView table,
                                  double eps, ffi::TensorView y, const Run& run) {
  return each_part_of_table(x, temb, y, {},
                            [&](ffi::TensorView x, ffi::TensorView temb, ffi::TensorView y, const MaybeTensor&) {
                              Problem problem;
                              return read_rms_modulate_from_table(&problem, device_type, x, temb, table, eps, y) &&
                                     run(&problem);
                            });
}

template <typename Run>
bool each_dual_modulate_from_table(int32_t device_type, ffi::TensorView x, ffi::TensorView temb, ffi::TensorView table,
                                   double eps, ffi::TensorView y0, ffi::TensorView y1, const Run& run) {
  return each_part_of_table(
      x, temb, y0, y1, [&](ffi::TensorView x, ffi::TensorView temb, ffi::TensorView y0, const MaybeTensor& y1) {
        Problem problem;
        return read_dual_modulate_from_table(&problem, device_type, x, temb, table, eps, y0, y1.value()) && run(&problem);
      });
}

}  // namespace kernwright
