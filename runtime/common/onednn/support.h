// What every oneDNN kernel shares: the engine, descriptors from tensors, and running a primitive
// with scratch memory of the program.
#pragma once

#include <oneapi/dnnl/dnnl.hpp>
#include <span>
#include <unordered_map>

#include "common/context.h"
#include "common/kernel_cache.h"
#include "common/kernels.h"
#include "common/tensor.h"

namespace menagerie::onednn {

using Dims = dnnl::memory::dims;
using Desc = dnnl::memory::desc;
using Arguments = std::unordered_map<int, dnnl::memory>;

const dnnl::engine& engine();
dnnl::stream& stream();  // of the calling thread

dnnl::memory::data_type data_type(Dtype dtype);  // fails for dtypes oneDNN does not compute with

// A descriptor of the given geometry; and one that leaves the layout to oneDNN.
Desc strided(Dtype dtype, std::span<const int64_t> sizes, std::span<const int64_t> strides);
Desc any_layout(Dtype dtype, std::span<const int64_t> sizes);
inline Desc strided(const Tensor& tensor) {
  return strided(tensor.dtype, tensor.sizes(), tensor.strides());
}
inline dnnl::memory over(const Desc& desc, void* data) { return {desc, engine(), data}; }

// Memory from the program's arena, of the descriptor's size.
class Scratch {
 public:
  explicit Scratch(const Desc& desc);
  dnnl::memory memory() const { return over(desc_, storage_->data()); }

 private:
  Desc desc_;
  std::shared_ptr<Storage> storage_;
};

// A primitive with the descriptors it has chosen.
struct Primitive : Prepared {
  dnnl::primitive primitive;
  Desc source;
  Desc weights;
  Desc bias;
  Desc target;
  Desc scratchpad;
  bool reference = false;  // oneDNN has nothing better than its plain loops

  void run(Arguments arguments) const;
};

// Fills a Primitive from a primitive descriptor of a forward operator.
template <class Descriptor, class Operator>
std::shared_ptr<Primitive> prepare(const Descriptor& descriptor) {
  auto made = std::make_shared<Primitive>();
  made->primitive = Operator(descriptor);
  made->source = descriptor.src_desc();
  made->weights = descriptor.weights_desc();
  made->bias = descriptor.query_md(dnnl::query::weights_md, 1);
  made->target = descriptor.dst_desc();
  made->scratchpad = descriptor.scratchpad_desc();
  made->reference = std::string_view(descriptor.impl_info_str()).starts_with("ref");
  return made;
}

// Whether two descriptors place every element alike.
bool same_layout(const Desc& a, const Desc& b);

// Copies between layouts.
void reorder(const dnnl::memory& from, const dnnl::memory& to);

// `tensor` seen as `given`, in the layout `wanted`: itself where the layouts agree, a copy where
// not. Copies of constants are kept for the following calls.
class InLayout {
 public:
  InLayout(const Tensor& tensor, const Desc& given, const Desc& wanted);
  const dnnl::memory& memory() const { return memory_; }

 private:
  std::shared_ptr<Prepared> kept_;
  std::shared_ptr<Storage> copied_;
  dnnl::memory memory_;
};

// What follows a product, in this order: a factor, a sum with what the target holds, the epilogue's
// binary operation with `other` (null for none), its activation.
struct PostOperations {
  const kernels::Epilogue& epilogue;
  float alpha = 1;
  float sum_scale = 0;
  const Desc* other = nullptr;
};

// Attributes with these operations and scratch memory of ours.
dnnl::primitive_attr attributes(const PostOperations& wanted);

void add_to_key(Key& key, const Desc& desc);
void add_to_key(Key& key, const Tensor& tensor);
void add_to_key(Key& key, const kernels::Epilogue& epilogue);

}  // namespace menagerie::onednn
