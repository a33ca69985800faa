// The convolution shim: checking operands and telling how each lies in memory; the device computes.
// The result is always contiguous, as Inductor without layout optimisation counts on it.
#include <algorithm>
#include <array>
#include <string_view>

#include "common/copy.h"
#include "common/shim_support.h"
#include "metal/copy.h"
#include "metal/state.h"

using namespace menagerie;
using namespace menagerie::metal;

namespace {

using Numbers = std::span<const int64_t>;
using Pair = std::array<int64_t, 2>;

// What the call says beside its operands, for the two axes of an image.
struct Window {
  Pair stride{1, 1}, padding{0, 0}, dilation{1, 1}, output_padding{0, 0};
  bool transposed = false;
  int64_t groups = 1;
};

// One number for all axes, or one for each; an image of one axis has a height of one.
Pair spread(Numbers given, int32_t spatial, int64_t missing, int64_t least, std::string_view name) {
  require(given.size() == 1 || given.size() == static_cast<size_t>(spatial), name, " has ",
          given.size(), " numbers for ", spatial, " axes");
  for (const int64_t number : given) {
    require(number >= least, name, " ", number, " is less than ", least);
  }
  return {spatial == 1 ? missing : given.front(), given.back()};
}

// [N, C, W] as [N, C, 1, W].
Tensor as_image(const Tensor& tensor) {
  if (tensor.dimensions == 4) return tensor;
  Tensor image = tensor;
  image.dimensions = 4;
  image.size = {tensor.size[0], tensor.size[1], 1, tensor.size[2]};
  image.stride = {tensor.stride[0], tensor.stride[1], 0, tensor.stride[2]};
  return image;
}

void check_operands(const Tensor& input, const Tensor& weight, const Tensor* bias, bool transposed,
                    int64_t groups) {
  require(input.dimensions == 3 || input.dimensions == 4,
          "the device convolves along one or two axes, not ", input);
  require(groups >= 1, "groups must be at least 1, not ", groups);
  const int64_t in = transposed ? weight.size[0] : weight.size[1] * groups;
  const int64_t out = transposed ? weight.size[1] * groups : weight.size[0];
  require(weight.dimensions == input.dimensions && input.size[1] == in && in % groups == 0 &&
              out % groups == 0,
          "input ", input, " and weight ", weight, " do not fit with ", groups, " groups");
  require(input.dtype == weight.dtype && (bias == nullptr || bias->dtype == input.dtype), "input ",
          input, " and weight ", weight, " differ in dtype");
  require(is_floating(input.dtype) && input.dtype != Dtype::kFloat64,
          "the device convolves float32, float16 and bfloat16, not ", input);
  require(bias == nullptr || (bias->dimensions == 1 && bias->size[0] == out), "the bias must have ",
          out, " elements");
}

int64_t output_size(const Window& window, size_t axis, int64_t input, int64_t taps) {
  const int64_t reach = window.dilation[axis] * (taps - 1);
  if (window.transposed) {
    return (input - 1) * window.stride[axis] - 2 * window.padding[axis] + reach +
           window.output_padding[axis] + 1;
  }
  const int64_t room = input + 2 * window.padding[axis] - reach - 1;
  return room < 0 ? -1 : room / window.stride[axis] + 1;
}

Tensor empty_output(const Tensor& input, const Tensor& weight, const Window& window) {
  const int64_t channels = window.transposed ? weight.size[1] * window.groups : weight.size[0];
  std::array<int64_t, 4> sizes{input.size[0], channels, 0, 0};
  for (size_t axis = 0; axis < 2; ++axis) {
    sizes[axis + 2] = output_size(window, axis, input.size[axis + 2], weight.size[axis + 2]);
    require(sizes[axis + 2] >= 0, "the window of weight ", weight, " is larger than input ", input);
  }
  return metal::empty_contiguous(input.dtype, sizes);
}

struct Image {
  Tensor tensor;
  ImageLayout layout;
};

Image image_of(const Tensor& tensor) {
  const Extents last = channels_last_strides(tensor.sizes());
  const bool plain = tensor.is_contiguous();
  if (!plain && has_strides(tensor, {last.data(), 4})) return {tensor, ImageLayout::kNhwc};
  return {plain ? tensor : dense(tensor), ImageLayout::kNchw};
}

// Every element of the output becomes its channel's bias, or nought.
void fill_with_bias(const Tensor& output, const Tensor* bias) {
  if (bias == nullptr) return backend::fill_zero(output);
  Tensor wide = *bias;
  wide.dimensions = 3;
  wide.size = {bias->size[0], 1, 1};
  wide.stride = {bias->stride[0], 0, 0};
  metal::copy(broadcast(wide, output.sizes()), output);
}

void encode(const Tensor& input, const Tensor& weight, const Tensor* bias, const Window& window,
            const Tensor& output) {
  const Image image = image_of(input);
  const Tensor taps = dense(weight);
  const Tensor offsets = bias == nullptr ? Tensor() : dense(*bias);
  const ConvolutionDescriptor descriptor{.dtype = input.dtype,
                                         .input_layout = image.layout,
                                         .output_layout = ImageLayout::kNchw,
                                         .batch = input.size[0],
                                         .in_channels = input.size[1],
                                         .in_height = input.size[2],
                                         .in_width = input.size[3],
                                         .out_channels = output.size[1],
                                         .out_height = output.size[2],
                                         .out_width = output.size[3],
                                         .kernel_height = weight.size[2],
                                         .kernel_width = weight.size[3],
                                         .stride = window.stride,
                                         .padding = window.padding,
                                         .dilation = window.dilation,
                                         .output_padding = window.output_padding,
                                         .transposed = window.transposed,
                                         .groups = window.groups,
                                         .has_bias = bias != nullptr};
  const Region none;
  State::current().stream().convolution(
      descriptor, {region_of(image.tensor), region_of(taps),
                   bias == nullptr ? none : region_of(offsets), region_of(output)});
}

// Output padding beyond the padding reaches past every window: those rows are bias alone, which
// kernel libraries do not know.
void encode_reached(const Tensor& input, const Tensor& weight, const Tensor* bias,
                    const Window& window, const Tensor& output) {
  fill_with_bias(output, bias);
  Window inner = window;
  Tensor reached = output;
  for (size_t axis = 0; axis < 2; ++axis) {
    inner.output_padding[axis] = std::min(window.output_padding[axis], window.padding[axis]);
    reached.size[axis + 2] -= window.output_padding[axis] - inner.output_padding[axis];
    if (reached.size[axis + 2] <= 0) return;
  }
  const Tensor result = metal::empty_contiguous(output.dtype, reached.sizes());
  encode(input, weight, bias, inner, result);
  metal::copy(result, reached);
}

Tensor convolution(const Tensor& input, const Tensor& weight, const Tensor* bias,
                   const Window& window) {
  const Tensor output = empty_output(input, weight, window);
  if (output.empty()) return output;
  const bool reaches_past = window.transposed && (window.output_padding[0] >= window.stride[0] ||
                                                  window.output_padding[1] >= window.stride[1]);
  if (input.empty() || weight.empty()) {
    fill_with_bias(output, bias);
  } else if (reaches_past) {
    encode_reached(input, weight, bias, window, output);
  } else {
    encode(input, weight, bias, window, output);
  }
  return output;
}

}  // namespace

