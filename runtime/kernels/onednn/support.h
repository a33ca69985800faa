// What all oneDNN kernels share: the engine, descriptors of tensors, operations that follow a
// product, and keys.
#pragma once

#include <oneapi/dnnl/dnnl.hpp>
#include <optional>
#include <span>

#include "common/caches.h"
#include "common/context.h"
#include "common/tensor.h"
#include "kernels/kernels.h"

namespace menagerie::onednn {

using Dims = dnnl::memory::dims;
using Desc = dnnl::memory::desc;

const dnnl::engine& engine();
dnnl::stream& stream();  // of the calling thread

dnnl::memory::data_type data_type(Dtype dtype);  // fails for dtypes oneDNN does not compute with

// Return a descriptor of the given geometry, or one that leaves the layout to oneDNN.
Desc strided(Dtype dtype, std::span<const int64_t> sizes, std::span<const int64_t> strides);
Desc any_layout(Dtype dtype, std::span<const int64_t> sizes);
inline Desc strided(const Tensor& tensor) {
  return strided(tensor.dtype, tensor.sizes(), tensor.strides());
}

// Return whether each axis steps beyond all that lies inside it, as oneDNN requires of strides. The
// strides of expanded tensors and of sliding windows do not.
bool lies_apart(const Tensor& tensor);

// Return whether two descriptors place every element alike.
bool same_layout(const Desc& a, const Desc& b);

// The operations after a product, in this order: a factor, a sum with the target's values, the
// epilogue's activation.
struct PostOperations {
  const kernels::Epilogue& epilogue;
  float alpha = 1;
  float sum_scale = 0;
};

// Return attributes with these operations and scratch memory of our own.
dnnl::primitive_attr attributes(const PostOperations& wanted);

// An activation in oneDNN's terms; eltwise_of returns nothing if there is no activation.
struct Eltwise {
  dnnl::algorithm algorithm;
  float alpha = 0;
  float beta = 0;
};
std::optional<Eltwise> eltwise_of(const kernels::Epilogue& epilogue);

void add_to_key(Key& key, const Desc& desc);
void add_to_key(Key& key, const Tensor& tensor);
void add_to_key(Key& key, const kernels::Epilogue& epilogue);

}  // namespace menagerie::onednn
