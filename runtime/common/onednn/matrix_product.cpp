// Matrix products by oneDNN: a constant right-hand side runs as an inner product over packed
// weights, which is its fastest path; everything else as a matmul over strided operands.
#include <algorithm>

#include "common/copy.h"
#include "common/kernels.h"
#include "common/onednn/kernel.h"

namespace menagerie::onednn {
namespace {

using kernels::Product;

// The same elements with definite strides along axes of one element, which else could read as a
// leading dimension that is too small.
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

bool is_column_major(const Tensor& tensor) {
  return tensor.stride[tensor.dimensions - 2] == 1 && lies_apart(tensor);
}

// oneDNN's fast kernels take dense rows or dense columns; anything else is gathered.
Tensor gathered(const Tensor& tensor) {
  const Tensor definite = with_definite_strides(tensor);
  return is_row_major(definite) || is_column_major(definite) ? definite : contiguous(tensor);
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

bool has_other(const Product& product) { return product.epilogue.binary != kernels::Binary::kNone; }

dnnl::primitive_attr attributes_of(const Product& product) {
  const Desc other = has_other(product) ? strided(*product.epilogue.other) : Desc();
  return attributes(
      {product.epilogue, product.alpha, product.beta, has_other(product) ? &other : nullptr});
}

// The kernel's operands but for b, in the order of `addresses`.
std::shared_ptr<Kernel> with_operands(const Chosen& chosen, const Product& product,
                                      const Tensor& output) {
  auto kernel = std::make_shared<Kernel>(chosen);
  kernel->add(DNNL_ARG_SRC, strided(product.a), chosen.source);
  kernel->add(DNNL_ARG_DST, strided(output), chosen.target, Kernel::Role::kUpdated);
  if (product.bias != nullptr) kernel->add(DNNL_ARG_BIAS, chosen.bias, chosen.bias);
  if (has_other(product)) {
    const int index = (product.alpha != 1) + (product.beta != 0);
    const Desc other = strided(*product.epilogue.other);
    kernel->add(DNNL_ARG_ATTR_MULTIPLE_POST_OP(index) | DNNL_ARG_SRC_1, other, other);
  }
  return kernel;
}

std::vector<void*> addresses(const Product& product, const Tensor& output) {
  std::vector<void*> all{product.a.raw(), output.raw()};
  if (product.bias != nullptr) all.push_back(product.bias->raw());
  if (has_other(product)) all.push_back(product.epilogue.other->raw());
  return all;
}

// a[M, K] * b[K, N], b seen as weights [N, K] and packed.
void run_inner_product(const Product& product, const Tensor& output) {
  using dnnl::inner_product_forward;
  const auto make = [&] {
    const Dims sizes{product.b.size[1], product.b.size[0]};
    const Dims strides{product.b.stride[1], product.b.stride[0]};
    const inner_product_forward::primitive_desc descriptor(
        engine(), dnnl::prop_kind::forward_inference, strided(product.a),
        any_layout(product.b.dtype, sizes),
        product.bias == nullptr ? Desc() : strided(*product.bias), strided(output),
        attributes_of(product));
    const Chosen chosen = choose<inner_product_forward>(descriptor);
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

Desc bias_desc(const Product& product, const Tensor& output) {
  if (product.bias == nullptr) return {};
  Dims sizes(static_cast<size_t>(output.dimensions), 1);
  sizes.back() = product.bias->size[0];
  return strided(product.bias->dtype, sizes, Dims(sizes.size(), 1));
}

void run_matmul(const Product& product, const Tensor& output) {
  using dnnl::matmul;
  const auto make = [&] {
    const matmul::primitive_desc descriptor(engine(), strided(product.a), strided(product.b),
                                            bias_desc(product, output), strided(output),
                                            attributes_of(product));
    const Chosen chosen = choose<matmul>(descriptor);
    auto kernel = with_operands(chosen, product, output);
    kernel->add(DNNL_ARG_WEIGHTS, strided(product.b), chosen.weights);
    return kernel;
  };
  std::vector<void*> all = addresses(product, output);
  all.push_back(product.b.raw());
  Context::current().kernels().get<Kernel>(key_of("matmul", product, output), make)->run(all);
}

}  // namespace
}  // namespace menagerie::onednn

namespace menagerie::kernels {

void matrix_product(const Product& product, const Tensor& output) {
  const Tensor target = onednn::with_definite_strides(output);
  if (!onednn::is_row_major(target)) {
    const Tensor rows = contiguous(output);  // with its values: they may be part of the sum
    matrix_product(product, rows);
    return copy(rows, output);
  }
  const Tensor a = onednn::gathered(product.a);
  const bool packs =
      product.b.dimensions == 2 && product.b.storage->is_constant() && output.is_contiguous();
  const Tensor left = packs && !a.is_contiguous() ? contiguous(a) : a;
  const Tensor right = packs ? product.b : onednn::gathered(product.b);
  const Product dense{left, right, product.bias, product.alpha, product.beta, product.epilogue};
  return packs ? onednn::run_inner_product(dense, target) : onednn::run_matmul(dense, target);
}

void small_product(const SmallProduct& p) {
  const dnnl_status_t status =
      dnnl_sgemm('N', p.b_transposed ? 'T' : 'N', p.m, p.n, p.k, p.alpha, p.a, p.lda, p.b, p.ldb,
                 p.accumulate ? 1.0F : 0.0F, p.c, p.ldc);
  require(status == dnnl_success, "sgemm failed with status ", static_cast<int>(status));
}

}  // namespace menagerie::kernels
