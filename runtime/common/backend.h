// What differs between the runtime's libraries, one for each target: cpu/backend.cpp or
// metal/backend.cpp is linked behind this. Where a function speaks of a device and there is none
// but the host, it does what the host does.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "common/tensor.h"

namespace menagerie {

// What a backend keeps for each context, made when it is first asked for.
class BackendState {
 public:
  BackendState() = default;
  BackendState(const BackendState&) = delete;
  BackendState& operator=(const BackendState&) = delete;
  virtual ~BackendState() = default;
};

namespace backend {

extern const char* const kTarget;  // of the bundles that it runs: "cpu", "metal"
extern const char* const kDevice;  // as AOTInductor calls it: "cpu", "mps"
extern const int32_t kDeviceType;  // c10::DeviceType

// One line: the runtime's version and what computes.
std::string version();

// The most that this machine does a second: FLOPs of a large product in float32 by the kernel
// library, and bytes read and written by a copy that no cache holds. Takes some tenths of a second;
// fails where the device's kernels cannot be timed from here.
struct Peaks {
  double flops;
  double bytes;
};
Peaks measured_peaks(int32_t threads);

std::unique_ptr<BackendState> make_state();

// Fresh memory of the current context, uninitialised.
std::shared_ptr<Storage> allocate(int32_t device_type, size_t bytes);
// Memory of the caller, who keeps it valid and lets only the tensors made of it write it.
std::shared_ptr<Storage> borrow(int32_t device_type, void* data, size_t bytes);
// Mapped weights as the device sees them, made once a bundle; null where that is just the mapping.
std::shared_ptr<DeviceMemory> lend(std::span<const std::byte> mapping,
                                   const std::shared_ptr<const void>& owner);

// As in common/copy.h, on whichever device the tensors are and in the order of the context's work.
void assign(const Tensor& source, const Tensor& target);
void fill_zero(const Tensor& target);
Tensor clone(const Tensor& source);
// The first bytes of one tensor's memory to another's.
void copy_bytes(const Tensor& source, const Tensor& target, size_t bytes);

// An input as the generated code wants it: on the device, contiguous. The host's values have been
// read when the call returns.
Tensor bring_in(const Tensor& input);

// Returns once the host may read, or overwrite, what the current context's work writes or reads;
// fails if that work has failed.
void finish();
// The same for work whose results are not wanted any more; failures are forgotten.
void abandon() noexcept;
// Tells that a run has ended, so that memory can be returned which recent runs did not use.
void end_run() noexcept;

}  // namespace backend
}  // namespace menagerie
