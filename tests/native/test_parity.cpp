// The native tool's rule of when an output equals its golden: the numbers are in the rule.
#include <array>
#include <cmath>
#include <cstring>
#include <limits>

#include "check.h"
#include "tools/parity.h"

using namespace menagerie;

namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
using Four = std::array<float, 4>;

tools::Parity compared(const Four& golden, const Four& output,
                       const std::optional<Tolerance>& tolerance, int64_t stride = 1) {
  std::array<float, 16> spread{};
  for (size_t i = 0; i < 4; ++i) spread[i * static_cast<size_t>(stride)] = output[i];
  menagerie_tensor tensor{};
  tensor.data = spread.data();
  tensor.dtype = static_cast<int32_t>(Dtype::kFloat32);
  tensor.dimensions = 1;
  tensor.sizes[0] = 4;
  tensor.strides[0] = stride;
  const SafeTensors::Entry entry{Dtype::kFloat32, {4}, std::as_bytes(std::span(golden))};
  return tools::compare(tensor, entry, tolerance);
}

Tolerance tolerance(double absolute, std::optional<double> snr_db = std::nullopt) {
  return {Dtype::kFloat32, absolute, snr_db};
}

}  // namespace

TEST("equal bits pass without a tolerance, other bits do not") {
  CHECK(compared({1, 2, 3, kNan}, {1, 2, 3, kNan}, std::nullopt).passed);
  CHECK(!compared({0, 1, 2, 3}, {-0.0F, 1, 2, 3}, std::nullopt).passed);
  CHECK(compared({1, 2, 3, 4}, {1, 2, 3, 4}, std::nullopt, 3).passed);
}

TEST("the largest difference is bounded, relative to goldens below one") {
  CHECK(compared({1, 2, 3, 4}, {1, 2, 3, 4.5F}, tolerance(0.5)).passed);
  CHECK(!compared({1, 2, 3, 4}, {1, 2, 3, 4.5F}, tolerance(0.49)).passed);
  CHECK(!compared({0.1F, 0, 0, 0}, {0.1F, 0, 0, 0.02F}, tolerance(0.1)).passed);
  CHECK(compared({0.1F, 0, 0, 0}, {0.1F, 0, 0, 0.009F}, tolerance(0.1)).passed);
}

TEST("a high ratio of signal to noise forgives outliers up to ten times the bound") {
  const Four golden{100, 100, 100, 100};
  const double snr = compared(golden, {100, 100, 100, 101}, tolerance(0)).snr_db;
  CHECK(std::abs(snr - 10 * std::log10(40'000.0)) < 1e-9);
  CHECK(compared(golden, {100, 100, 100, 101}, tolerance(0.001, 46)).passed);
  CHECK(!compared(golden, {100, 100, 100, 101}, tolerance(0.001, 47)).passed);
  CHECK(!compared(golden, {100, 100, 100, 101}, tolerance(0.0009, 46)).passed);
}

TEST("what is not finite must be alike") {
  const Four golden{1, kInf, -kInf, kNan};
  CHECK(compared(golden, {1, kInf, -kInf, kNan}, tolerance(1)).passed);
  CHECK(!compared(golden, {1, kInf, kInf, kNan}, tolerance(1)).passed);
  CHECK(!compared(golden, {1, 3e38F, -kInf, kNan}, tolerance(1)).passed);
  CHECK(!compared(golden, {kNan, kInf, -kInf, kNan}, tolerance(1)).passed);
}

TEST("another shape never passes") {
  menagerie_tensor tensor{};
  tensor.dtype = static_cast<int32_t>(Dtype::kFloat32);
  CHECK(!tools::compare(tensor, {Dtype::kFloat32, {4}, {}}, tolerance(1)).passed);
}
