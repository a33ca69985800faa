// Convolution as a product of windows and weights: a window is gathered while it is packed, so that
// a matrix of all windows is never made.
#include <algorithm>
#include <array>
#include <cstdint>
#include <vector>

#include "common/context.h"
#include "common/error.h"
#include "common/platform/threads.h"
#include "kernels/portable/product.h"

namespace menagerie::portable {
namespace {

inline constexpr size_t kSpatial = kMaxSpatial;
using Spatial = std::array<int64_t, kSpatial>;

// A tensor [batch, channels, ...] or weight [out, in, ...].
struct Image {
  const float* data;
  std::array<int64_t, 2> size{}, stride{};
  Spatial extent{1, 1, 1}, step{};

  explicit Image(const Tensor& tensor);
};

// The elements that a convolution reads for each output and tap; a tap is one window element.
class Window {
 public:
  Window(const Image& input, const Spatial& output, const Image& weight,
         const ConvolutionParameters& parameters);

  int64_t taps() const { return window_[0] * window_[1] * window_[2]; }
  // Return the input's offset for a tap of the output at `index` ([batch, ...]), without the
  // channel; -1 where the window leaves the input.
  int64_t input_offset(const std::array<int64_t, ResultRows::kAxes>& index, int64_t tap) const;
  // Return the offset of a tap in a weight.
  int64_t weight_offset(int64_t tap) const;

 private:
  Spatial split(int64_t tap) const;

  Spatial window_;
  Spatial weight_step_;
  int64_t batch_stride_;
  std::array<std::vector<int64_t>, kSpatial> offsets_;  // [output, tap] of each axis
};

constexpr int64_t kOutside = -1;

// Return the input's position for an output's and a tap's along one axis.
int64_t position(int64_t output, int64_t tap, int64_t inputs, size_t axis,
                 const ConvolutionParameters& p) {
  int64_t at = 0;
  if (p.transposed) {  // output = input * stride - padding + tap * dilation, solved for the input
    const int64_t scaled = output + p.padding[axis] - tap * p.dilation[axis];
    if (scaled < 0 || scaled % p.stride[axis] != 0) return kOutside;
    at = scaled / p.stride[axis];
  } else {
    at = output * p.stride[axis] - p.padding[axis] + tap * p.dilation[axis];
  }
  return at >= 0 && at < inputs ? at : kOutside;
}

Image::Image(const Tensor& tensor)
    : data(tensor.data<float>()),
      size{tensor.size[0], tensor.size[1]},
      stride{tensor.stride[0], tensor.stride[1]} {
  for (int32_t axis = 2; axis < tensor.dimensions; ++axis) {
    extent[axis - 2] = tensor.size[axis];
    step[axis - 2] = tensor.stride[axis];
  }
}

Window::Window(const Image& input, const Spatial& output, const Image& weight,
               const ConvolutionParameters& parameters)
    : window_(weight.extent), weight_step_(weight.step), batch_stride_(input.stride[0]) {
  for (size_t axis = 0; axis < kSpatial; ++axis) {
    for (int64_t out = 0; out < output[axis]; ++out) {
      for (int64_t tap = 0; tap < window_[axis]; ++tap) {
        const int64_t at = position(out, tap, input.extent[axis], axis, parameters);
        offsets_[axis].push_back(at == kOutside ? kOutside : at * input.step[axis]);
      }
    }
  }
}

Spatial Window::split(int64_t tap) const {
  return {tap / window_[2] / window_[1], tap / window_[2] % window_[1], tap % window_[2]};
}

int64_t Window::input_offset(const std::array<int64_t, ResultRows::kAxes>& index,
                             int64_t tap) const {
  const Spatial taps = split(tap);
  int64_t offset = index[0] * batch_stride_;
  for (size_t axis = 0; axis < kSpatial; ++axis) {
    const int64_t along = offsets_[axis][index[axis + 1] * window_[axis] + taps[axis]];
    if (along == kOutside) return kOutside;
    offset += along;
  }
  return offset;
}

int64_t Window::weight_offset(int64_t tap) const {
  const Spatial taps = split(tap);
  return taps[0] * weight_step_[0] + taps[1] * weight_step_[1] + taps[2] * weight_step_[2];
}

// Return the rows of an output [batch, channels, ...]: one for each batch and position.
ResultRows rows_of(const Tensor& output) {
  ResultRows rows;
  rows.size[0] = output.size[0];
  rows.stride[0] = output.stride[0];
  for (int32_t axis = 2; axis < output.dimensions; ++axis) {
    rows.size[axis - 1] = output.size[axis];
    rows.stride[axis - 1] = output.stride[axis];
  }
  return rows;
}

// Return whether every channel is convolved alone, and not transposed.
bool is_depthwise(const Image& input, const Image& weight,
                  const ConvolutionParameters& parameters) {
  return !parameters.transposed && parameters.groups == input.size[1] &&
         weight.size[0] == input.size[1] && weight.size[1] == 1;
}

// The weights [tap, channel].
struct TapWeights : Prepared {
  TapWeights(const Image& weight, const Window& window) {
    const int64_t taps = window.taps();
    for (int64_t tap = 0; tap < taps; ++tap) {
      const float* from = weight.data + window.weight_offset(tap);
      for (int64_t c = 0; c < weight.size[0]; ++c) values.push_back(from[c * weight.stride[0]]);
    }
  }
  size_t bytes() const override { return values.size() * sizeof(float); }

