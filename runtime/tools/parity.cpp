#include "tools/parity.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "common/element.h"

namespace menagerie::tools {
namespace {

// Sums over the elements that are finite on both sides; the others must be alike.
struct Distance {
  double max_abs = 0;
  double signal = 0;
  double noise = 0;
  bool alike = true;

  void add(double golden, double output) {
    if (!std::isfinite(golden) || !std::isfinite(output)) {
      alike = alike && (golden == output || (std::isnan(golden) && std::isnan(output)));
      return;
    }
    const double error = std::abs(golden - output);
    max_abs = std::max(max_abs, error);
    signal += golden * golden;
    noise += error * error;
  }

  double snr_db() const {
    if (noise == 0) return std::numeric_limits<double>::infinity();
    return signal == 0 ? -std::numeric_limits<double>::infinity() : 10 * std::log10(signal / noise);
  }
};

bool same_geometry(const menagerie_tensor& output, const SafeTensors::Entry& golden) {
  return output.dtype == static_cast<int32_t>(golden.dtype) &&
         std::ranges::equal(std::span(output.sizes, static_cast<size_t>(output.dimensions)),
                            golden.shape);
}

template <class T>
Distance distance(const menagerie_tensor& output, const SafeTensors::Entry& golden) {
  Distance sums;
  const auto* values = static_cast<const T*>(output.data);
  const auto* expected = reinterpret_cast<const T*>(golden.bytes.data());
  for_each_index(golden.shape, [&](std::span<const int64_t> index) {
    int64_t offset = 0;
    for (size_t axis = 0; axis < index.size(); ++axis) offset += index[axis] * output.strides[axis];
    sums.add(static_cast<double>(*expected++), static_cast<double>(values[offset]));
  });
  return sums;
}

}  // namespace

Parity compare(const menagerie_tensor& output, const SafeTensors::Entry& golden,
               const std::optional<Tolerance>& tolerance) {
  if (!same_geometry(output, golden)) return {};
  Parity parity;
  with_type(golden.dtype, [&]<class T>(T) {
    const Distance found = distance<T>(output, golden);
    parity = {found.max_abs, found.snr_db(), found.alike};
  });
  const bool near = tolerance ? parity.max_abs <= tolerance->absolute ||
                                    (tolerance->snr_db && parity.snr_db >= *tolerance->snr_db)
                              : parity.max_abs == 0;
  parity.passed = parity.passed && near;
  return parity;
}

}  // namespace menagerie::tools
