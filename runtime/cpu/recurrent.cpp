// One recurrent layer over a whole sequence, in one direction: the inputs' products of all steps at
// once, then step by step the state's product and the gates. The gates are in torch's order.
#include <cstring>

#include "common/copy.h"
#include "common/shim_support.h"
#include "common/tensor.h"
#include "common/vector_math.h"
#include "cpu/rows.h"
#include "kernels/kernels.h"

using namespace menagerie;

namespace {

// The operator's numbers (ideep::rnn_kind).
enum class Cell { kRelu = 0, kTanh = 1, kLstm = 2, kGru = 3 };

int64_t gates_of(Cell cell) { return cell == Cell::kLstm ? 4 : cell == Cell::kGru ? 3 : 1; }

struct Layer {
  Cell cell;
  const Tensor& input;                  // [steps, batch, features]
  const Tensor& weight;                 // [gates * hidden, features]
  const Tensor& state_weight;           // [gates * hidden, hidden]
  const Tensor *bias, *state_bias;      // [gates * hidden], or both null
  const Tensor &hidden_in, &memory_in;  // of batch * hidden elements; the latter an LSTM's
  int64_t hidden;
  bool reverse;
};

struct Sequence {
  Tensor output;          // [steps, batch, hidden]
  Tensor hidden, memory;  // of the initial states' sizes
};

// Compute x[M, K] * weight[N, K]^T + bias.
void multiply(const Tensor& x, const Tensor& weight, const Tensor* bias, const Tensor& result) {
  kernels::matrix_product({x, with_axis_moved(weight, 0, 1), bias}, result);
}

Float8 load(const float* from, int64_t count) {
  Float8 values{};
  if (count >= 8) {
    std::memcpy(&values, from, sizeof values);
  } else {
    std::memcpy(&values, from, static_cast<size_t>(count) * sizeof(float));
  }
  return values;
}

void store(Float8 values, float* to, int64_t count) {
  if (count >= 8) {
    std::memcpy(to, &values, sizeof values);
  } else {
    std::memcpy(to, &values, static_cast<size_t>(count) * sizeof(float));
  }
}

// The data that one row of a batch reads and writes in a step.
struct Row {
  const float* products;        // the input's, one gate after another
  const float* state_products;  // the state's, likewise
  const float* hidden_before;
  float* memory;  // an LSTM's
  float* hidden;
};

template <Cell cell>
Float8 next_state(const Row& row, int64_t hidden, int64_t at) {
  const int64_t count = hidden - at;
  const auto input = [&](int64_t gate) { return load(row.products + gate * hidden + at, count); };
  const auto state = [&](int64_t gate) {
    return load(row.state_products + gate * hidden + at, count);
  };
  const auto both = [&](int64_t gate) { return input(gate) + state(gate); };
  if constexpr (cell == Cell::kLstm) {
    const Float8 kept = sigmoid8(both(1)) * load(row.memory + at, count);
    const Float8 memory = kept + sigmoid8(both(0)) * tanh8(both(2));
    store(memory, row.memory + at, count);
    return sigmoid8(both(3)) * tanh8(memory);
  } else if constexpr (cell == Cell::kGru) {
    const Float8 fresh = tanh8(input(2) + sigmoid8(both(0)) * state(2));
    return (load(row.hidden_before + at, count) - fresh) * sigmoid8(both(1)) + fresh;
  } else if constexpr (cell == Cell::kTanh) {
    return tanh8(both(0));
  } else {
    const Float8 sum = both(0);
    return sum < 0.0F ? Float8{} : sum;  // NaN stays
  }
}

template <Cell cell>
void step(const Row& row, int64_t hidden) {
  for (int64_t at = 0; at < hidden; at += 8) {
    store(next_state<cell>(row, hidden, at), row.hidden + at, hidden - at);
  }
}

void step(Cell cell, const Row& row, int64_t hidden) {
  switch (cell) {
    case Cell::kRelu:
      return step<Cell::kRelu>(row, hidden);
    case Cell::kTanh:
      return step<Cell::kTanh>(row, hidden);
    case Cell::kLstm:
      return step<Cell::kLstm>(row, hidden);
    case Cell::kGru:
      return step<Cell::kGru>(row, hidden);
  }
}

// Compute the layer in single precision; the biases are dense.
Sequence computed(const Layer& layer) {
  const int64_t steps = layer.input.size[0];
  const int64_t batch = layer.input.size[1];
  const int64_t hidden = layer.hidden;
  const int64_t width = gates_of(layer.cell) * hidden;
  const int64_t sizes[] = {steps, batch, hidden};
  const int64_t all_rows[] = {steps * batch, width};
  const int64_t rows[] = {batch, width};
  Sequence result{empty_contiguous(Dtype::kFloat32, sizes), contiguous(layer.hidden_in),
                  contiguous(layer.memory_in)};
  if (result.output.empty()) return result;

  const Tensor products = empty_contiguous(Dtype::kFloat32, all_rows);
  multiply(as_matrix(layer.input, layer.input.size[2]), layer.weight, layer.bias, products);
  const Tensor state_products = empty_contiguous(Dtype::kFloat32, rows);
  Tensor before = as_matrix(result.hidden, hidden);
  Tensor after = before;
  after.storage = result.output.storage;
  for (int64_t done = 0; done < steps; ++done) {
    const int64_t now = layer.reverse ? steps - 1 - done : done;
    after.offset_bytes =
        result.output.offset_bytes + now * batch * hidden * static_cast<int64_t>(sizeof(float));
    multiply(before, layer.state_weight, layer.state_bias, state_products);
    for_each_row(static_cast<size_t>(batch), [&](size_t index) {
      const auto row = static_cast<int64_t>(index);
      const int64_t own = row * hidden;
      step(layer.cell,
           {products.data<float>() + (now * batch + row) * width,
            state_products.data<float>() + row * width, before.data<float>() + own,
            result.memory.data<float>() + own, after.data<float>() + own},
           hidden);
    });
    before = after;
  }
  copy(before, as_matrix(result.hidden, hidden));
  return result;
}

Tensor in_single(const Tensor& tensor) {
  return tensor.dtype == Dtype::kFloat32 ? tensor : widened(tensor);
}

Tensor narrowed(const Tensor& tensor, Dtype dtype) {
  return tensor.dtype == dtype ? tensor : contiguous(tensor, dtype);
}

void check(const Layer& layer) {
  const Tensor& x = layer.input;
  require(x.dimensions == 3 && (x.dtype == Dtype::kFloat32 || is_half(x.dtype)),
          "the input must be float32, float16 or bfloat16 [steps, batch, features], not ", x);
  require(layer.hidden > 0 && x.size[2] > 0, "there are no features in ", x);
  const int64_t width = gates_of(layer.cell) * layer.hidden;
  const auto fits = [&](const Tensor& weight, int64_t columns) {
    return weight.dtype == x.dtype && weight.dimensions == 2 && weight.size[0] == width &&
           weight.size[1] == columns;
  };
  require(fits(layer.weight, x.size[2]) && fits(layer.state_weight, layer.hidden), "the weights ",
          layer.weight, " and ", layer.state_weight, " do not fit ", x, " and a state of ",
          layer.hidden);
  for (const Tensor* bias : {layer.bias, layer.state_bias}) {
    require(bias == nullptr ||
                (bias->dtype == x.dtype && bias->dimensions == 1 && bias->size[0] == width),
            "each bias must be a list of ", width, " elements");
  }
  for (const Tensor* state : {&layer.hidden_in, &layer.memory_in}) {
    require(state->dtype == x.dtype && state->dimensions >= 2 &&
                state->size[state->dimensions - 1] == layer.hidden &&
                state->elements() == x.size[1] * layer.hidden,
            "the state ", *state, " does not fit ", x);
  }
}

}  // namespace