AOTITorchError aoti_torch_mps_convolution(
    AtenTensorHandle input, AtenTensorHandle weight, AtenTensorHandle* bias, const int64_t* stride,
    int64_t stride_len_, const int64_t* padding, int64_t padding_len_, const int64_t* dilation,
    int64_t dilation_len_, int32_t transposed, const int64_t* output_padding,
    int64_t output_padding_len_, int64_t groups, AtenTensorHandle* ret0) {
  return kernel(__func__, [&] {
    const Tensor& x = operand(input);
    const Tensor& w = operand(weight);
    const Tensor* b = optional_operand(bias);
    check_operands(x, w, b, transposed != 0, groups);
    const int32_t spatial = x.dimensions - 2;
    const Window window{
        spread(numbers(stride, stride_len_), spatial, 1, 1, "stride"),
        spread(numbers(padding, padding_len_), spatial, 0, 0, "padding"),
        spread(numbers(dilation, dilation_len_), spatial, 1, 1, "dilation"),
        spread(numbers(output_padding, output_padding_len_), spatial, 0, 0, "output padding"),
        transposed != 0,
        groups};
    Tensor output = convolution(as_image(x), as_image(w), b, window);
    if (spatial == 1) {
      output.dimensions = 3;
      output.size = {output.size[0], output.size[1], output.size[3]};
      output.stride = {output.stride[0], output.stride[1], output.stride[3]};
    }
    *ret0 = to_handle(std::move(output));
  });
}
