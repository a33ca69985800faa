// The backend whose only device is the host.
#include "common/backend.h"

#include <cstring>

#include "common/context.h"
#include "common/copy.h"
#include "common/error.h"
#include "kernels/kernels.h"

namespace menagerie::backend {
namespace {

void check_device(int32_t device_type) {
  require(device_type == kCpuDevice, "device type ", device_type, " is not the CPU");
}

}  // namespace

const char* const kTarget = "cpu";
const char* const kDevice = "cpu";
const int32_t kDeviceType = kCpuDevice;
const bool kReadsIntegers = false;

std::string version() {
  return std::string("menagerie-cpu " MENAGERIE_VERSION ", ") + kernels::library_version();
}

std::unique_ptr<BackendState> make_state() { return std::make_unique<BackendState>(); }

std::shared_ptr<Storage> allocate(int32_t device_type, size_t bytes) {
  check_device(device_type);
  return Storage::allocate(Context::current().arena(), bytes);
}

std::shared_ptr<Storage> borrow(int32_t device_type, void* data, size_t bytes) {
  check_device(device_type);
  return Storage::borrow(data, bytes);
}

std::shared_ptr<DeviceMemory> lend(std::span<const std::byte>, const std::shared_ptr<const void>&) {
  return nullptr;
}

void assign(const Tensor& source, const Tensor& target) { menagerie::assign(source, target); }

void fill_zero(const Tensor& target) { menagerie::fill_zero(target); }

Tensor clone(const Tensor& source) { return menagerie::clone(source); }

void copy_bytes(const Tensor& source, const Tensor& target, size_t bytes) {
  if (bytes > 0) std::memcpy(target.raw(), source.raw(), bytes);
}

Tensor bring_in(const Tensor& input) { return input.is_contiguous() ? input : contiguous(input); }

void finish() {}

void abandon() noexcept {}

void end_run() noexcept {}

}  // namespace menagerie::backend
