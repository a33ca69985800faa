#include "kernels/onednn/support.h"

#include <algorithm>
#include <array>
#include <sstream>

namespace menagerie::onednn {
namespace {

// Return whether a layout is neither blocked nor padded: its strides alone describe it.
bool is_plain(const Desc& desc) {
  return desc.get_format_kind() == dnnl::memory::format_kind::blocked &&
         desc.get_inner_nblks() == 0 && desc.get_dims() == desc.get_padded_dims();
}

}  // namespace

const dnnl::engine& engine() {
  static const dnnl::engine cpu(dnnl::engine::kind::cpu, 0);
  return cpu;
}

dnnl::stream& stream() {
  thread_local dnnl::stream own(engine());
  return own;
}

dnnl::memory::data_type data_type(Dtype dtype) {
  switch (dtype) {
    case Dtype::kFloat32:
      return dnnl::memory::data_type::f32;
    case Dtype::kInt8:
      return dnnl::memory::data_type::s8;
    case Dtype::kUInt8:
      return dnnl::memory::data_type::u8;
    default:
      fail("the kernel library does not compute with ", info(dtype).name);
  }
}

Desc strided(Dtype dtype, std::span<const int64_t> sizes, std::span<const int64_t> strides) {
  return {Dims(sizes.begin(), sizes.end()), data_type(dtype), Dims(strides.begin(), strides.end())};
}

Desc any_layout(Dtype dtype, std::span<const int64_t> sizes) {
  return {Dims(sizes.begin(), sizes.end()), data_type(dtype), dnnl::memory::format_tag::any};
}

bool lies_apart(const Tensor& tensor) {
  int64_t reach = 1;
  for (const int32_t axis : axes_by_stride(tensor)) {
    if (tensor.stride[axis] < reach) return false;
    reach = tensor.stride[axis] * tensor.size[axis];
  }
  return true;
}

bool same_layout(const Desc& a, const Desc& b) {
  if (a == b) return true;
  if (!is_plain(a) || !is_plain(b) || a.get_dims() != b.get_dims() ||
      a.get_data_type() != b.get_data_type() || a.get_size() != b.get_size()) {
    return false;
  }
  const Dims sizes = a.get_dims();
  const Dims first = a.get_strides();
  const Dims second = b.get_strides();
  for (size_t axis = 0; axis < sizes.size(); ++axis) {
    // The stride of an axis of one element means nothing.
    if (sizes[axis] > 1 && first[axis] != second[axis]) return false;
  }
  return true;
}

dnnl::primitive_attr attributes(const PostOperations& wanted) {
  dnnl::post_ops operations;
  if (wanted.alpha != 1) {
    operations.append_eltwise(dnnl::algorithm::eltwise_linear, wanted.alpha, 0);
  }
  if (wanted.sum_scale != 0) operations.append_sum(wanted.sum_scale);
  if (const auto last = eltwise_of(wanted.epilogue)) {
    operations.append_eltwise(last->algorithm, last->alpha, last->beta);
  }
  dnnl::primitive_attr attributes;
  attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  attributes.set_post_ops(operations);
  return attributes;
}

std::optional<Eltwise> eltwise_of(const kernels::Epilogue& epilogue) {
  using dnnl::algorithm;
  using kernels::Activation;
  switch (epilogue.activation) {
    case Activation::kNone:
      break;
    case Activation::kRelu:
      return Eltwise{algorithm::eltwise_relu};
    case Activation::kClamp:
      return Eltwise{algorithm::eltwise_clip, epilogue.alpha, epilogue.beta};
    case Activation::kGeluErf:
      return Eltwise{algorithm::eltwise_gelu_erf};
    case Activation::kGeluTanh:
      return Eltwise{algorithm::eltwise_gelu_tanh};
    case Activation::kSwish:
      return Eltwise{algorithm::eltwise_swish, 1};
    case Activation::kSigmoid:
      return Eltwise{algorithm::eltwise_logistic};
    case Activation::kTanh:
      return Eltwise{algorithm::eltwise_tanh};
    case Activation::kHardSwish:
      return Eltwise{algorithm::eltwise_hardswish, 1.0F / 6, 0.5F};
    case Activation::kHardSigmoid:
      return Eltwise{algorithm::eltwise_hardsigmoid, 1.0F / 6, 0.5F};
  }
  return std::nullopt;
}

void add_to_key(Key& key, const Desc& desc) {
  require(desc.get_format_kind() == dnnl::memory::format_kind::blocked,
          "the kernel library has chosen a layout that cannot be described");
  key.add(static_cast<int64_t>(desc.get_data_type()))
      .add(desc.get_dims())
      .add(desc.get_strides())
      .add(desc.get_padded_dims())
      .add(desc.get_inner_blks())
      .add(desc.get_inner_idxs())
      .add(static_cast<int64_t>(desc.get_size()));  // sums may follow the elements
}

void add_to_key(Key& key, const Tensor& tensor) {
  key.add(static_cast<int64_t>(tensor.dtype)).add(tensor.sizes()).add(tensor.strides());
}

void add_to_key(Key& key, const kernels::Epilogue& epilogue) {
  key.add(static_cast<int64_t>(epilogue.activation))
      .add(double{epilogue.alpha})
      .add(double{epilogue.beta});
}

std::string library_version() {
  const dnnl::version_t* version = dnnl::version();
  std::ostringstream text;
  text << "oneDNN " << version->major << '.' << version->minor << '.' << version->patch;
  return text.str();
}

}  // namespace menagerie::onednn