  std::vector<float> values;
};

std::shared_ptr<TapWeights> weights_of(const Tensor& weight, const Window& window) {
  const auto make = [&] { return std::make_shared<TapWeights>(Image(weight), window); };
  if (!weight.storage->is_constant()) return make();
  Key key("depthwise weights");
  key.add(static_cast<const void*>(weight.raw())).add(weight.sizes()).add(weight.strides());
  return Context::current().kernels().get<TapWeights>(key, make);
}

void add_tap(float* sums, const float* weights, const float* from, int64_t stride, int64_t count) {
  if (stride == 1) {
    for (int64_t c = 0; c < count; ++c) sums[c] += weights[c] * from[c];
  } else {
    for (int64_t c = 0; c < count; ++c) sums[c] += weights[c] * from[c * stride];
  }
}

// Compute finish(input * weight) for a depthwise convolution: it is too thin for tiles, so the
// channels are the innermost loop.
void depthwise(const Image& input, const Tensor& weight, const Window& window,
               const Finish& finish) {
  const std::shared_ptr<TapWeights> weights = weights_of(weight, window);
  const int64_t channels = input.size[1];
  const int64_t taps = window.taps();
  const auto rows = static_cast<size_t>(finish.result.rows.count());
  threads::share_out(rows, 64, [&](threads::Tasks& left) {
    std::vector<float> sums(channels);
    for (size_t first = 0, last = 0; left.take(first, last);) {
      for (auto row = static_cast<int64_t>(first); row < static_cast<int64_t>(last); ++row) {
        std::fill(sums.begin(), sums.end(), 0.0F);
        const auto index = finish.result.rows.index(row);
        for (int64_t tap = 0; tap < taps; ++tap) {
          const int64_t offset = window.input_offset(index, tap);
          if (offset < 0) continue;
          add_tap(sums.data(), &weights->values[tap * channels], input.data + offset,
                  input.stride[1], channels);
        }
        finish.store(row, 0, channels, sums.data());
      }
    }
  });
}

// One group's channels as the left operand: rows are outputs, columns taps times channels.
struct Gather {
  const float* input;  // the group's first channel
  int64_t channels, channel_stride;
  const Window* window;
  ResultRows rows;

