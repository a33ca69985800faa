// Joining tensors along an axis: checking operands, and copying each to its place.
#include <vector>

#include "common/axes.h"
#include "common/host_operators.h"
#include "common/operators.h"
#include "common/shim_support.h"

using namespace menagerie;

namespace {

// Those that are joined; an empty list counts for nothing whatever the others are, as in torch.
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

AOTITorchError aoti_torch_device_cat(const AtenTensorHandle* tensors, int64_t tensors_len_,
                                     int64_t dim, AtenTensorHandle* ret0) {
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
