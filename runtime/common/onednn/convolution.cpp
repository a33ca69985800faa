// Convolution by oneDNN. Activations are computed channels-last, which its direct kernels take at
// full speed; weights go to the layout it likes best, once for a constant.
#include <algorithm>

#include "common/copy.h"
#include "common/kernels.h"
#include "common/onednn/kernel.h"

namespace menagerie::onednn {
namespace {

using kernels::ConvolutionParameters;
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

// The weight as oneDNN wants to see it: output channels first, groups as an axis of their own.
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
};

// Whether the other operand is the result itself: then the sum goes in place.
bool in_place(const Call& call) {
  return call.epilogue.binary == kernels::Binary::kAdd && call.epilogue.other == &call.output;
}

bool has_other(const Call& call) {
  return call.epilogue.binary != kernels::Binary::kNone && !in_place(call);
}

// Descriptors of a convolution's operands; the layout of some may be left to oneDNN.
struct Layouts {
  Desc source, weights, bias, target;
};

template <class Operator>
Chosen choose_of(const Call& call, dnnl::algorithm algorithm, const Layouts& layouts,
                 const dnnl::primitive_attr& operations) {
  const Geometry g = geometry(call.parameters);
  const typename Operator::primitive_desc descriptor(
      engine(), dnnl::prop_kind::forward_inference, algorithm, layouts.source, layouts.weights,
      layouts.bias, layouts.target, g.stride, g.dilation, g.padding_low, g.padding_high,
      operations);
  return choose<Operator>(descriptor);
}

Chosen choose_among(const Call& call, const Layouts& layouts,
                    const dnnl::primitive_attr& operations) {
  return call.parameters.transposed
             ? choose_of<dnnl::deconvolution_forward>(call, dnnl::algorithm::deconvolution_direct,
                                                      layouts, operations)
             : choose_of<dnnl::convolution_forward>(call, dnnl::algorithm::convolution_direct,
                                                    layouts, operations);
}

Chosen choose_layouts(const Call& call, const WeightView& weight) {
  Layouts layouts{channels_last(call.input), any_layout(call.weight.dtype, weight.sizes),
                  call.bias == nullptr ? Desc() : strided(*call.bias), channels_last(call.output)};
  const Desc other = layouts.target;
  const dnnl::primitive_attr operations = attributes({.epilogue = call.epilogue,
                                                      .sum_scale = in_place(call) ? 1.0F : 0.0F,
                                                      .other = has_other(call) ? &other : nullptr});
  const Chosen direct = choose_among(call, layouts, operations);
  if (!direct.reference || has_other(call) || in_place(call)) return direct;
  // No fast kernel takes channels-last here: let oneDNN choose, and reorder.
  layouts.source = any_layout(call.input.dtype, call.input.sizes());
  layouts.target = any_layout(call.output.dtype, call.output.sizes());
  const Chosen blocked = choose_among(call, layouts, operations);
  return blocked.reference ? direct : blocked;
}

std::shared_ptr<Kernel> make(const Call& call) {
  const WeightView view = weight_view(call.weight, call.parameters);
  const Chosen chosen = choose_layouts(call, view);
  auto kernel = std::make_shared<Kernel>(chosen);
  const Desc weight = strided(call.weight.dtype, view.sizes, view.strides);
  kernel->add(DNNL_ARG_SRC, strided(call.input), chosen.source);
  kernel->add(DNNL_ARG_DST, strided(call.output), chosen.target,
              in_place(call) ? Kernel::Role::kUpdated : Kernel::Role::kWritten);
  if (call.weight.storage->is_constant()) {
    kernel->add_constant(DNNL_ARG_WEIGHTS, call.weight, weight, chosen.weights);
  } else {
    kernel->add(DNNL_ARG_WEIGHTS, weight, chosen.weights);
  }
  if (call.bias != nullptr) kernel->add(DNNL_ARG_BIAS, strided(*call.bias), chosen.bias);
  if (has_other(call)) {
    kernel->add(DNNL_ARG_ATTR_MULTIPLE_POST_OP(0) | DNNL_ARG_SRC_1, strided(*call.epilogue.other),
                chosen.target);
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
  key.add(int64_t{in_place(call)}).add(int64_t{call.bias != nullptr});
  add_to_key(key, call.epilogue);
  return key;
}

// A tensor with an axis of one element before the last: oneDNN has its best kernels for images.
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

void run(const Call& call) {
  const auto kernel =
      Context::current().kernels().get<Kernel>(key_of(call), [&] { return make(call); });
  std::vector<void*> addresses{call.input.raw(), call.output.raw()};
  if (!call.weight.storage->is_constant()) addresses.push_back(call.weight.raw());
  if (call.bias != nullptr) addresses.push_back(call.bias->raw());
  if (has_other(call)) addresses.push_back(call.epilogue.other->raw());
  kernel->run(addresses);
}

}  // namespace
}  // namespace menagerie::onednn

namespace menagerie::kernels {

void convolution(const Tensor& input, const Tensor& weight, const Tensor* bias,
                 const ConvolutionParameters& parameters, const Epilogue& epilogue,
                 const Tensor& output) {
  const bool is_line = parameters.spatial == 1;
  const auto prepared = [&](const Tensor& tensor) {
    const Tensor apart = onednn::lies_apart(tensor) ? tensor : contiguous(tensor);
    return is_line ? onednn::as_image(apart) : apart;
  };
  const Tensor target = is_line ? onednn::as_image(output) : output;
  Epilogue prepared_epilogue = epilogue;
  const bool in_place = epilogue.other == &output;
  const Tensor other = epilogue.other == nullptr || in_place ? Tensor() : prepared(*epilogue.other);
  if (epilogue.other != nullptr) prepared_epilogue.other = in_place ? &target : &other;
  onednn::run({prepared(input), prepared(weight), bias,
               is_line ? onednn::as_image(parameters) : parameters, prepared_epilogue, target});
}

}  // namespace menagerie::kernels
