// Shims of the operators that the host computes (common/host_operators.h).
#include "common/host_operators.h"

#include "common/shim_support.h"

using namespace menagerie;

AOTITorchError aoti_torch_cpu_nonzero(AtenTensorHandle self, AtenTensorHandle* ret0) {
  return kernel(__func__, [&] { *ret0 = to_handle(host::nonzero(operand(self))); });
}

AOTITorchError aoti_torch_cpu_masked_select(AtenTensorHandle self, AtenTensorHandle mask,
                                            AtenTensorHandle* ret0) {
  return kernel(__func__,
                [&] { *ret0 = to_handle(host::masked_select(operand(self), operand(mask))); });
}

AOTITorchError aoti_torch_cpu_masked_scatter(AtenTensorHandle self, AtenTensorHandle mask,
                                             AtenTensorHandle source, AtenTensorHandle* ret0) {
  return kernel(__func__, [&] {
    *ret0 = to_handle(host::masked_scatter(operand(self), operand(mask), operand(source)));
  });
}

AOTITorchError aoti_torch_cpu_bucketize_Tensor(AtenTensorHandle self, AtenTensorHandle boundaries,
                                               int32_t out_int32, int32_t right,
                                               AtenTensorHandle* ret0) {
  return kernel(__func__, [&] {
    const Tensor& edges = operand(boundaries);
    require(edges.dimensions == 1, "boundaries have one axis, not ", edges);
    *ret0 = to_handle(host::search(edges, operand(self), right != 0, out_int32 != 0));
  });
}

AOTITorchError aoti_torch_cpu_searchsorted_Tensor(AtenTensorHandle sorted_sequence,
                                                  AtenTensorHandle self, int32_t out_int32,
                                                  int32_t right, const char** side,
                                                  AtenTensorHandle* sorter,
                                                  AtenTensorHandle* ret0) {
  return kernel(__func__, [&] {
    require(optional_operand(sorter) == nullptr, "a sorter is not supported");
    const bool from_right =
        host::from_right(right != 0, side == nullptr ? std::string_view() : *side);
    *ret0 = to_handle(
        host::search(operand(sorted_sequence), operand(self), from_right, out_int32 != 0));
  });
}

AOTITorchError aoti_torch_cpu_kthvalue(AtenTensorHandle self, int64_t k, int64_t dim,
                                       int32_t keepdim, AtenTensorHandle* ret0,
                                       AtenTensorHandle* ret1) {
  return kernel(__func__, [&] {
    host::Chosen chosen = host::kth_value(operand(self), k, dim, keepdim != 0);
    *ret0 = to_handle(std::move(chosen.values));
    *ret1 = to_handle(std::move(chosen.indices));
  });
}

AOTITorchError aoti_torch_cpu_median(AtenTensorHandle self, AtenTensorHandle* ret0) {
  return kernel(__func__, [&] { *ret0 = to_handle(host::median(operand(self))); });
}

AOTITorchError aoti_torch_cpu_repeat_interleave_Tensor(AtenTensorHandle repeats, int64_t*,
                                                       AtenTensorHandle* ret0) {
  return kernel(__func__, [&] { *ret0 = to_handle(host::repeat_interleave(operand(repeats))); });
}

AOTITorchError aoti_torch_cpu__cdist_forward(AtenTensorHandle x1, AtenTensorHandle x2, double p,
                                             int64_t*, AtenTensorHandle* ret0) {
  return kernel(__func__, [&] { *ret0 = to_handle(host::distances(operand(x1), operand(x2), p)); });
}
