// The foreign function of one op and dtype on a GPU. It is compiled apart from the kernels, at the same time.

#include "calling.h"
#include "policy.h"

namespace kernwright {

int launch(const Problem& p, const Variant& v, int device, void* stream);

inline Type output_type(const Problem&, const Tokens*) { return Type::kFloat32; }

namespace {

template <Form kForm>
struct Launched : CallDefaults {
  using Own = Problem;

  template <typename Given>
  static bool begin(Problem* start, const Given&) {
    start->form = kForm;
    return true;
  }
  static bool is_compiled(const Problem& p) { return p.type == Type::KERNWRIGHT_TYPE; }
  static int start(const Problem& p, int device, void* stream) { return launch(p, choose_variant(p), device, stream); }
};

// A modulation of `row` elements further on.
inline Modulation behind(const Modulation& of, int64_t row) {
  Modulation own = of;
  own.data = static_cast<const char*>(of.data) + row * bytes_of(of.type);
  return own;
}

// Reads a scale and a shift for each result, in turn, from a table and the timestep's embedding that is added to it.
template <Form kForm>
struct OfTable : Launched<kForm> {
  template <typename Given>
  static void finish(Problem* p, Reader* reader, const Given& given) {
    const char *temb_name = "temb_scale_shift", *table_name = "scale_shift_table";
    const ffi::TensorView temb = given[temb_name], table = given[table_name];
    Modulation timestep, rows;
    if (!reader->begins(temb, &timestep, temb_name) || !reader->begins(table, &rows, table_name)) return;
    const int64_t width = p->width, count = 2 * results_of(kForm);
    if (table.ndim() != 2 || table.size(0) != count || table.size(1) != width)
      TVM_FFI_THROW(ValueError) << table_name << ": must be [" << count << ", " << width << "]";
    if (temb.ndim() != 3 || temb.size(2) != count * width)
      TVM_FFI_THROW(ValueError) << temb_name << ": must be [B, 1, " << count * width << "]";
    timestep.token_step = reader->broadcast_step(temb, 1, p->tokens, "tokens", temb_name);
    if (given.first().ndim() != 3) return reader->refuse();  // the results have three axes, x has not
    timestep.batch_step = reader->broadcast_step(temb, 0, p->batches, "batch entries", temb_name);
    if ((width > 0 && temb.stride(2) != 1) || (width > 1 && table.stride(1) != 1)) return reader->refuse();
    timestep.channel_step = rows.channel_step = 1;
    p->sum = timestep.type == rows.type ? rows.type : Type::kFloat32;
    for (int i = 0; i < results_of(kForm); ++i) {
      p->pairs[i].scale = behind(timestep, 2 * i * width);
      p->pairs[i].shift = behind(timestep, (2 * i + 1) * width);
      p->pairs[i].table_scale = behind(rows, 2 * i * table.stride(0));
      p->pairs[i].table_shift = behind(rows, (2 * i + 1) * table.stride(0));
    }
  }
};

template <Form kForm>
struct Call;

template <>
struct Call<Form::kOne> : Launched<Form::kOne> {
  static constexpr Parameter<Problem> kParameters[] = {
      ARGUMENT(kFirst, x, x), ARGUMENT(kBroadcast, scale, pairs[0].scale), ARGUMENT(kBroadcast, shift, pairs[0].shift),
      ARGUMENT(kNumber, eps, eps), ARGUMENT(kOutput, y, y[0])};
};

template <>
struct Call<Form::kTwo> : Launched<Form::kTwo> {
  static constexpr Parameter<Problem> kParameters[] = {
      ARGUMENT(kFirst, x, x), ARGUMENT(kBroadcast, scale0, pairs[0].scale), ARGUMENT(kBroadcast, shift0, pairs[0].shift),
      ARGUMENT(kBroadcast, scale1, pairs[1].scale), ARGUMENT(kBroadcast, shift1, pairs[1].shift),
      ARGUMENT(kNumber, eps, eps), ARGUMENT(kOutput, y0, y[0]), ARGUMENT(kOutput, y1, y[1])};
};

template <>
struct Call<Form::kOneOfTable> : OfTable<Form::kOneOfTable> {
  static constexpr Parameter<Problem> kParameters[] = {
      ARGUMENT(kFirst, x, x), parameter<Problem>(Role::kFolded, "temb_scale_shift"),
      parameter<Problem>(Role::kWhole, "scale_shift_table"), ARGUMENT(kNumber, eps, eps), ARGUMENT(kOutput, y, y[0])};
};

template <>
struct Call<Form::kTwoOfTable> : OfTable<Form::kTwoOfTable> {
  static constexpr Parameter<Problem> kParameters[] = {
      ARGUMENT(kFirst, x, x), parameter<Problem>(Role::kFolded, "temb_scale_shift"),
      parameter<Problem>(Role::kWhole, "scale_shift_table"), ARGUMENT(kNumber, eps, eps),
      ARGUMENT(kOutput, y0, y[0]), ARGUMENT(kOutput, y1, y[1])};
};

}  // namespace
}  // namespace kernwright

#ifdef KERNWRIGHT_FORM
KERNWRIGHT_EXPORT(KERNWRIGHT_OP, kernwright::call<kernwright::Call<kernwright::Form::KERNWRIGHT_FORM>>)
KERNWRIGHT_EXPORT(parameters, kernwright::parameters<kernwright::Call<kernwright::Form::KERNWRIGHT_FORM>>)
#endif
