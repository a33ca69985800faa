// The backend whose only device is the host.
#include "common/backend.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <vector>

#include "common/context.h"
#include "common/copy.h"
#include "common/error.h"
#include "common/platform/threads.h"
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

namespace {

constexpr int64_t kSide = 1024;
constexpr size_t kBytes = size_t{128} << 20;
constexpr size_t kPiece = size_t{1} << 20;
constexpr int kTimes = 8;

// Return the fewest seconds of several calls, after one that is not counted.
template <class Body>
double fastest(Body&& body) {
  using Clock = std::chrono::steady_clock;
  body();
  double least = 1e9;
  for (int time = 0; time < kTimes; ++time) {
    const auto began = Clock::now();
    body();
    least = std::min(least, std::chrono::duration<double>(Clock::now() - began).count());
  }
  return least;
}

}  // namespace

Peaks measured_peaks(int32_t threads) {
  Context context(threads);
  const Context::Loan loan(context);
  const int64_t sizes[] = {kSide, kSide};
  const Tensor a = empty_contiguous(Dtype::kFloat32, sizes);
  const Tensor b = empty_contiguous(Dtype::kFloat32, sizes);
  const Tensor c = empty_contiguous(Dtype::kFloat32, sizes);
  for (const Tensor* each : {&a, &b}) {
    std::ranges::fill_n(static_cast<float*>(each->raw()), kSide * kSide, 0.5F);
  }
  const double product = fastest([&] { kernels::matrix_product({a, b}, c); });
  std::vector<char> from(kBytes, 1), to(kBytes);
  const double copy = fastest([&] {
    threads::share_out(kBytes / kPiece, 1, [&](threads::Tasks& tasks) {
      for (size_t piece = 0, end = 0; tasks.take(piece, end);) {
        std::memcpy(&to[piece * kPiece], &from[piece * kPiece], (end - piece) * kPiece);
      }
    });
  });
  return {2.0 * kSide * kSide * kSide / product, 2.0 * kBytes / copy};
}

}  // namespace menagerie::backend
