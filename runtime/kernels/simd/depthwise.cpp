// Depthwise convolutions of images: rows of results, and all rows of a call.
#include "kernels/simd/depthwise.h"

#include <algorithm>

#include "common/context.h"
#include "common/platform/threads.h"

namespace menagerie::simd {
namespace {

WindowRange reach_down(const RowConvolution& s, int64_t y) {
  const auto& p = s.parameters;
  return {y * p.stride[0] - p.padding[0], p.dilation[0], s.window_height, s.height};
}

void slide(const RowConvolution& s, int64_t y, const WindowRange& down, const ResultRun& run,
           const float* const* rows) {
  const auto& p = s.parameters;
  const WindowRange& across = run.across;
  const int64_t row = s.window_width * s.windows_column;
  const int64_t left = run.first * p.stride[1] - p.padding[1] + across.first * p.dilation[1];
  WindowTile tile;
  tile.input = rows;
  tile.left = left * s.input_column;
  tile.input_step = p.stride[1] * s.input_column;
  tile.input_column = p.dilation[1] * s.input_column;
  tile.weights = s.windows + down.first * row + across.first * s.windows_column;
  tile.weights_row = row;
  tile.weights_column = s.windows_column;
  tile.bias = s.bias;
  tile.output = s.output + y * s.output_row + run.first * s.output_column;
  tile.output_step = s.output_column;
  tile.rows = down.count();
  tile.columns = across.count();
  tile.count = run.count;
  tile.channels = s.channels;
  kernels().slide(tile, s.finish);
}

}  // namespace

WindowRange::WindowRange(int64_t at, int64_t step, int64_t window, int64_t size)
    : first(at >= 0 ? 0 : (-at + step - 1) / step),
      last(std::min(window, size > at ? (size - at + step - 1) / step : 0)) {}

PackedWindows::PackedWindows(const Tensor& weight) {
  values.resize(static_cast<size_t>(weight.elements()));
  float* to = values.data();
  for (int64_t y = 0; y < weight.size[2]; ++y) {
    for (int64_t x = 0; x < weight.size[3]; ++x) {
      const float* from = weight.data<float>() + y * weight.stride[2] + x * weight.stride[3];
      for (int64_t c = 0; c < weight.size[0]; ++c) *to++ = from[c * weight.stride[0]];
    }
  }
}

std::shared_ptr<PackedWindows> packed_windows(const Tensor& weight) {
  Key key("depthwise");
  key.add(weight.raw()).add(weight.sizes()).add(weight.strides());
  return made_once<PackedWindows>(key, weight,
                                  [&] { return std::make_shared<PackedWindows>(weight); });
}

std::vector<ResultRun> result_runs(const ConvolutionParameters& p, int64_t image, int64_t window,
                                   int64_t results) {
  const auto reach = [&](int64_t x) {
    return WindowRange(x * p.stride[1] - p.padding[1], p.dilation[1], window, image);
  };
  std::vector<ResultRun> made;
  for (int64_t x = 0; x < results; ++x) {
    const WindowRange across = reach(x);
    if (made.empty() || made.back().count == kMostWindows || made.back().across != across) {
      made.push_back({x, 0, across});
    }
    ++made.back().count;
  }
  return made;
}

void slide_row(const RowConvolution& s, int64_t y) {
  const auto& p = s.parameters;
  const WindowRange down = reach_down(s, y);
  const float* rows[kMostWindowRows];
  for (int64_t i = 0; i < down.count(); ++i) {
    const int64_t place = y * p.stride[0] - p.padding[0] + (down.first + i) * p.dilation[0];
    rows[i] = s.input + place % s.rows_held * s.input_row;
  }
  for (const ResultRun& run : s.across) slide(s, y, down, run, rows);
}

namespace {

constexpr int64_t kRowsTask = 1 << 18;  // multiplications that are worth another thread

bool has_dense_channels(const Tensor& images) {
  return images.dtype == Dtype::kFloat32 && images.stride[1] == 1;
}

}  // namespace

bool is_depthwise(int64_t channels, const Tensor& weight, const ConvolutionParameters& p,
                  const Tensor& output) {
  return p.spatial == 2 && !p.transposed && p.groups == channels && p.groups > 1 &&
         weight.size[2] <= kMostWindowRows && output.size[1] == p.groups &&
         weight.storage->is_constant() && has_dense_channels(output);
}

bool depthwise(const Tensor& input, const Tensor& weight, const Tensor* bias,
               const ConvolutionParameters& parameters, const kernels::Epilogue& epilogue,
               const Tensor& output) {
  Finish finish;
  if (!has_dense_channels(input) || !is_depthwise(input.size[1], weight, parameters, output) ||
      !finish_of(epilogue, finish) || !is_exponential(finish)) {
    return false;
  }
  note_own_kernel();
  const auto windows = packed_windows(weight);
  const auto across = result_runs(parameters, input.size[3], weight.size[3], output.size[3]);
  const int64_t rows = output.size[0] * output.size[2];
  const int64_t products = output.elements() * weight.size[2] * weight.size[3];
  const int64_t chunk = kRowsTask * rows / products + 1;
  threads::for_each(rows, chunk, [&](int64_t task) {
    const int64_t image = task / output.size[2];
    const RowConvolution row{input.data<float>() + image * input.stride[0],
                             input.size[2],
                             input.stride[2],
                             input.stride[3],
                             input.size[2],
                             windows->values.data(),
                             input.size[1],
                             weight.size[2],
                             weight.size[3],
                             bias == nullptr ? nullptr : bias->data<float>(),
                             output.data<float>() + image * output.stride[0],
                             output.stride[2],
                             output.stride[3],
                             across,
                             input.size[1],
                             parameters,
                             finish};
    slide_row(row, task % output.size[2]);
  });
  return true;
}

}  // namespace menagerie::simd
