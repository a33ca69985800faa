// What is rounded to eight bits when it is known, and products in which both sides are: by the
// arithmetic of common/quantised.h, in double.
#include <cmath>
#include <limits>
#include <numeric>
#include <random>

#include "check.h"
#include "common/context.h"
#include "kernels/kernels.h"

using namespace menagerie;

namespace {

using Floats = std::vector<float>;
using Bytes = std::vector<uint8_t>;

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();

struct Rounded {
  Rounding how;
  Bytes integers;
};

Rounded rounded(const Floats& slice, const Rounding* fixed = nullptr) {
  Bytes integers(slice.size(), 77);
  const auto made =
      round_slices(slice.data(), 1, static_cast<int64_t>(slice.size()), fixed, integers.data());
  return {made.at(0), integers};
}

Tensor tensor_of(const Floats& values, const std::vector<int64_t>& sizes) {
  Tensor made = empty_contiguous(Dtype::kFloat32, sizes);
  std::copy(values.begin(), values.end(), made.data<float>());
  return made;
}

// A constant of small integers, each row times its own scale, and no rounding in any float of it.
struct Weight {
  std::vector<int8_t> integers;
  Floats floats;
  Tensor tensor;

  Weight(const std::vector<int64_t>& sizes, int64_t columns) {
    const int64_t rows =
        std::accumulate(sizes.begin(), sizes.end(), int64_t{1}, std::multiplies<>()) / columns;
    auto known = std::make_shared<NarrowRows>();
    for (int64_t row = 0; row < rows; ++row) {
      const float scale = std::ldexp(1.0F, static_cast<int>(row % 5) - 3);
      int64_t sum = 0;
      for (int64_t column = 0; column < columns; ++column) {
        const auto value = static_cast<int8_t>((row * 31 + column * 57) % 255 - 127);
        integers.push_back(value);
        floats.push_back(static_cast<float>(value) * scale);
        sum += value;
      }
      known->row_scales.push_back(scale);
      known->sums.push_back(static_cast<float>(sum) * scale);
    }
    const int64_t shape[] = {rows, columns};
    const int64_t strides[] = {columns, 1};
    known->columns = columns;
    known->values = make_view(Storage::borrow(integers.data(), integers.size()), Dtype::kInt8,
                              shape, strides, 0);
    const Extents dense = contiguous_strides(sizes);
    const auto floats_of_all = [this] {
      return Storage::constant(floats.data(), floats.size() * sizeof(float), nullptr);
    };
    tensor = make_view(Storage::behind(known, floats.size() * sizeof(float), false, floats_of_all),
                       Dtype::kFloat32, sizes, {dense.data(), sizes.size()}, 0);
  }
};

// The definition, in double: what a number of a slice is after it was rounded.
std::vector<double> rounded_by_definition(const Floats& slice) {
  float lowest = 0, highest = 0;
  for (const float x : slice) {
    lowest = std::min(lowest, x);
    highest = std::max(highest, x);
  }
  const double scale = (double{highest} - double{lowest}) / 255;
  const double zero = std::floor(-lowest / scale + 0.5);
  std::vector<double> made;
  for (const float x : slice) {
    made.push_back((std::clamp(std::floor(x / scale + zero + 0.5), 0.0, 255.0) - zero) * scale);
  }
  return made;
}

// Normal numbers that stay off the middle between two integers.
Floats normal(size_t count, unsigned seed) {
  std::mt19937 generator(seed);
  std::normal_distribution<float> values(0.3F, 1);
  Floats made(count);
  for (float& x : made) x = values(generator);
  return made;
}

}  // namespace

TEST("a slice is rounded so that its ends and zero are whole numbers") {
  const Rounded all = rounded({0, 1, 2.4F, 2.5F, 254.6F, 255});
  CHECK(all.how.scale == 1 && all.how.zero == 0);
  CHECK(all.integers == Bytes({0, 1, 2, 3, 255, 255}));
  const Rounded both = rounded({-55, 0, 0.4F, -0.6F, 200});
  CHECK(both.how.scale == 1 && both.how.zero == 55);
  CHECK(both.integers == Bytes({0, 55, 55, 54, 255}));
}

TEST("of a slice on one side of zero, zero is the other end") {
  const Rounded above = rounded({510, 510, 510});
  CHECK(above.how.scale == 2 && above.how.zero == 0);
  CHECK(above.integers == Bytes({255, 255, 255}));
  const Rounded below = rounded({-510, -2});
  CHECK(below.how.scale == 2 && below.how.zero == 255);
  CHECK(below.integers == Bytes({0, 254}));
}

TEST("zeros, and numbers too small for a scale, are zero") {
  for (const float tiny : {0.0F, -0.0F, 1e-40F, -1e-36F}) {
    const Rounded none = rounded(Floats(9, tiny));
    CHECK(none.how.scale == 0);
    CHECK(none.integers == Bytes(9, 0));
    CHECK(none.how.back(0) == 0);
  }
}

