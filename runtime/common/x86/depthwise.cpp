#include "common/x86/depthwise.h"

#include <algorithm>
#include <vector>

#include "common/context.h"
#include "common/kernel_cache.h"
#include "common/platform/parallel.h"
#include "common/x86/kernels.h"

namespace menagerie::x86 {
namespace {

constexpr int64_t kTask = 1 << 18;  // multiplications that are worth another thread

// The windows as [y, x, channels].
struct PackedWindows : Prepared {
  explicit PackedWindows(const Tensor& weight) {
    values.resize(static_cast<size_t>(weight.elements()));
    float* to = values.data();
    for (int64_t y = 0; y < weight.size[2]; ++y) {
      for (int64_t x = 0; x < weight.size[3]; ++x) {
        const float* from = weight.data<float>() + y * weight.stride[2] + x * weight.stride[3];
        for (int64_t c = 0; c < weight.size[0]; ++c) *to++ = from[c * weight.stride[0]];
      }
    }
  }
  size_t bytes() const override { return values.size() * sizeof(float); }

  std::vector<float> values;
};

std::shared_ptr<PackedWindows> packed(const Tensor& weight) {
  Key key("depthwise");
  key.add(weight.raw()).add(weight.sizes()).add(weight.strides());
  return Context::current().kernels().get<PackedWindows>(
      key, [&] { return std::make_shared<PackedWindows>(weight); });
}

// The places of a window along an axis that lie in the image, where it begins at `at`.
struct Reach {
  Reach(int64_t at, int64_t step, int64_t window, int64_t size)
      : first(at >= 0 ? 0 : (-at + step - 1) / step),
        last(std::min(window, size > at ? (size - at + step - 1) / step : 0)) {}
  int64_t count() const { return std::max<int64_t>(last - first, 0); }
  bool operator==(const Reach&) const = default;

  int64_t first, last;
};

struct Problem {
  const Tensor& input;
  const Tensor& weight;
  const float* windows;
  const Tensor* bias;
  const kernels::ConvolutionParameters& parameters;
  const Tensor& output;
  const Finish& finish;

  Reach reach(size_t axis, int64_t place) const {
    const auto& p = parameters;
    return {place * p.stride[axis] - p.padding[axis], p.dilation[axis], weight.size[axis + 2],
            input.size[axis + 2]};
  }
};

const float* place_of(const Tensor& tensor, int64_t image, int64_t y, int64_t x) {
  return tensor.data<float>() + image * tensor.stride[0] + y * tensor.stride[2] +
         x * tensor.stride[3];
}

// Results from `x` on of a row, `count` of them, whose windows reach alike.
void slide(const Problem& p, int64_t image, int64_t y, int64_t x, int64_t count, const Reach& down,
           const Reach& across) {
  const auto& q = p.parameters;
  const int64_t channels = p.input.size[1];
  const int64_t row = p.weight.size[3] * channels;
  const int64_t top = y * q.stride[0] - q.padding[0] + down.first * q.dilation[0];
  const int64_t left = x * q.stride[1] - q.padding[1] + across.first * q.dilation[1];
  WindowTile tile;
  tile.input = place_of(p.input, image, top, left);
  tile.input_step = q.stride[1] * p.input.stride[3];
  tile.input_row = q.dilation[0] * p.input.stride[2];
  tile.input_column = q.dilation[1] * p.input.stride[3];
  tile.weights = p.windows + down.first * row + across.first * channels;
  tile.weights_row = row;
  tile.weights_column = channels;
  tile.bias = p.bias == nullptr ? nullptr : p.bias->data<float>();
  tile.output = const_cast<float*>(place_of(p.output, image, y, x));
  tile.output_step = p.output.stride[3];
  tile.rows = down.count();
  tile.columns = across.count();
  tile.count = count;
  tile.channels = channels;
  kernels().slide(tile, p.finish);
}

void slide_row(const Problem& p, int64_t image, int64_t y) {
  const Reach down = p.reach(0, y);
  const int64_t width = p.output.size[3];
  for (int64_t x = 0; x < width;) {
    const Reach across = p.reach(1, x);
    int64_t end = x + 1;
    while (end < width && end - x < kMostWindows && p.reach(1, end) == across) ++end;
    slide(p, image, y, x, end - x, down, across);
    x = end;
  }
}

bool has_dense_channels(const Tensor& images) {
  return images.dtype == Dtype::kFloat32 && images.stride[1] == 1;
}

bool is_depthwise(const Tensor& input, const Tensor& weight,
                  const kernels::ConvolutionParameters& p, const Tensor& output) {
  return p.spatial == 2 && !p.transposed && p.groups == input.size[1] && p.groups > 1 &&
         output.size[1] == p.groups && weight.storage->is_constant() && has_dense_channels(input) &&
         has_dense_channels(output);
}

}  // namespace

bool depthwise(const Tensor& input, const Tensor& weight, const Tensor* bias,
               const kernels::ConvolutionParameters& parameters, const kernels::Epilogue& epilogue,
               const Tensor& output) {
  Finish finish;
  if (!is_depthwise(input, weight, parameters, output) || !finish_of(epilogue, finish) ||
      !is_exponential(finish)) {
    return false;
  }
  note_own_kernel();
  const auto windows = packed(weight);
  const Problem problem{input, weight, windows->values.data(), bias, parameters, output, finish};
  const int64_t rows = output.size[0] * output.size[2];
  const int64_t products = output.elements() * weight.size[2] * weight.size[3];
  const int64_t chunk = kTask * rows / products + 1;
  threads::share_out(static_cast<size_t>(rows), static_cast<size_t>(chunk), [&](auto& left) {
    for (size_t next = 0, end = 0; left.take(next, end);) {
      for (; next < end; ++next) {
        const auto row = static_cast<int64_t>(next);
        slide_row(problem, row / output.size[2], row % output.size[2]);
      }
    }
  });
  return true;
}

}  // namespace menagerie::x86