MENAGERIE_SHIM aoti_torch_cpu_mkldnn_rnn_layer(
    AtenTensorHandle input, AtenTensorHandle weight0, AtenTensorHandle weight1,
    AtenTensorHandle weight2, AtenTensorHandle weight3, AtenTensorHandle hx_, AtenTensorHandle cx_,
    int32_t reverse, const int64_t* batch_sizes, int64_t batch_sizes_len_, int64_t mode,
    int64_t hidden_size, int64_t num_layers, int32_t has_biases, int32_t bidirectional,
    int32_t batch_first, int32_t train, AtenTensorHandle* ret0, AtenTensorHandle* ret1,
    AtenTensorHandle* ret2, AtenTensorHandle* ret3) {
  return kernel(__func__, [&] {
    require(mode >= 0 && mode <= 3, "mode ", mode, " is not a recurrent layer");
    require(num_layers == 1 && bidirectional == 0 && batch_first == 0 && train == 0 &&
                numbers(batch_sizes, batch_sizes_len_).empty(),
            "one layer in one direction over a whole sequence is computed at a time");
    const Tensor& bias = operand(weight2);
    const Tensor& state_bias = operand(weight3);
    const Layer given{static_cast<Cell>(mode),
                      operand(input),
                      operand(weight0),
                      operand(weight1),
                      has_biases != 0 ? &bias : nullptr,
                      has_biases != 0 ? &state_bias : nullptr,
                      operand(hx_),
                      operand(cx_),
                      hidden_size,
                      reverse != 0};
    check(given);
    const Dtype dtype = given.input.dtype;
    const Tensor x = in_single(given.input);
    const Tensor weight = in_single(given.weight);
    const Tensor state_weight = in_single(given.state_weight);
    const Tensor hidden = in_single(given.hidden_in);
    const Tensor memory = in_single(given.memory_in);
    const auto dense = [](const Tensor& list) {
      const Tensor wide = in_single(list);
      return wide.is_contiguous() ? wide : contiguous(wide);
    };
    const Tensor dense_bias = has_biases != 0 ? dense(bias) : Tensor();
    const Tensor dense_state_bias = has_biases != 0 ? dense(state_bias) : Tensor();
    const Sequence result =
        computed({given.cell, x, weight, state_weight, has_biases != 0 ? &dense_bias : nullptr,
                  has_biases != 0 ? &dense_state_bias : nullptr, hidden, memory, hidden_size,
                  given.reverse});
    const int64_t one[] = {1};  // what training would keep; the compiler expects one element
    *ret0 = to_handle(narrowed(result.output, dtype));
    *ret1 = to_handle(narrowed(result.hidden, dtype));
    *ret2 = to_handle(narrowed(result.memory, dtype));
    *ret3 = to_handle(empty_contiguous(dtype, one));
  });
}