TEST("the largest floats have a scale, too") {
  const float most = std::numeric_limits<float>::max();
  const Rounded wide = rounded({-most, 0, most});
  CHECK(std::isfinite(wide.how.scale));
  for (const size_t i : {0U, 1U, 2U}) {
    const double wanted = (static_cast<double>(i) - 1) * most;
    CHECK(std::abs(wide.how.back(wide.integers[i]) - wanted) <= 0.51 * wide.how.scale);
  }
}

TEST("one number that is not finite, wherever it is, makes a slice NaN") {
  for (const float odd : {kNaN, kInfinity, -kInfinity}) {
    for (const size_t place : {0U, 7U, 8U, 16U, 18U, 40000U, 69999U}) {
      Floats slice(place < 19 ? 19 : 70000, 1.5F);
      slice[place] = odd;
      const Rounded made = rounded(slice);
      CHECK(std::isnan(made.how.scale) && std::isnan(made.how.back(made.integers[0])));
      CHECK(made.integers == Bytes(slice.size(), 0));
    }
  }
}

TEST("slices of any length are each rounded by themselves, on any number of threads") {
  for (const int32_t threads : {1, 3}) {
    Context context(threads);
    const Context::Loan loan(context);
    for (const int64_t length : {1, 7, 8, 9, 31, 32768, 32769, 100001}) {
      const Floats values = normal(static_cast<size_t>(3 * length), 5);
      Bytes integers(values.size());
      const auto made = round_slices(values.data(), 3, length, nullptr, integers.data());
      bool equal = true;
      for (int64_t slice = 0; slice < 3; ++slice) {
        const auto begin = values.begin() + slice * length;
        const auto wanted = rounded_by_definition(Floats(begin, begin + length));
        for (int64_t i = 0; i < length; ++i) {
          const double found = made[slice].back(integers[slice * length + i]);
          // A number in the middle of two integers may fall to either.
          equal = equal && std::abs(found - wanted[i]) <= made[slice].scale * 1.001;
          equal = equal && std::abs(found - begin[i]) <= made[slice].scale * 0.502;
        }
      }
      CHECK(equal);
    }
  }
  CHECK(round_slices(nullptr, 0, 5, nullptr, nullptr).empty());
  CHECK(round_slices(nullptr, 2, 0, nullptr, nullptr).size() == 2);
}

TEST("by a range that was measured before, numbers are cut at its ends") {
  const Rounding fixed = rounding_of(-1, 4.1F);  // steps of 0.02, zero is 50
  CHECK(fixed.zero == 50);
  const Rounded made = rounded({-7, -1, 0, 0.02F, 4.1F, 1e30F}, &fixed);
  CHECK(made.how.scale == fixed.scale && made.how.zero == 50);
  CHECK((made.integers == Bytes{0, 0, 50, 51, 255, 255}));
}

TEST("a range of zero rounds all to zero") {
  const Rounding fixed = rounding_of(0, 0);
  CHECK(rounded({-7, 0, 1e30F}, &fixed).integers == Bytes(3, 0));
}

TEST("of slices with a fixed range only those with odd numbers are lost, however long") {
  const Rounding fixed = rounding_of(-3, 3);
  for (const float odd : {kNaN, kInfinity, -kInfinity}) {
    for (const int64_t length : {5, 40000}) {
      Floats values(static_cast<size_t>(3 * length), 1.5F);
      values[static_cast<size_t>(2 * length - 1)] = odd;
      Bytes integers(values.size());
      const auto made = round_slices(values.data(), 3, length, &fixed, integers.data());
      CHECK(made[0].scale == fixed.scale && made[2].scale == fixed.scale);
      CHECK(std::isnan(made[1].scale));
    }
  }
}

TEST("a dense view of whole rows has integers behind it, and no other") {
  const Weight weight({6, 4}, 4);
  const auto view = [&](std::vector<int64_t> sizes, std::vector<int64_t> strides, int64_t from) {
    return integers_behind(make_view(weight.tensor.storage, Dtype::kFloat32, sizes, strides, from));
  };
  const auto some = view({2, 2, 2}, {4, 2, 1}, 8);
  CHECK(some.has_value());
  CHECK(some->values.data<int8_t>()[0] == weight.integers[8] && some->values.size[2] == 2);
  CHECK(some->scales[1] * 127 == weight.floats[12] / weight.integers[12] * 127);
  CHECK(view({6, 4}, {4, 1}, 0).has_value());
  CHECK(!view({4, 6}, {1, 4}, 0).has_value());   // transposed
  CHECK(!view({6, 2}, {4, 1}, 0).has_value());   // parts of rows
  CHECK(!view({12, 2}, {2, 1}, 0).has_value());  // halves of rows
  CHECK(!view({2, 4}, {4, 1}, 2).has_value());   // across rows
  CHECK(!view({24}, {1}, 0).has_value());
  CHECK(!view({0, 4}, {4, 1}, 0).has_value());
  CHECK(!integers_behind(tensor_of(Floats(24), {6, 4})).has_value());
}

