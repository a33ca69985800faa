#include <algorithm>

#include "common/copy.h"
#include "kernels/onednn/kernel.h"
#include "kernels/onednn/onednn.h"

namespace menagerie::onednn {
namespace {

using kernels::Epilogue;

struct Geometry {
  Dims stride, dilation, padding_low, padding_high;
};

Geometry geometry(const ConvolutionParameters& parameters) {
  Geometry g;
  for (size_t i = 0; i < parameters.spatial; ++i) {
    g.stride.push_back(parameters.stride[i]);
    g.dilation.push_back(parameters.dilation[i] - 1);  // oneDNN counts the gaps
    g.padding_low.push_back(parameters.padding[i]);
    g.padding_high.push_back(parameters.padding[i] - parameters.output_padding[i]);
  }
  return g;
}

// The weight as oneDNN expects it: output channels first, groups as an axis of their own.
struct WeightView {
  Dims sizes;
  Dims strides;
};

WeightView weight_view(const Tensor& weight, const ConvolutionParameters& parameters) {
  const int64_t groups = parameters.groups;
  int64_t out = weight.size[0];
  int64_t in = weight.size[1];
  int64_t out_stride = weight.stride[0];
  int64_t in_stride = weight.stride[1];
  int64_t group_stride = out_stride * (out / groups);
  out /= groups;
  if (parameters.transposed) {
    // [C, O/groups, ...]: the groups divide the input channels, which lie first.
    std::swap(out, in);
    std::swap(out_stride, in_stride);
  }
  WeightView view;
  if (groups > 1) {
    view.sizes.push_back(groups);
    view.strides.push_back(group_stride);
  }
  view.sizes.insert(view.sizes.end(), {out, in});
  view.strides.insert(view.strides.end(), {out_stride, in_stride});
  for (int32_t axis = 2; axis < weight.dimensions; ++axis) {
    view.sizes.push_back(weight.size[axis]);
    view.strides.push_back(weight.stride[axis]);
  }
  return view;
}

Desc channels_last(const Tensor& tensor) {
  const Extents strides = channels_last_strides(tensor.sizes());
  return strided(tensor.dtype, tensor.sizes(), {strides.data(), tensor.sizes().size()});
}

struct Call {
  const Tensor& input;
  const Tensor& weight;
  const Tensor* bias;
  const ConvolutionParameters& parameters;
  const Epilogue& epilogue;
  const Tensor& output;
  // Where input and weight are integers: each output channel's scale, and the input's rounding.
  const float* scales = nullptr;
  const Rounding* rounding = nullptr;
};

// Descriptors of a convolution's operands; the layout of some may be left to oneDNN.
struct Layouts {
  Desc source, weights, bias, target;
};

template <class Operator>
ChosenPrimitive choose_of(const Call& call, dnnl::algorithm algorithm, const Layouts& layouts,
                          const dnnl::primitive_attr& operations) {
  const Geometry g = geometry(call.parameters);
  const typename Operator::primitive_desc descriptor(
      engine(), dnnl::prop_kind::forward_inference, algorithm, layouts.source, layouts.weights,
      layouts.bias, layouts.target, g.stride, g.dilation, g.padding_low, g.padding_high,
      operations);
  return choose<Operator>(descriptor);
}

ChosenPrimitive choose_among(const Call& call, const Layouts& layouts,
                             const dnnl::primitive_attr& operations) {
  return call.parameters.transposed
             ? choose_of<dnnl::deconvolution_forward>(call, dnnl::algorithm::deconvolution_direct,
                                                      layouts, operations)
             : choose_of<dnnl::convolution_forward>(call, dnnl::algorithm::convolution_direct,
                                                    layouts, operations);
}

ChosenPrimitive choose_layouts(const Call& call, const WeightView& weight) {
  Layouts layouts{channels_last(call.input), any_layout(call.weight.dtype, weight.sizes),
                  call.bias == nullptr ? Desc() : strided(*call.bias), channels_last(call.output)};
  dnnl::primitive_attr operations = attributes({.epilogue = call.epilogue});
  if (call.scales != nullptr) {
    operations.set_scales_mask(DNNL_ARG_WEIGHTS, 1);  // one for each output channel
    operations.set_scales_mask(DNNL_ARG_SRC, 0);
    operations.set_zero_points_mask(DNNL_ARG_SRC, 0);
  }
  const ChosenPrimitive direct = choose_among(call, layouts, operations);
  if (!direct.reference || call.scales != nullptr) return direct;
  // No fast kernel takes channels-last here: let oneDNN choose, and reorder.
  layouts.source = any_layout(call.input.dtype, call.input.sizes());
  layouts.target = any_layout(call.output.dtype, call.output.sizes());
  const ChosenPrimitive blocked = choose_among(call, layouts, operations);
  return blocked.reference ? direct : blocked;
}

std::shared_ptr<Kernel> make(const Call& call) {
  const WeightView view = weight_view(call.weight, call.parameters);
  const ChosenPrimitive chosen = choose_layouts(call, view);
  auto kernel = std::make_shared<Kernel>(chosen);
  const Desc weight = strided(call.weight.dtype, view.sizes, view.strides);
  kernel->add(DNNL_ARG_SRC, strided(call.input), chosen.source);
  kernel->add(DNNL_ARG_DST, strided(call.output), chosen.target, Kernel::Role::kWritten);
  if (call.weight.storage->is_constant()) {
    kernel->add_constant(DNNL_ARG_WEIGHTS, call.weight, weight, chosen.weights);
  } else {
    kernel->add(DNNL_ARG_WEIGHTS, weight, chosen.weights);
  }
  if (call.bias != nullptr) kernel->add(DNNL_ARG_BIAS, strided(*call.bias), chosen.bias);
  if (call.scales != nullptr) {
    const Desc one({1}, dnnl::memory::data_type::f32, Dims{1});
    const Desc whole({1}, dnnl::memory::data_type::s32, Dims{1});
    const Desc each({call.weight.size[0]}, dnnl::memory::data_type::f32, Dims{1});
    kernel->add_fixed(DNNL_ARG_ATTR_SCALES | DNNL_ARG_WEIGHTS, each, call.scales);
    kernel->add(DNNL_ARG_ATTR_SCALES | DNNL_ARG_SRC, one, one);
    kernel->add(DNNL_ARG_ATTR_ZERO_POINTS | DNNL_ARG_SRC, whole, whole);
  }
  return kernel;
}

Key key_of(const Call& call) {
  Key key("convolution");
  const ConvolutionParameters& p = call.parameters;
  key.add(int64_t{Context::current().threads()}).add(p.stride).add(p.padding).add(p.dilation);
  key.add(p.output_padding).add(int64_t{p.transposed}).add(p.groups);
  for (const Tensor* tensor : {&call.input, &call.weight, &call.output}) add_to_key(key, *tensor);
  key.add(call.weight.storage->is_constant() ? call.weight.raw() : nullptr);
  key.add(call.scales).add(int64_t{call.bias != nullptr});
  add_to_key(key, call.epilogue);
  return key;
}

// Return the tensor with an axis of one element before the last: oneDNN is best with images.
Tensor as_image(const Tensor& tensor) {
  Tensor image = tensor;
  image.dimensions = 4;
  image.size[3] = tensor.size[2];
  image.stride[3] = tensor.stride[2];
  image.size[2] = 1;
  image.stride[2] = tensor.stride[2] * tensor.size[2];
  return image;
}

ConvolutionParameters as_image(const ConvolutionParameters& line) {
  ConvolutionParameters image = line;
  image.spatial = 2;
  image.stride = {1, line.stride[0], 1};
  image.padding = {0, line.padding[0], 0};
  image.dilation = {1, line.dilation[0], 1};
  image.output_padding = {0, line.output_padding[0], 0};
  return image;
}

std::shared_ptr<Kernel> kernel_of(const Call& call) {
  return Context::current().kernels().get<Kernel>(key_of(call), [&] { return make(call); });
}

void run_once(const Call& call) {
  const auto kernel = kernel_of(call);
  std::vector<void*> addresses{call.input.raw(), call.output.raw()};
  if (!call.weight.storage->is_constant()) addresses.push_back(call.weight.raw());
  if (call.bias != nullptr) addresses.push_back(call.bias->raw());
  Rounding rounding;
  if (call.scales != nullptr) {
    rounding = *call.rounding;
    addresses.insert(addresses.end(), {&rounding.scale, &rounding.zero});
  }
  kernel->run(addresses);
}

void run(const Call& call) {
  const auto once = [&](const Epilogue& epilogue) {
    run_once({call.input, call.weight, call.bias, call.parameters, epilogue, call.output,
              call.scales, call.rounding});
  };
  const bool is_sigmoid = call.epilogue.activation == kernels::Activation::kSigmoid;
  if (is_sigmoid && kernel_of(call)->loses_nan_in_sigmoid()) {
    once({});
    return activate(call.epilogue, call.output);
  }
  finish(call.epilogue, call.output, /*may_repeat=*/true, once);
}

// Return image `number` of a batch.
Tensor image_of(const Tensor& batch, int64_t number) {
  Tensor image = batch;
  image.offset_bytes += number * batch.stride[0] * element_size(batch.dtype);
  image.size[0] = 1;
  return image;
}

// Return the same values, channels-last and dense.
Tensor as_channels_last(const Tensor& input) {
  const Extents strides = channels_last_strides(input.sizes());
  const std::span<const int64_t> wanted(strides.data(), input.sizes().size());
  bool is_so = true;
  for (size_t axis = 0; axis < wanted.size(); ++axis) {
    is_so = is_so && (input.size[axis] == 1 || input.stride[axis] == wanted[axis]);
  }
  if (is_so) return input;
  const Tensor made = empty_strided(input.dtype, input.sizes(), wanted);
  const Desc from = strided(input), to = strided(made);
  Reorder::between(from, to)->run({from, engine(), input.raw()}, {to, engine(), made.raw()});
  return made;
}

// Run a convolution of integers, one image after another since each has its own scale; return false
// if oneDNN has no kernel for it.
bool run_rounded(const Call& call, const IntegerWeight& integers) {
  const Tensor input = as_channels_last(call.input);
  const Extents strides = channels_last_strides(input.sizes());
  const Tensor rounded =
      empty_strided(Dtype::kUInt8, input.sizes(), {strides.data(), input.sizes().size()});
  const int64_t images = input.size[0];
  const std::vector<Rounding> how =
      round_slices(input.data<float>(), images, input.elements() / images, integers.operand,
                   rounded.data<uint8_t>());
  for (int64_t i = 0; i < images; ++i) {
    const Tensor output = image_of(call.output, i);
    const Tensor image = image_of(rounded, i);
    const Call one{image,         integers.values, call.bias,       call.parameters,
                   call.epilogue, output,          integers.scales, &how[static_cast<size_t>(i)]};
    if (i == 0 && kernel_of(one)->is_reference()) return false;
    run(one);
  }
  return true;
}

// A call whose tensors oneDNN takes: none has axes that overlap, and lines are images.
class Operands {
 public:
  Operands(const Tensor& input, const Tensor& weight, const Tensor* bias,
           const ConvolutionParameters& parameters, const Epilogue& epilogue, const Tensor& output)
      : is_line_(parameters.spatial == 1),
        input_(taken(input)),
        weight_(taken(weight)),
        output_(is_line_ ? as_image(output) : output),
        bias_(bias),
        parameters_(is_line_ ? as_image(parameters) : parameters),
        epilogue_(epilogue) {}
  Operands(const Operands&) = delete;

  Call call() const { return {input_, weight_, bias_, parameters_, epilogue_, output_}; }
  Tensor taken(const Tensor& tensor) const {
    const Tensor apart = lies_apart(tensor) ? tensor : contiguous(tensor);
    return is_line_ ? as_image(apart) : apart;
  }

 private:
  bool is_line_;
  Tensor input_, weight_, output_;
  const Tensor* bias_;
  ConvolutionParameters parameters_;
  const Epilogue& epilogue_;
};

}  // namespace

void convolution(const Tensor& input, const Tensor& weight, const Tensor* bias,
                 const ConvolutionParameters& parameters, const Epilogue& epilogue,
                 const Tensor& output) {
  const Operands operands(input, weight, bias, parameters, epilogue, output);
  run(operands.call());
}

bool rounded_convolution(const Tensor& input, const Tensor& weight, const IntegerWeight& integers,
                         const Tensor* bias, const ConvolutionParameters& parameters,
                         const Epilogue& epilogue, const Tensor& output) {
  const Operands operands(input, weight, bias, parameters, epilogue, output);
  return run_rounded(operands.call(), {operands.taken(integers.values), integers.scales,
                                       integers.sums, integers.operand});
}

}  // namespace menagerie::onednn
