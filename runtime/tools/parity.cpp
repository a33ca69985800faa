#include "tools/parity.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <numeric>
#include <vector>

#include "common/dtype.h"

namespace menagerie::tools {
namespace {

// The same rule as zoo/spec.py's Tolerance, which gives the reasons.
constexpr double kSmallestScale = 1e-3;
constexpr double kOutlierFactor = 10;
// The rule of menagerie/validation/compare.py, which defines a part.
constexpr int64_t kFewest = 16;
constexpr double kPartSlack = 30;

// The distance of the elements that are finite on both sides; the others must be alike.
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
    return ratio_db() + 10 * std::log10(signal / noise);
  }

  double ratio_db() const { return 20 * (std::log10(scale) - std::log10(max_abs)); }

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

// Call body(golden, output, index) for every pair of elements.
template <class T, class Body>
void for_each_pair(const menagerie_tensor& output, const SafeTensors::Entry& golden, Body&& body) {
  const auto* values = static_cast<const T*>(output.data);
  const auto* expected = reinterpret_cast<const T*>(golden.bytes.data());
  for_each_index(golden.shape, [&](std::span<const int64_t> index) {
    int64_t offset = 0;
    for (size_t axis = 0; axis < index.size(); ++axis) offset += index[axis] * output.strides[axis];
    body(*expected++, values[offset], index);
  });
}

// Call body(signal, noise, index) for the squares of every pair that is finite, each relative to
// its largest.
template <class T, class Body>
void for_each_powers(const menagerie_tensor& output, const SafeTensors::Entry& golden,
                     const Distance& found, Body&& body) {
  for_each_pair<T>(output, golden, [&](const T& expected, const T& value, auto index) {
    const auto left = static_cast<double>(expected), right = static_cast<double>(value);
    if (!std::isfinite(left) || !std::isfinite(right)) return;
    const double signal = found.scale > 0 ? left / found.scale : 0;
    const double noise = (left - right) / found.max_abs;
    body(signal * signal, noise * noise, index);
  });
}

template <class T>
Distance distance(const menagerie_tensor& output, const SafeTensors::Entry& golden) {
  Distance found;
  for_each_pair<T>(output, golden, [&](const T& expected, const T& value, auto) {
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
  for_each_powers<T>(output, golden, found, [&](double signal, double noise, auto) {
    found.signal += signal;
    found.noise += noise;
  });
  return found;
}

// Return the SNR of a whole output that demands as much as its worst part along an axis reaches.
double worst_part(std::span<const double> signal, std::span<const double> noise, double mean,
                  int64_t each, double ratio_db) {
  double worst = std::numeric_limits<double>::infinity();
  const auto size = static_cast<int64_t>(signal.size());
  const int64_t width = (kFewest + each - 1) / each, parts = size / width;
  if (parts < 2) return worst;
  for (int64_t part = 0; part < parts; ++part) {
    const int64_t first = part * width, last = part + 1 < parts ? first + width : size;
    const auto sum = [&](std::span<const double> of) {
      return std::accumulate(of.begin() + first, of.begin() + last, 0.0);
    };
    const double wrong = sum(noise);
    if (wrong == 0) continue;
    const double fair = mean * static_cast<double>((last - first) * each);
    const double snr = ratio_db + 10 * std::log10(sum(signal) / wrong);
    const double level = ratio_db + 10 * std::log10(fair / wrong);
    worst = std::min(worst, std::max(snr + kPartSlack, level - kPartSlack));
  }
  return worst;
}

// Return whether no part of the output is so far off that only an average hides it.
template <class T>
bool parts_within(const menagerie_tensor& output, const SafeTensors::Entry& golden,
                  const Distance& found, const Tolerance& tolerance) {
  if (!tolerance.snr_db || found.max_abs == 0 || found.scale == 0) return true;
  std::vector<std::vector<double>> signal, noise;
  for (const int64_t size : golden.shape) {
    signal.emplace_back(static_cast<size_t>(size), 0.0);
    noise.emplace_back(static_cast<size_t>(size), 0.0);
  }
  for_each_powers<T>(output, golden, found, [&](double own, double wrong, auto index) {
    for (size_t axis = 0; axis < index.size(); ++axis) {
      signal[axis][static_cast<size_t>(index[axis])] += own;
      noise[axis][static_cast<size_t>(index[axis])] += wrong;
    }
  });
  const int64_t elements =
      std::accumulate(golden.shape.begin(), golden.shape.end(), int64_t{1}, std::multiplies<>());
  const double mean = found.signal / static_cast<double>(elements);
  for (size_t axis = 0; axis < signal.size(); ++axis) {
    const double worst = worst_part(signal[axis], noise[axis], mean, elements / golden.shape[axis],
                                    found.ratio_db());
    if (worst < *tolerance.snr_db) return false;
  }
  return true;
}

}  // namespace

Parity compare(const menagerie_tensor& output, const SafeTensors::Entry& golden,
               const std::optional<Tolerance>& tolerance) {
  if (!same_geometry(output, golden)) return {};
  Parity parity;
  with_type(golden.dtype, [&]<class T>(T) {
    const Distance found = distance<T>(output, golden);
    const bool near = tolerance && found.alike && found.within(*tolerance) &&
                      parts_within<T>(output, golden, found, *tolerance);
    parity = {found.max_abs, found.snr_db(), found.same_bits || near};
  });
  return parity;
}

}  // namespace menagerie::tools
