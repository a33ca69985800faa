// The functions that differ between the runtime's libraries, one library per target: each links
// cpu/backend.cpp or metal/backend.cpp. Where the host is the only device, functions that refer to
// a device act on the host.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "common/tensor.h"

namespace menagerie {

// The state that a backend keeps for each context, made on first use.
class BackendState {
 public:
  BackendState() = default;
  BackendState(const BackendState&) = delete;
  BackendState& operator=(const BackendState&) = delete;
  virtual ~BackendState() = default;
};

namespace backend {

extern const char* const kTarget;  // target of the bundles that it runs: "cpu", "metal"
extern const char* const kDevice;  // AOTInductor's name for it: "cpu", "mps"
extern const int32_t kDeviceType;  // c10::DeviceType

// Return one line: the runtime's version and what computes.
std::string version();

// Peak rates of this machine per second: FLOPs of a large float32 product by the kernel library,
// and bytes read and written by a copy that fits no cache. Measuring takes a few tenths of a second
// and fails where the device's kernels cannot be timed from here.
struct Peaks {
  double flops;
  double bytes;
};
Peaks measured_peaks(int32_t threads);

std::unique_ptr<BackendState> make_state();

// Return fresh, uninitialised memory of the current context.
std::shared_ptr<Storage> allocate(int32_t device_type, size_t bytes);
// Wrap the caller's memory, which the caller keeps valid and writes only through these tensors.
std::shared_ptr<Storage> borrow(int32_t device_type, void* data, size_t bytes);
// Return mapped weights as the device sees them, once per bundle; null if the mapping serves.
std::shared_ptr<DeviceMemory> lend(std::span<const std::byte> mapping,
                                   const std::shared_ptr<const void>& owner);

// As in common/copy.h, on whichever device the tensors are and in order with the context's work.
void assign(const Tensor& source, const Tensor& target);
void fill_zero(const Tensor& target);
Tensor clone(const Tensor& source);
// Copy the first `bytes` bytes of one tensor's memory to another's.
void copy_bytes(const Tensor& source, const Tensor& target, size_t bytes);

// Return an input as the generated code expects it: contiguous and on the device. The host's values
// have been read when the call returns.
Tensor bring_in(const Tensor& input);

// Wait until the host may read or overwrite what the current context's work reads or writes; fail
// if that work has failed.
void finish();
// Wait likewise for work whose results are no longer needed; ignore failures.
void abandon() noexcept;
// Mark the end of a run, so that memory that recent runs did not use can be returned.
void end_run() noexcept;

}  // namespace backend
}  // namespace menagerie
