#include <algorithm>

#include "common/copy.h"
#include "common/platform/threads.h"
#include "kernels/onednn/kernel.h"
#include "kernels/onednn/onednn.h"

namespace menagerie::onednn {
namespace {

using kernels::Product;

bool is_column_major(const Tensor& tensor) {
  return tensor.stride[tensor.dimensions - 2] == 1 && lies_apart(tensor);
}

Key key_of(std::string_view kind, const Product& product, const Tensor& output) {
  Key key(kind);
  key.add(int64_t{Context::current().threads()});
  for (const Tensor* tensor : {&product.a, &product.b, &output}) add_to_key(key, *tensor);
  key.add(product.b.storage->is_constant() ? product.b.raw() : nullptr);
  key.add(int64_t{product.bias != nullptr});
  key.add(double{product.alpha}).add(double{product.beta});
  add_to_key(key, product.epilogue);
  return key;
}

dnnl::primitive_attr attributes_of(const Product& product) {
  return attributes({product.epilogue, product.alpha, product.beta});
}

// Return a kernel with the operands except b, in the order of `addresses`.
std::shared_ptr<Kernel> with_operands(const ChosenPrimitive& chosen, const Product& product,
                                      const Tensor& output) {
  auto kernel = std::make_shared<Kernel>(chosen);
  kernel->add(DNNL_ARG_SRC, strided(product.a), chosen.source);
  kernel->add(DNNL_ARG_DST, strided(output), chosen.target, Kernel::Role::kUpdated);
  if (product.bias != nullptr) kernel->add(DNNL_ARG_BIAS, chosen.bias, chosen.bias);
  return kernel;
}

std::vector<void*> addresses(const Product& product, const Tensor& output) {
  std::vector<void*> all{product.a.raw(), output.raw()};
  if (product.bias != nullptr) all.push_back(product.bias->raw());
  return all;
}

using InnerProduct = dnnl::inner_product_forward;

// The layout of weights [N, K] that oneDNN prefers for many rows.
struct WeightLayout : Prepared {
  WeightLayout(Dtype dtype, const Dims& weights) {
    constexpr int64_t kRows = 128;
    const int64_t input[] = {kRows, weights[1]}, output[] = {kRows, weights[0]};
    const int64_t wide[] = {weights[1], 1}, narrow[] = {weights[0], 1};
    const InnerProduct::primitive_desc descriptor(
        engine(), dnnl::prop_kind::forward_inference, strided(dtype, input, wide),
        any_layout(dtype, weights), strided(dtype, output, narrow), attributes({.epilogue = {}}));
    desc = descriptor.weights_desc();
  }
  Desc desc;
};

// For few rows oneDNN prefers another layout, and a model that meets few and many would hold its
// weights twice: the layout for many rows serves where oneDNN's fast kernels take it.
InnerProduct::primitive_desc describe(const Product& product, const Tensor& output,
                                      const Dims& weights) {
  const Desc bias = product.bias == nullptr ? Desc() : strided(*product.bias);
  const auto with = [&](const Desc& layout, bool may_be_empty) {
    return InnerProduct::primitive_desc(engine(), dnnl::prop_kind::forward_inference,
                                        strided(product.a), layout, bias, strided(output),
                                        attributes_of(product), may_be_empty);
  };
  InnerProduct::primitive_desc best = with(any_layout(product.b.dtype, weights), false);
  Key key("weight layout");
  key.add(int64_t{Context::current().threads()}).add(weights);
  key.add(static_cast<int64_t>(product.b.dtype));
  const auto shared = Context::current().kernels().get<WeightLayout>(
      key, [&] { return std::make_shared<WeightLayout>(product.b.dtype, weights); });
  if (best.weights_desc() == shared->desc) return best;
  const InnerProduct::primitive_desc alike = with(shared->desc, true);
  const bool as_fast = alike && std::string_view(alike.impl_info_str()) == best.impl_info_str();
  return as_fast ? alike : best;
}

// Compute output = a * b in integers, times b's scales; each row's rounding is left to apply.
void run_integers(const Tensor& a, const IntegerWeight& b, const Tensor& output) {
  using dnnl::inner_product_forward;
  Key key("integer product");
  key.add(int64_t{Context::current().threads()}).add(a.sizes()).add(output.sizes());
  key.add(b.values.raw()).add(b.scales);
  const auto make = [&] {
    dnnl::primitive_attr scaled = attributes({.epilogue = {}});
    scaled.set_scales_mask(DNNL_ARG_WEIGHTS, 1);  // one for each column of the result
    const inner_product_forward::primitive_desc descriptor(
        engine(), dnnl::prop_kind::forward_inference, strided(a),
        any_layout(b.values.dtype, b.values.sizes()), strided(output), scaled);
    const ChosenPrimitive chosen = choose<inner_product_forward>(descriptor);
    auto kernel = std::make_shared<Kernel>(chosen);
    kernel->add(DNNL_ARG_SRC, strided(a), chosen.source);
    kernel->add(DNNL_ARG_DST, strided(output), chosen.target, Kernel::Role::kWritten);
    kernel->add_constant(DNNL_ARG_WEIGHTS, b.values, strided(b.values), chosen.weights);
    const Desc scales({b.values.size[0]}, dnnl::memory::data_type::f32, Dims{1});
    kernel->add_fixed(DNNL_ARG_ATTR_SCALES | DNNL_ARG_WEIGHTS, scales, b.scales);
    return kernel;
  };
  Context::current().kernels().get<Kernel>(key, make)->run({a.raw(), output.raw()});
}

// Apply a row's rounding and the bias to a row of the product.
void finish_row(const Rounding& rounding, const float* sums, const float* bias, int64_t columns,
                float* row) {
  const auto zero = static_cast<float>(rounding.zero);
  const float scale = rounding.scale;
  if (bias == nullptr) {
    for (int64_t j = 0; j < columns; ++j) row[j] = (row[j] - zero * sums[j]) * scale;
  } else {
    for (int64_t j = 0; j < columns; ++j) row[j] = (row[j] - zero * sums[j]) * scale + bias[j];
  }
}

// Compute a rounded product; all operands are dense.
void run_rounded(const Product& product, const IntegerWeight& integers, const Tensor& output) {
  const int64_t columns = output.size[1];
  const Tensor rounded = empty_contiguous(Dtype::kUInt8, product.a.sizes());
  const std::vector<Rounding> rows =
      round_slices(product.a.data<float>(), product.a.size[0], product.a.size[1], integers.operand,
                   rounded.data<uint8_t>());
  run_integers(rounded, integers, output);
  const float* bias = product.bias == nullptr ? nullptr : product.bias->data<float>();
  constexpr int64_t kWorth = 1 << 15;  // this many numbers are worth a task of their own
  threads::for_each(output.size[0], std::max<int64_t>(kWorth / columns, 1), [&](int64_t row) {
    finish_row(rows[static_cast<size_t>(row)], integers.sums, bias, columns,
               output.data<float>() + row * columns);
  });
  activate(product.epilogue, output);
}

Desc bias_desc(const Product& product, const Tensor& output) {
  if (product.bias == nullptr) return {};
  Dims sizes(static_cast<size_t>(output.dimensions), 1);
  sizes.back() = product.bias->size[0];
  return strided(product.bias->dtype, sizes, Dims(sizes.size(), 1));
}

}  // namespace

Tensor with_definite_strides(Tensor tensor) {
  const int32_t columns = tensor.dimensions - 1;
  if (tensor.size[columns] == 1) tensor.stride[columns] = 1;
  for (int32_t axis = columns; axis-- > 0;) {
    if (tensor.size[axis] != 1) continue;
    tensor.stride[axis] = std::max<int64_t>(tensor.size[axis + 1] * tensor.stride[axis + 1], 1);
  }
  return tensor;
}

bool is_row_major(const Tensor& tensor) {
  return tensor.stride[tensor.dimensions - 1] == 1 && lies_apart(tensor);
}

Tensor gathered(const Tensor& tensor) {
  const Tensor definite = with_definite_strides(tensor);
  return is_row_major(definite) || is_column_major(definite) ? definite : contiguous(tensor);
}

void matmul(const Product& product, const Tensor& output) {
  const auto make = [&] {
    const dnnl::matmul::primitive_desc descriptor(engine(), strided(product.a), strided(product.b),
                                                  bias_desc(product, output), strided(output),
                                                  attributes_of(product));
    const ChosenPrimitive chosen = choose<dnnl::matmul>(descriptor);
    auto kernel = with_operands(chosen, product, output);
    kernel->add(DNNL_ARG_WEIGHTS, strided(product.b), chosen.weights);
    return kernel;
  };
  std::vector<void*> all = addresses(product, output);
  all.push_back(product.b.raw());
  Context::current().kernels().get<Kernel>(key_of("matmul", product, output), make)->run(all);
}

// Compute a[M, K] * b[K, N], with b seen as weights [N, K] and packed.
void inner_product(const Product& product, const Tensor& output) {
  const auto make = [&] {
    const Dims sizes{product.b.size[1], product.b.size[0]};
    const Dims strides{product.b.stride[1], product.b.stride[0]};
    const ChosenPrimitive chosen = choose<InnerProduct>(describe(product, output, sizes));
    auto kernel = with_operands(chosen, product, output);
    kernel->add_constant(DNNL_ARG_WEIGHTS, product.b, strided(product.b.dtype, sizes, strides),
                         chosen.weights);
    return kernel;
  };
  Context::current()
      .kernels()
      .get<Kernel>(key_of("inner product", product, output), make)
      ->run(addresses(product, output));
}

void rounded_product(const Product& product, const IntegerWeight& integers, const Tensor& output) {
  const Tensor a = product.a.is_contiguous() ? product.a : contiguous(product.a);
  const Tensor target =
      output.is_contiguous() ? output : empty_contiguous(output.dtype, output.sizes());
  run_rounded({a, product.b, product.bias, 1, 0, product.epilogue}, integers, target);
  if (!output.is_contiguous()) copy(target, output);
}

void small_product(const kernels::SmallProduct& p) {
  const dnnl_status_t status = dnnl_sgemm('N', p.b_transposed ? 'T' : 'N', p.m, p.n, p.k, 1, p.a,
                                          p.lda, p.b, p.ldb, 0, p.c, p.ldc);
  require(status == dnnl_success, "sgemm failed with status ", static_cast<int>(status));
}

}  // namespace menagerie::onednn
