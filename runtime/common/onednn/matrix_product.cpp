// Matrix products by oneDNN: a constant right-hand side runs as an inner product over packed
// weights, which is its fastest path; everything else as a matmul over strided operands.
#include <algorithm>

#include "common/copy.h"
#include "common/kernels.h"
#include "common/onednn/support.h"

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
  const int32_t n = tensor.dimensions;
  return tensor.stride[n - 1] == 1 && tensor.stride[n - 2] >= tensor.size[n - 1] &&
         (n == 2 || tensor.stride[0] > 0);
}

bool is_column_major(const Tensor& tensor) {
  const int32_t n = tensor.dimensions;
  return tensor.stride[n - 2] == 1 && tensor.stride[n - 1] >= tensor.size[n - 2] &&
         (n == 2 || tensor.stride[0] > 0);
}

// oneDNN's fast kernels take dense rows or dense columns; anything else is gathered.
Tensor gathered(const Tensor& tensor) {
  const Tensor definite = with_definite_strides(tensor);
  return is_row_major(definite) || is_column_major(definite) ? definite : contiguous(tensor);
}

void key_of(Key& key, const Product& product, const Tensor& output) {
  key.add(int64_t{Context::current().threads()});
  for (const Tensor* tensor : {&product.a, &product.b, &output}) add_to_key(key, *tensor);
  if (product.bias != nullptr) add_to_key(key, *product.bias);
  key.add(double{product.alpha}).add(double{product.beta});
  add_to_key(key, product.epilogue);
}

dnnl::primitive_attr attributes_of(const Product& product) {
  const bool has_other = product.epilogue.binary != kernels::Binary::kNone;
  const Desc other = has_other ? strided(*product.epilogue.other) : Desc();
  return attributes({product.epilogue, product.alpha, product.beta, has_other ? &other : nullptr});
}

// Index of the binary operation among the post-operations.
int binary_index(const Product& product) { return (product.alpha != 1) + (product.beta != 0); }

void finish(const Product& product, const Primitive& primitive, Arguments arguments,
            const Tensor& output) {
  if (product.bias != nullptr) {
    arguments.emplace(DNNL_ARG_BIAS, over(primitive.bias, product.bias->raw()));
  }
  if (product.epilogue.binary != kernels::Binary::kNone) {
    const Tensor& other = *product.epilogue.other;
    arguments.emplace(DNNL_ARG_ATTR_MULTIPLE_POST_OP(binary_index(product)) | DNNL_ARG_SRC_1,
                      over(strided(other), other.raw()));
  }
  arguments.emplace(DNNL_ARG_DST, over(primitive.target, output.raw()));
  primitive.run(std::move(arguments));
}

// a[M, K] * b[K, N], b seen as weights [N, K].
void run_inner_product(const Product& product, const Tensor& output) {
  using dnnl::inner_product_forward;
  Context& context = Context::current();
  const Dims weight_sizes{product.b.size[1], product.b.size[0]};
  const Dims weight_strides{product.b.stride[1], product.b.stride[0]};
  Key key("inner product");
  key_of(key, product, output);
  const auto primitive = context.kernels().get<Primitive>(key, [&] {
    const inner_product_forward::primitive_desc descriptor(
        engine(), dnnl::prop_kind::forward_inference, strided(product.a),
        any_layout(product.b.dtype, weight_sizes),
        product.bias == nullptr ? Desc() : strided(*product.bias), strided(output),
        attributes_of(product));
    return prepare<inner_product_forward::primitive_desc, inner_product_forward>(descriptor);
  });
  const InLayout weights(product.b, strided(product.b.dtype, weight_sizes, weight_strides),
                         primitive->weights);
  finish(product, *primitive,
         {{DNNL_ARG_SRC, over(primitive->source, product.a.raw())},
          {DNNL_ARG_WEIGHTS, weights.memory()}},
         output);
}

void run_matmul(const Product& product, const Tensor& output) {
  using dnnl::matmul;
  Context& context = Context::current();
  Key key("matmul");
  key_of(key, product, output);
  const auto primitive = context.kernels().get<Primitive>(key, [&] {
    Desc bias;
    if (product.bias != nullptr) {
      Dims sizes(static_cast<size_t>(output.dimensions), 1);
      sizes.back() = product.bias->size[0];
      const Dims strides(sizes.size(), 1);
      bias = strided(product.bias->dtype, sizes, strides);
    }
    const matmul::primitive_desc descriptor(engine(), strided(product.a), strided(product.b), bias,
                                            strided(output), attributes_of(product));
    return prepare<matmul::primitive_desc, matmul>(descriptor);
  });
  finish(product, *primitive,
         {{DNNL_ARG_SRC, over(primitive->source, product.a.raw())},
          {DNNL_ARG_WEIGHTS, over(primitive->weights, product.b.raw())}},
         output);
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
