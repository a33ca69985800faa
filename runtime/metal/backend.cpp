// The backend whose device is the GPU: tensors of device type 13 lie in its buffers, all others in
// the host's memory.
#include "common/backend.h"

#include <cstring>

#include "common/context.h"
#include "common/copy.h"
#include "common/error.h"
#include "metal/operands.h"
#include "metal/state.h"

namespace menagerie::backend {
namespace {

using metal::on_device;
using metal::State;

// Whether the device holds tensors of this type, or the host; fails for others.
bool is_for_device(int32_t device_type) {
  require(device_type == metal::kMetalDevice || device_type == kCpuDevice, "device type ",
          device_type, " is neither Metal nor the CPU");
  return device_type == metal::kMetalDevice;
}

}  // namespace

const char* const kTarget = "metal";
const char* const kDevice = "mps";
const int32_t kDeviceType = metal::kMetalDevice;

Peaks measured_peaks(int32_t) {
  fail("a GPU's peaks are not measured: a profile is of the CPU alone");
}

std::string version() {
  return std::string("menagerie-metal " MENAGERIE_VERSION ", ") +
         metal::MetalDevice::instance().name();
}

std::unique_ptr<BackendState> make_state() { return std::make_unique<State>(); }

std::shared_ptr<Storage> allocate(int32_t device_type, size_t bytes) {
  if (is_for_device(device_type)) return State::current().pool().allocate(bytes);
  return Storage::allocate(Context::current().arena(), bytes);
}

std::shared_ptr<Storage> borrow(int32_t device_type, void* data, size_t bytes) {
  if (!is_for_device(device_type)) return Storage::borrow(data, bytes);
  if (std::shared_ptr<metal::Buffer> own = State::current().raw(data)) {
    require(bytes <= own->bytes(), bytes, " bytes pass the end of ", own->bytes());
    return Storage::on_device(std::move(own), 0, bytes, nullptr);
  }
  auto memory = metal::MetalDevice::instance().wrap(data, bytes, nullptr);
  return Storage::on_device(std::move(memory), 0, bytes, nullptr);
}

std::shared_ptr<DeviceMemory> lend(std::span<const std::byte> mapping,
                                   const std::shared_ptr<const void>& owner) {
  return metal::MetalDevice::instance().wrap(mapping.data(), mapping.size(), owner);
}

void assign(const Tensor& source, const Tensor& target) {
  if (on_device(source) && on_device(target)) {
    return metal::copy(broadcast(source, target.sizes()), target);
  }
  if (on_device(source) || on_device(target)) finish();
  menagerie::assign(source, target);
}

void fill_zero(const Tensor& target) {
  if (target.empty()) return;
  if (on_device(target) && is_dense(target)) {
    const auto bytes = static_cast<size_t>(target.elements() * element_size(target.dtype));
    return metal::clear_bytes(metal::region_of(target), bytes);
  }
  if (on_device(target)) finish();
  menagerie::fill_zero(target);
}

Tensor clone(const Tensor& source) {
  if (!on_device(source)) return menagerie::clone(source);
  const Extents strides = strides_like(source);
  Tensor fresh =
      metal::empty_strided(source.dtype, source.sizes(), {strides.data(), source.sizes().size()});
  metal::copy(source, fresh);
  return fresh;
}

void copy_bytes(const Tensor& source, const Tensor& target, size_t bytes) {
  if (bytes == 0) return;
  if (on_device(source) && on_device(target)) {
    return metal::copy_bytes(metal::region_of(source), metal::region_of(target), bytes);
  }
  if (on_device(source) || on_device(target)) finish();
  std::memcpy(target.raw(), source.raw(), bytes);
}

// Nothing that a run has encoded is pending when the next one begins, so the host may write.
Tensor bring_in(const Tensor& input) {
  Tensor fresh = metal::empty_contiguous(input.dtype, input.sizes());
  menagerie::copy(input, fresh);
  return fresh;
}

void finish() { State::current().finish(); }

void abandon() noexcept {
  try {
    State::current().forget_constants();
    finish();
  } catch (...) {  // the run has failed for another reason already
  }
}

void end_run() noexcept { State::current().end_run(); }

}  // namespace menagerie::backend
