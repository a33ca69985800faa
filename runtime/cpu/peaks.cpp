// The most that this machine does, which a profile is held against.
#include <algorithm>
#include <chrono>
#include <cstring>
#include <vector>

#include "common/backend.h"
#include "common/context.h"
#include "common/platform/parallel.h"
#include "kernels/kernels.h"

namespace menagerie {
namespace {

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

}  // namespace

backend::Peaks backend::measured_peaks(int32_t threads) {
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

}  // namespace menagerie
