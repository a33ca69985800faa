// Convolution by oneDNN. Activations are computed channels-last, which its direct kernels take at
// full speed; weights go to the layout it likes best, once for a constant.
#include <algorithm>
#include <optional>

#include "common/kernels.h"
#include "common/onednn/support.h"

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

std::shared_ptr<Primitive> make_forward(const Call& call, const Desc& source, const Desc& weights,
                                        const Desc& bias, const Desc& target,
                                        const dnnl::primitive_attr& attributes) {
  const Geometry g = geometry(call.parameters);
  using dnnl::convolution_forward;
  const convolution_forward::primitive_desc descriptor(
      engine(), dnnl::prop_kind::forward_inference, dnnl::algorithm::convolution_direct, source,
      weights, bias, target, g.stride, g.dilation, g.padding_low, g.padding_high, attributes);
  return prepare<convolution_forward::primitive_desc, convolution_forward>(descriptor);
}

std::shared_ptr<Primitive> make_transposed(const Call& call, const Desc& source,
                                           const Desc& weights, const Desc& bias,
                                           const Desc& target,
                                           const dnnl::primitive_attr& attributes) {
  const Geometry g = geometry(call.parameters);
  using dnnl::deconvolution_forward;
  const deconvolution_forward::primitive_desc descriptor(
      engine(), dnnl::prop_kind::forward_inference, dnnl::algorithm::deconvolution_direct, source,
      weights, bias, target, g.stride, g.dilation, g.padding_low, g.padding_high, attributes);
  return prepare<deconvolution_forward::primitive_desc, deconvolution_forward>(descriptor);
}

std::shared_ptr<Primitive> make(const Call& call) {
  const auto build = call.parameters.transposed ? make_transposed : make_forward;
  const Desc weights =
      any_layout(call.weight.dtype, weight_view(call.weight, call.parameters).sizes);
  const Desc bias = call.bias == nullptr ? Desc() : strided(*call.bias);
  const Desc target = channels_last(call.output);
  const dnnl::primitive_attr operations =
      attributes({.epilogue = call.epilogue,
                  .sum_scale = in_place(call) ? 1.0F : 0.0F,
                  .other = has_other(call) ? &target : nullptr});
  auto made = build(call, channels_last(call.input), weights, bias, target, operations);
  if (!made->reference) return made;
  // No fast kernel takes channels-last here; let oneDNN choose, and reorder.
  const Desc any_source = any_layout(call.input.dtype, call.input.sizes());
  const Desc any_target = any_layout(call.output.dtype, call.output.sizes());
  if (has_other(call) || in_place(call)) return made;
  auto blocked = build(call, any_source, weights, bias, any_target, operations);
  return blocked->reference ? made : blocked;
}

std::shared_ptr<Primitive> prepared(const Call& call) {
  Context& context = Context::current();
  Key key("convolution");
  const ConvolutionParameters& p = call.parameters;
  key.add(int64_t{context.threads()}).add(p.stride).add(p.padding).add(p.dilation);
  key.add(p.output_padding).add(int64_t{p.transposed}).add(p.groups);
  key.add(static_cast<int64_t>(call.input.dtype)).add(call.input.sizes());
  key.add(static_cast<int64_t>(call.weight.dtype)).add(call.weight.sizes());
  key.add(static_cast<int64_t>(call.output.dtype)).add(call.output.sizes());
  key.add(int64_t{in_place(call)});
  if (call.bias != nullptr) add_to_key(key, *call.bias);
  add_to_key(key, call.epilogue);
  return context.kernels().get<Primitive>(key, [&] { return make(call); });
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
  const auto primitive = prepared(call);
  const InLayout source(call.input, strided(call.input), primitive->source);
  const WeightView view = weight_view(call.weight, call.parameters);
  const InLayout weights(call.weight, strided(call.weight.dtype, view.sizes, view.strides),
                         primitive->weights);
  Arguments arguments{{DNNL_ARG_SRC, source.memory()}, {DNNL_ARG_WEIGHTS, weights.memory()}};
  if (call.bias != nullptr) {
    arguments.emplace(DNNL_ARG_BIAS, over(primitive->bias, call.bias->raw()));
  }
  std::optional<InLayout> other;
  if (has_other(call)) {
    const Tensor& tensor = *call.epilogue.other;
    other.emplace(tensor, strided(tensor), primitive->target);
    arguments.emplace(DNNL_ARG_ATTR_MULTIPLE_POST_OP(0) | DNNL_ARG_SRC_1, other->memory());
  }
  const Desc wanted = strided(call.output);
  if (same_layout(wanted, primitive->target)) {
    arguments.emplace(DNNL_ARG_DST, over(primitive->target, call.output.raw()));
    primitive->run(std::move(arguments));
    return;
  }
  const Scratch result(primitive->target);
  if (in_place(call)) reorder(over(wanted, call.output.raw()), result.memory());
  arguments.emplace(DNNL_ARG_DST, result.memory());
  primitive->run(std::move(arguments));
  reorder(result.memory(), over(wanted, call.output.raw()));
}

}  // namespace
}  // namespace menagerie::onednn

namespace menagerie::kernels {

void convolution(const Tensor& input, const Tensor& weight, const Tensor* bias,
                 const ConvolutionParameters& parameters, const Epilogue& epilogue,
                 const Tensor& output) {
  if (parameters.spatial != 1) {
    return onednn::run({input, weight, bias, parameters, epilogue, output});
  }
  const Tensor target = onednn::as_image(output);
  Epilogue image_epilogue = epilogue;
  const bool in_place = epilogue.other == &output;
  const Tensor other =
      epilogue.other == nullptr || in_place ? Tensor() : onednn::as_image(*epilogue.other);
  if (epilogue.other != nullptr) image_epilogue.other = in_place ? &target : &other;
  onednn::run({onednn::as_image(input), onednn::as_image(weight), bias,
               onednn::as_image(parameters), image_epilogue, target});
}

}  // namespace menagerie::kernels