TEST("rows of half bytes are readable behind a weight, but do not round the other operand") {
  auto known = std::make_shared<NarrowRows>();
  known->columns = 4;
  const auto storage = Storage::behind(known, 4 * 6 * sizeof(float), false, [] { return nullptr; });
  const int64_t sizes[] = {3, 2, 2};
  const int64_t strides[] = {4, 2, 1};
  const Tensor weight = make_view(storage, Dtype::kFloat32, sizes, strides, 8);
  CHECK(rows_behind(weight).value().first == 2 && rows_behind(weight).value().all == known.get());
  CHECK(!integers_behind(weight).has_value());
}

TEST("the floats that integers stand for are made once, and only when they are asked for") {
  int made = 0;
  const std::vector<float> floats{1, 2, 3};
  const auto storage = Storage::behind(std::make_shared<NarrowRows>(), 12, false, [&] {
    ++made;
    return Storage::constant(floats.data(), 12, nullptr);
  });
  const int64_t size[] = {2};
  const int64_t stride[] = {1};
  const Tensor view = make_view(storage, Dtype::kFloat32, size, stride, 1);
  CHECK(storage->is_constant() && storage->is_owned() && !storage->is_on_device());
  CHECK(storage->narrow() != nullptr && storage->bytes() == 12 && made == 0);
  CHECK(view.data<float>()[1] == 3 && storage->device() == nullptr && made == 1);
}

TEST("floats that could not be made are asked for again") {
  bool fails = true;
  const std::vector<float> floats{1};
  const auto storage = Storage::behind(std::make_shared<NarrowRows>(), 4, false, [&] {
    require(!fails, "no memory");
    return Storage::constant(floats.data(), 4, nullptr);
  });
  REFUSES("no memory", storage->data());
  fails = false;
  CHECK(storage->data() == floats.data());
}

TEST("a rounded product is that of the rounded rows, with what follows it") {
  Context context(1);
  const Context::Loan loan(context);
  const int64_t m = 5, n = 7, k = 33;
  const Weight weight({n, k}, k);
  Floats left = normal(static_cast<size_t>(m * k), 3);
  std::fill(left.begin() + k, left.begin() + 2 * k, 0.0F);
  std::fill(left.begin() + 2 * k, left.begin() + 3 * k, -1.5F);
  left[3 * k + 2] = kNaN;
  const Tensor a = tensor_of(left, {m, k});
  const Tensor bias = tensor_of({1, 2, 3, 4, 5, 6, 7}, {n});
  Tensor b = weight.tensor;
  std::swap(b.size[0], b.size[1]);
  std::swap(b.stride[0], b.stride[1]);
  const Tensor out = empty_contiguous(Dtype::kFloat32, std::vector<int64_t>{m, n});
  kernels::rounded_product({a, b, &bias}, *integers_behind(weight.tensor), out);
  for (int64_t i = 0; i < m; ++i) {
    const auto row =
        rounded_by_definition(Floats(left.begin() + i * k, left.begin() + (i + 1) * k));
    for (int64_t j = 0; j < n; ++j) {
      double sum = bias.data<float>()[j];
      for (int64_t x = 0; i != 1 && x < k; ++x) sum += row[x] * weight.floats[j * k + x];
      const float found = out.data<float>()[i * n + j];
      CHECK(i == 3 ? std::isnan(found) : std::abs(found - sum) < 1e-4 * (1 + std::abs(sum)));
    }
  }
}

TEST("a rounded convolution rounds each image by itself, its padding being zero") {
  Context context(1);
  const Context::Loan loan(context);
  const int64_t channels = 3, side = 4, outputs = 2, taps = 9;
  const Weight weight({outputs, channels, 3, 3}, channels * taps);
  Floats images = normal(static_cast<size_t>(2 * channels * side * side), 6);
  for (size_t i = images.size() / 2; i < images.size(); ++i) images[i] *= 1000;
  const Tensor input = tensor_of(images, {2, channels, side, side});
  const Tensor out =
      empty_contiguous(Dtype::kFloat32, std::vector<int64_t>{2, outputs, side, side});
  ConvolutionParameters parameters;
  parameters.padding = {1, 1, 0};
  kernels::rounded_convolution(input, weight.tensor, *integers_behind(weight.tensor), nullptr,
                               parameters, {}, out);
  const int64_t image = channels * side * side;
  for (int64_t n = 0; n < 2; ++n) {
    const auto values =
        rounded_by_definition(Floats(images.begin() + n * image, images.begin() + (n + 1) * image));
    for (int64_t at = 0; at < outputs * side * side; ++at) {
      const int64_t o = at / (side * side), y = at / side % side, x = at % side;
      double sum = 0;
      for (int64_t tap = 0; tap < channels * taps; ++tap) {
        const int64_t from_y = y + tap / 3 % 3 - 1, from_x = x + tap % 3 - 1;
        if (from_y < 0 || from_y >= side || from_x < 0 || from_x >= side) continue;
        sum += values[tap / taps * side * side + from_y * side + from_x] *
               weight.floats[o * channels * taps + tap];
      }
      const float found = out.data<float>()[n * outputs * side * side + at];
      CHECK(std::abs(found - sum) < 1e-5 * (n == 0 ? 1 : 1000) * (1 + 200 * taps));
    }
  }
}
