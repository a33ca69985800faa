#include "tools/parity.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "common/element.h"

namespace menagerie::tools {
namespace {

// The same rule as zoo/spec.py's Tolerance, where the reasons stand.
constexpr double kSmallestScale = 1e-3;
constexpr double kOutlierFactor = 10;

// What the elements that are finite on both sides differ by; the others must be alike.
struct Distance {
  double scale = 0;  // the largest finite golden value
  double max_abs = 0;
  double signal = 0;  // sums of squares, relative to scale and max_abs: none can overflow
  double noise = 0;
  bool alike = true;
  bool same_bits = true;

  double snr_db() const {
    if (max_abs == 0) return std::numeric_limits<double>::infinity();
    if (scale == 0 || std::isinf(max_abs)) return -std::numeric_limits<double>::infinity();
    return 20 * (std::log10(scale) - std::log10(max_abs)) + 10 * std::log10(signal / noise);
  }

  bool within(const Tolerance& tolerance) const {
    if (max_abs <= tolerance.absolute * std::clamp(scale, kSmallestScale, 1.0)) return true;
    return tolerance.snr_db && snr_db() >= *tolerance.snr_db &&
           max_abs <= kOutlierFactor * tolerance.absolute * scale;
  }
};

bool same_geometry(const menagerie_tensor& output, const SafeTensors::Entry& golden) {
  return output.dtype == static_cast<int32_t>(golden.dtype) &&
         std::ranges::equal(std::span(output.sizes, static_cast<size_t>(output.dimensions)),
                            golden.shape);
}

// Calls body(golden, output) for every pair of elements.
template <class T, class Body>
void for_each_pair(const menagerie_tensor& output, const SafeTensors::Entry& golden, Body&& body) {
  const auto* values = static_cast<const T*>(output.data);
  const auto* expected = reinterpret_cast<const T*>(golden.bytes.data());
  for_each_index(golden.shape, [&](std::span<const int64_t> index) {
    int64_t offset = 0;
    for (size_t axis = 0; axis < index.size(); ++axis) offset += index[axis] * output.strides[axis];
    body(*expected++, values[offset]);
  });
}

template <class T>
Distance distance(const menagerie_tensor& output, const SafeTensors::Entry& golden) {
  Distance found;
  for_each_pair<T>(output, golden, [&](const T& expected, const T& value) {
    found.same_bits = found.same_bits && std::memcmp(&expected, &value, sizeof(T)) == 0;
    const auto left = static_cast<double>(expected), right = static_cast<double>(value);
    if (std::isfinite(left) && std::isfinite(right)) {
      found.scale = std::max(found.scale, std::abs(left));
      found.max_abs = std::max(found.max_abs, std::abs(left - right));
    } else {
      found.alike = found.alike && (left == right || (std::isnan(left) && std::isnan(right)));
    }
  });
  if (found.max_abs == 0) return found;
  for_each_pair<T>(output, golden, [&](const T& expected, const T& value) {
    const auto left = static_cast<double>(expected), right = static_cast<double>(value);
    if (!std::isfinite(left) || !std::isfinite(right)) return;
    const double signal = found.scale > 0 ? left / found.scale : 0;
    const double noise = (left - right) / found.max_abs;
    found.signal += signal * signal;
    found.noise += noise * noise;
  });
  return found;
}

}  // namespace

Parity compare(const menagerie_tensor& output, const SafeTensors::Entry& golden,
               const std::optional<Tolerance>& tolerance) {
  if (!same_geometry(output, golden)) return {};
  Parity parity;
  with_type(golden.dtype, [&]<class T>(T) {
    const Distance found = distance<T>(output, golden);
    const bool near = tolerance && found.alike && found.within(*tolerance);
    parity = {found.max_abs, found.snr_db(), found.same_bits || near};
  });
  return parity;
}

}  // namespace menagerie::tools
