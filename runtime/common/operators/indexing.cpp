// Shims that read and write elements by lists of positions, and scatter along an axis; they check
// arguments.
#include <vector>

#include "common/copy.h"
#include "common/host_operators.h"
#include "common/operators.h"
#include "common/shim_support.h"
#include "common/tensor.h"

using namespace menagerie;

MENAGERIE_OPERATOR(index_Tensor)(AtenTensorHandle self, const AtenTensorHandle** indices,
                                 int64_t indices_len_, AtenTensorHandle* ret0) {
  return kernel(__func__, [&] {
    const Tensor& from = operand(self);
    *ret0 = to_handle(backend::read_at(from, indices_of(from, indices, indices_len_)));
  });
}

MENAGERIE_OPERATOR(index_put)(AtenTensorHandle self, const AtenTensorHandle** indices,
                              int64_t indices_len_, AtenTensorHandle values, int32_t accumulate,
                              AtenTensorHandle* ret0) {
  return kernel(__func__, [&] {
    const Tensor& into = operand(self);
    const Indices chosen = indices_of(into, indices, indices_len_);
    const Tensor from = chosen.values_for(into, operand(values));
    *ret0 = to_handle(backend::put_at(into, chosen, from, accumulate != 0));
  });
}

MENAGERIE_SHIM aoti_torch_index_put_out(AtenTensorHandle out, AtenTensorHandle self,
                                        const AtenTensorHandle* indices, const uint32_t num_indices,
                                        const AtenTensorHandle values, bool accumulate) {
  return kernel(__func__, [&] {
    const Tensor& into = operand(self);
    std::vector<const AtenTensorHandle*> handles;
    for (const AtenTensorHandle& index : list(indices, num_indices)) handles.push_back(&index);
    const Indices chosen = indices_of(into, handles.data(), num_indices);
    const Tensor from = chosen.values_for(into, operand(values));
    const Tensor& target = operand(out);
    require(target.dtype == into.dtype, "the result ", target, " does not have the dtype of ",
            into);
    backend::assign(backend::put_at(into, chosen, from, accumulate), target);
  });
}

MENAGERIE_OPERATOR(scatter_src_out)(AtenTensorHandle out, AtenTensorHandle self, int64_t dim,
                                    AtenTensorHandle index, AtenTensorHandle src) {
  return kernel(__func__, [&] {
    backend::scatter(
        checked_scatter(operand(out), operand(self), dim, operand(index), operand(src)));
  });
}

MENAGERIE_OPERATOR(scatter_value_out)(AtenTensorHandle out, AtenTensorHandle self, int64_t dim,
                                      AtenTensorHandle index, double value) {
  return kernel(__func__, [&] {
    const Tensor& from = operand(self);
    const Tensor source = broadcast(backend::one_value(from.dtype, value), operand(index).sizes());
    backend::scatter(checked_scatter(operand(out), from, dim, operand(index), source));
  });
}

MENAGERIE_OPERATOR(scatter_reduce_two_out)(AtenTensorHandle out, AtenTensorHandle self, int64_t dim,
                                           AtenTensorHandle index, AtenTensorHandle src,
                                           const char* reduce, int32_t include_self) {
  return kernel(__func__, [&] {
    Scatter scatter =
        checked_scatter(operand(out), operand(self), dim, operand(index), operand(src));
    scatter.reduction = reduction_named(reduce);
    scatter.include_self = include_self != 0;
    backend::scatter(scatter);
  });
}

namespace {

// Return the tensors to join; as in torch, an empty list is ignored whatever the others are.
std::vector<const Tensor*> joined_operands(std::span<const AtenTensorHandle> handles) {
  std::vector<const Tensor*> parts;
  for (AtenTensorHandle handle : handles) {
    const Tensor& part = operand(handle);
    if (part.dimensions != 1 || part.size[0] != 0) parts.push_back(&part);
  }
  if (parts.empty()) {
    require(!handles.empty(), "there is nothing to join");
    parts.push_back(&operand(handles[0]));
  }
  return parts;
}

}  // namespace

MENAGERIE_OPERATOR(cat)(const AtenTensorHandle* tensors, int64_t tensors_len_, int64_t dim,
                        AtenTensorHandle* ret0) {
  return kernel(__func__, [&] {
    const std::vector<const Tensor*> parts = joined_operands(list(tensors, tensors_len_));
    const Tensor& first = *parts[0];
    require(first.dimensions > 0, "a tensor without axes cannot be joined");
    const int32_t axis = checked_axis(first, dim);
    Tensor whole = first;
    whole.size[axis] = 0;
    for (const Tensor* part : parts) {
      Tensor fitting = *part;
      require(part->dimensions == first.dimensions, "the axes of ", first, " and ", *part,
              " differ in number");
      fitting.size[axis] = first.size[axis];
      require(fitting.size == first.size, first, " and ", *part, " differ along another axis than ",
              axis);
      require(part->dtype == first.dtype, first, " and ", *part, " differ in dtype");
      whole.size[axis] += part->size[axis];
    }
    const Tensor result = host::empty_beside(first, first.dtype, whole.sizes());
    Tensor place = result;
    for (const Tensor* part : parts) {
      place.size[axis] = part->size[axis];
      if (!part->empty()) backend::assign(*part, place);
      place.offset_bytes +=
          part->size[axis] * place.stride[axis] * static_cast<int64_t>(element_size(first.dtype));
    }
    *ret0 = to_handle(result);
  });
}
