// Convolution as a product of windows and weights: a window is gathered while it is packed, so that
// no matrix of all windows is ever made.
#include <algorithm>

#include "common/context.h"
#include "common/error.h"
#include "common/portable_kernels/product.h"
#include "common/portable_kernels/window.h"

namespace menagerie::portable {
namespace {

using kernels::ConvolutionParameters;

// One group's channels as the left operand: rows are outputs, columns taps times channels.
struct Gather {
  const float* input;  // the group's first channel
  int64_t channels, channel_stride;
  const Window* window;
  Rows rows;

  // The rows [first, first + count) of one panel, of kTileRows at most.
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

// One group's weights [taps * in, out].
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
  if (epilogue.other != nullptr) finish.other = place_of(*epilogue.other);
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
