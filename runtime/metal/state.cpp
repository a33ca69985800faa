#include "metal/state.h"

#include <cstring>
#include <utility>

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

Tensor State::fault(std::span<const char* const> messages) {
  if (faults_.size() == kFaults) finish();
  if (fault_words_ == nullptr) {
    fault_words_ = MetalDevice::instance().allocate(kFaults * sizeof(int32_t));
    std::memset(fault_words_->contents(), 0, fault_words_->bytes());
  }
  const size_t offset = faults_.size() * sizeof(int32_t);
  faults_.emplace_back(messages.begin(), messages.end());
  const int64_t one[] = {1};
  return make_view(Storage::on_device(fault_words_, offset, sizeof(int32_t), nullptr),
                   Dtype::kInt32, one, one, 0);
}

void State::finish() {
  try {
    stream_->synchronize();
  } catch (...) {  // a failed check may have led to it
    if (const char* message = found_fault()) fail(message);
    throw;
  }
  if (const char* message = found_fault()) fail(message);
}

// The message of the first check that failed; forgets all.
const char* State::found_fault() {
  const char* found = nullptr;
  auto* words = fault_words_ == nullptr ? nullptr : static_cast<int32_t*>(fault_words_->contents());
  for (size_t i = 0; i < faults_.size(); ++i) {
    const auto number = static_cast<size_t>(std::exchange(words[i], 0));
    if (number == 0 || found != nullptr) continue;
    found = number <= faults_[i].size() ? faults_[i][number - 1] : "a kernel's check failed";
  }
  faults_.clear();
  return found;
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
