// Convolutions as products of rows with packed weights: pixels, and windows of a sequence.
#include <algorithm>

#include "common/context.h"
#include "common/platform/threads.h"
#include "kernels/simd/products.h"
#include "kernels/simd/simd.h"

namespace menagerie::simd {
namespace {

// Rows that are a multiple of this apart share one set of the first-level cache (64 sets of 64
// bytes), which holds fewer lines than a tile has rows.
constexpr int64_t kOneSet = 4096;
constexpr int64_t kBlockRows = 56;         // four tiles, whose results stay in the first two levels
constexpr int64_t kNearWeights = 1 << 18;  // bytes that stay in the second level beside a block
constexpr int64_t kTask = 1 << 19;         // multiplications that are worth another thread

constexpr int64_t kFewProducts = 1 << 16;  // that take less time than a call of the library
constexpr int64_t kLibraryColumns = 16;
constexpr int64_t kDeep = 64;  // sums so long that storing them does not matter

// Operands as matrices.
struct Matrices {
  const float* input;
  const float* bias;
  float* output;
  int64_t input_row, output_row;
  int64_t rows, depth, columns;
};

void multiply_block(const Matrices& m, const Panel& panel, int64_t first, int64_t rows,
                    const Finish& finish) {
  multiply_rows(
      *panel.kernel,
      {m.input + first * m.input_row, m.input_row, panel.weights,
       m.bias == nullptr ? nullptr : m.bias + panel.first,
       m.output + first * m.output_row + panel.first, m.output_row, m.depth, rows, panel.columns},
      finish);
}

// A task is a block of rows by a run of panels. Weights that do not stay in the cache are read once
// for all rows of a task.
void multiply_all(const Matrices& m, std::span<const Panel> panels, const Finish& finish) {
  const int64_t threads = Context::current().threads();
  const bool near = m.depth * m.columns * int64_t{sizeof(float)} <= kNearWeights;
  const int64_t block = near ? kBlockRows : std::max(kBlockRows, m.rows / threads);
  const int64_t blocks = (m.rows + block - 1) / block;
  const auto count = static_cast<int64_t>(panels.size());
  const int64_t runs = std::clamp<int64_t>(threads > 1 ? 2 * threads / blocks : 1, 1, count);
  const int64_t tasks = blocks * runs;
  const int64_t chunk = kTask * tasks / (m.rows * m.depth * m.columns) + 1;
  threads::for_each(tasks, chunk, [&](int64_t task) {
    const int64_t first = task / runs * block, run = task % runs;
    const int64_t rows = std::min(block, m.rows - first);
    for (int64_t p = run * count / runs; p < (run + 1) * count / runs; ++p) {
      multiply_block(m, panels[static_cast<size_t>(p)], first, rows, finish);
    }
  });
}

// Return whether ours were measured to be the faster ones; infra/adr/0019 has the figures.
bool pays(const Matrices& m, const Finish& finish) {
  if (m.rows > 1 && m.input_row * int64_t{sizeof(float)} % kOneSet == 0) return false;
  const int64_t rest = m.columns % kLibraryColumns;
  const bool half_empty = rest > 0 && rest <= kLibraryColumns / 2;  // the library's last vectors
  return is_exponential(finish) || is_faster_gelu(finish) || (half_empty && m.depth >= kDeep) ||
         m.rows * m.depth * m.columns <= kFewProducts;
}

}  // namespace

bool pointwise(const Tensor& input, const Tensor& weight, const Tensor* bias,
               const ConvolutionParameters& parameters, const kernels::Epilogue& epilogue,
               const Tensor& output) {
  Finish finish;
  if (!is_pointwise(weight, parameters) || !finish_of(epilogue, finish)) return false;
  const auto input_row = row_of_pixels(input), output_row = row_of_pixels(output);
  if (!input_row || !output_row) return false;
  const int64_t columns = output.size[1];
  const Matrices matrices{input.data<float>(),  bias == nullptr ? nullptr : bias->data<float>(),
                          output.data<float>(), *input_row,
                          *output_row,          output.elements() / columns,
                          input.size[1],        columns};
  if (!pays(matrices, finish)) return false;
  note_own_kernel();
  const auto weights = packed_panels(weight);
  multiply_all(matrices, weights->panels(), finish);
  return true;
}

namespace {

// Return whether positions lie one after another, each with dense channels.
bool is_dense_along(const Tensor& tensor, int32_t axis) {
  const int64_t channels = tensor.size[1];
  return tensor.dtype == Dtype::kFloat32 && (channels == 1 || tensor.stride[1] == 1) &&
         tensor.stride[axis] == channels;
}

// Return whether the windows move only along the last axis and none reaches past an end: then
// neighbouring positions are one row of numbers.
bool has_whole_windows(const Tensor& input, const Tensor& weight, const ConvolutionParameters& p) {
  bool so = !p.transposed && p.groups == 1 && weight.storage->is_constant();
  for (size_t i = 0; i < p.spatial; ++i) {
    const bool is_last = i + 1 == p.spatial;
    so = so && p.padding[i] == 0 && p.dilation[i] == 1;
    so = so && (is_last ? weight.size[i + 2] > 1 : input.size[i + 2] == 1);
  }
  return so;
}

}  // namespace

bool sequence(const Tensor& input, const Tensor& weight, const Tensor* bias,
              const ConvolutionParameters& p, const kernels::Epilogue& epilogue,
              const Tensor& output) {
  Finish finish;
  const auto last = static_cast<int32_t>(p.spatial + 1);
  if (!has_whole_windows(input, weight, p) || !finish_of(epilogue, finish)) return false;
  if (!is_dense_along(input, last) || !is_dense_along(output, last)) return false;
  if (!takes_many_rows(output.size[last])) return false;
  note_own_kernel();
  const int64_t channels = input.size[1], taps = weight.size[last];
  const auto panels = packed_panels(weight, {weight.size[0], taps, channels, weight.stride[0],
                                             weight.stride[last], weight.stride[1]});
  for (int64_t i = 0; i < input.size[0]; ++i) {
    multiply_all_rows(
        {input.data<float>() + i * input.stride[0], p.stride[p.spatial - 1] * channels,
         bias == nullptr ? nullptr : bias->data<float>(),
         output.data<float>() + i * output.stride[0], output.size[1], output.size[last],
         taps * channels},
        *panels, finish);
  }
  return true;
}

}  // namespace menagerie::simd
