// Reading and writing elements by lists of positions, and scattering along an axis: checking
// arguments.
#include <vector>

#include "common/copy.h"
#include "common/operators.h"
#include "common/shim_support.h"

using namespace menagerie;

AOTITorchError aoti_torch_device_index_Tensor(AtenTensorHandle self,
                                              const AtenTensorHandle** indices,
                                              int64_t indices_len_, AtenTensorHandle* ret0) {
  return kernel(__func__, [&] {
    const Tensor& from = operand(self);
    *ret0 = to_handle(backend::read_at(from, indices_of(from, indices, indices_len_)));
  });
}

AOTITorchError aoti_torch_device_index_put(AtenTensorHandle self, const AtenTensorHandle** indices,
                                           int64_t indices_len_, AtenTensorHandle values,
                                           int32_t accumulate, AtenTensorHandle* ret0) {
  return kernel(__func__, [&] {
    const Tensor& into = operand(self);
    const Indices chosen = indices_of(into, indices, indices_len_);
    const Tensor from = chosen.values_for(into, operand(values));
    *ret0 = to_handle(backend::put_at(into, chosen, from, accumulate != 0));
  });
}

AOTITorchError aoti_torch_index_put_out(AtenTensorHandle out, AtenTensorHandle self,
                                        const AtenTensorHandle* indices, const uint32_t num_indices,
                                        const AtenTensorHandle values, bool accumulate) {
  return kernel(__func__, [&] {
    const Tensor& into = operand(self);
    std::vector<const AtenTensorHandle*> handles;
    for (const AtenTensorHandle& index : list(indices, num_indices)) handles.push_back(&index);
    const Indices chosen = indices_of(into, handles.data(), num_indices);
    const Tensor from = chosen.values_for(into, operand(values));
    const Tensor& target = operand(out);
    require(target.dtype == into.dtype, "the result ", target, " has not the dtype of ", into);
    backend::assign(backend::put_at(into, chosen, from, accumulate), target);
  });
}

AOTITorchError aoti_torch_device_scatter_src_out(AtenTensorHandle out, AtenTensorHandle self,
                                                 int64_t dim, AtenTensorHandle index,
                                                 AtenTensorHandle src) {
  return kernel(__func__, [&] {
    backend::scatter(
        checked_scatter(operand(out), operand(self), dim, operand(index), operand(src)));
  });
}

AOTITorchError aoti_torch_device_scatter_value_out(AtenTensorHandle out, AtenTensorHandle self,
                                                   int64_t dim, AtenTensorHandle index,
                                                   double value) {
  return kernel(__func__, [&] {
    const Tensor& from = operand(self);
    const Tensor source = broadcast(backend::one_value(from.dtype, value), operand(index).sizes());
    backend::scatter(checked_scatter(operand(out), from, dim, operand(index), source));
  });
}

AOTITorchError aoti_torch_device_scatter_reduce_two_out(AtenTensorHandle out, AtenTensorHandle self,
                                                        int64_t dim, AtenTensorHandle index,
                                                        AtenTensorHandle src, const char* reduce,
                                                        int32_t include_self) {
  return kernel(__func__, [&] {
    Scatter scatter =
        checked_scatter(operand(out), operand(self), dim, operand(index), operand(src));
    scatter.reduction = reduction_named(reduce);
    scatter.include_self = include_self != 0;
    backend::scatter(scatter);
  });
}
