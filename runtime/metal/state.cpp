#include "metal/state.h"

#include "common/context.h"
#include "common/error.h"

namespace menagerie::metal {

State::State()
    : pool_(std::make_shared<BufferPool>()), stream_(MetalDevice::instance().make_stream()) {}

State& State::current() { return static_cast<State&>(Context::current().backend_state()); }

void* State::allocate_raw(size_t bytes) {
  std::shared_ptr<Buffer> buffer = MetalDevice::instance().allocate(bytes);
  void* address = buffer->contents();
  raw_.emplace(address, std::move(buffer));
  return address;
}

void State::free_raw(void* address) {
  require(raw_.erase(address) == 1, "the pointer is none of aoti_torch_mps_malloc");
}

std::shared_ptr<Buffer> State::raw(const void* address) const {
  const auto found = raw_.find(address);
  return found == raw_.end() ? nullptr : found->second;
}

Region region_of(const Tensor& tensor) {
  require(on_device(tensor), tensor, " is not on the device");
  return {std::static_pointer_cast<Buffer>(tensor.storage->device()),
          tensor.storage->device_offset() + static_cast<size_t>(tensor.offset_bytes),
          static_cast<size_t>(bytes_of(tensor.dtype, tensor.sizes(), tensor.strides()))};
}

Tensor empty_strided(Dtype dtype, std::span<const int64_t> sizes,
                     std::span<const int64_t> strides) {
  const auto bytes = static_cast<size_t>(bytes_of(dtype, sizes, strides));
  return make_view(State::current().pool().allocate(bytes), dtype, sizes, strides, 0);
}

Tensor empty_contiguous(Dtype dtype, std::span<const int64_t> sizes) {
  const Extents strides = contiguous_strides(sizes);
  return metal::empty_strided(dtype, sizes, {strides.data(), sizes.size()});
}

}  // namespace menagerie::metal