  // Pack the rows [first, first + count) of one panel, at most kTileRows of them.
  void pack_panel(int64_t first, int64_t count, int64_t from, int64_t depth, float* to) const {
    if (count < kTileRows) std::fill(to, to + depth * kTileRows, 0.0F);
    for (int64_t i = 0; i < count; ++i) {
      const auto index = rows.index(first + i);
      for (int64_t k = 0; k < depth;) {
        const int64_t tap = (from + k) / channels;
        const int64_t channel = (from + k) % channels;
        const int64_t here = std::min(channels - channel, depth - k);
        const int64_t offset = window->input_offset(index, tap);
        float* target = to + k * kTileRows + i;
        if (offset < 0) {
          for (int64_t c = 0; c < here; ++c) target[c * kTileRows] = 0;
        } else {
          const float* source = input + offset + channel * channel_stride;
          for (int64_t c = 0; c < here; ++c) target[c * kTileRows] = source[c * channel_stride];
        }
        k += here;
      }
    }
  }
};

PackLeft packing_of(const Gather& gather) {
  return [gather](int64_t first, int64_t rows, int64_t from, int64_t depth, float* to) {
    for (int64_t begin = 0; begin < rows; begin += kTileRows, to += depth * kTileRows) {
      gather.pack_panel(first + begin, std::min(kTileRows, rows - begin), from, depth, to);
    }
  };
}

// Return one group's weights [taps * in, out].
std::shared_ptr<const RightPanels> weights_of(const Tensor& weight, const Window& window,
                                              const ConvolutionParameters& p, int64_t group) {
  // Transposed weights are [in, out / groups, ...], the others [out, in / groups, ...].
  const int64_t in = p.transposed ? weight.size[0] / p.groups : weight.size[1];
  const int64_t out = p.transposed ? weight.size[1] : weight.size[0] / p.groups;
  const int64_t in_stride = weight.stride[p.transposed ? 0 : 1];
  const int64_t out_stride = weight.stride[p.transposed ? 1 : 0];
  const float* first = weight.data<float>() + group * (p.transposed ? in : out) * weight.stride[0];
  const auto make = [&] {
    std::vector<float> dense;
    dense.reserve(static_cast<size_t>(window.taps() * in * out));
    for (int64_t tap = 0; tap < window.taps(); ++tap) {
      const float* from = first + window.weight_offset(tap);
      for (int64_t i = 0; i < in; ++i) {
        for (int64_t o = 0; o < out; ++o) dense.push_back(from[i * in_stride + o * out_stride]);
      }
    }
    return std::make_shared<RightPanels>(dense.data(), window.taps() * in, out, out, 1);
  };
  if (!weight.storage->is_constant()) return make();
  Key key("convolution weights");
  key.add(static_cast<const void*>(first)).add(weight.sizes()).add(weight.strides());
  key.add(p.groups).add(int64_t{p.transposed});
  return Context::current().kernels().get<RightPanels>(key, make);
}

Place place_of(const Tensor& tensor) {
  return {tensor.data<float>(), rows_of(tensor), tensor.stride[1]};
}

}  // namespace
}  // namespace menagerie::portable

namespace menagerie::kernels {

using namespace menagerie::portable;

void convolution(const Tensor& input, const Tensor& weight, const Tensor* bias,
                 const ConvolutionParameters& p, const Epilogue& epilogue, const Tensor& output) {
  for (const Tensor* tensor : {&input, &weight, &output}) require_floats(*tensor);
  Finish finish{.result = place_of(output), .bias = floats_of(bias), .epilogue = epilogue};
  const Image source(input);
  const Window window(source, Image(output).extent, Image(weight), p);
  if (is_depthwise(source, Image(weight), p)) return depthwise(source, weight, window, finish);

  const int64_t in = input.size[1] / p.groups;
  const int64_t out = output.size[1] / p.groups;
  std::vector<BlockedProduct> groups;
  for (int64_t group = 0; group < p.groups; ++group) {
    const Gather gather{source.data + group * in * source.stride[1], in, source.stride[1], &window,
                        finish.result.rows};
    groups.push_back({finish.result.rows.count(), packing_of(gather),
                      weights_of(weight, window, p, group), finish.of_columns(group * out, out)});
  }
  run(groups);
}

void rounded_convolution(const Tensor& input, const Tensor& weight, const IntegerWeight& integers,
                         const Tensor* bias, const ConvolutionParameters& parameters,
                         const Epilogue& epilogue, const Tensor& output) {
  convolution(rounded_and_back(input, integers.operand), weight, bias, parameters, epilogue,
              output);
}

bool expanded_depthwise(const Expanded&, const Tensor&) { return false; }

}  // namespace menagerie::kernels
