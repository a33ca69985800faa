// menagerie_machine_peaks: the most that this machine does, which a profile is held against.
#include <algorithm>
#include <chrono>
#include <cstring>
#include <vector>

#include "common/context.h"
#include "common/error.h"
#include "common/kernels.h"
#include "common/platform/parallel.h"
#include "menagerie.h"

namespace menagerie {
namespace {

struct Peaks {
  double flops;  // a second, of a large product in float32 by the kernel library
  double bytes;  // a second, read and written, of a copy that no cache holds
};

constexpr int64_t kSide = 1024;
constexpr size_t kBytes = size_t{128} << 20;
constexpr size_t kPiece = size_t{1} << 20;
constexpr int kTimes = 8;

// The least seconds of several calls, after one that is not counted.
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

}  // namespace
}  // namespace menagerie

menagerie_status menagerie_machine_peaks(int32_t threads, double* flops, double* bytes) {
  using namespace menagerie;
  const int32_t failed = guarded("", [&] {
    require(flops != nullptr && bytes != nullptr, "flops or bytes is null");
    const Peaks peaks = measured_peaks(threads);
    *flops = peaks.flops;
    *bytes = peaks.bytes;
  });
  return failed == 0 ? MENAGERIE_OK : MENAGERIE_ERROR;
}
