#include "common/quantised.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#ifdef __F16C__
#include <immintrin.h>
#endif

#include "common/copy.h"
#include "common/platform/threads.h"

namespace menagerie {
namespace {

constexpr int64_t kPiece = 1 << 15;  // this many numbers are worth a task of their own
constexpr float kSteps = 255;
constexpr uint32_t kExponent = 0x7F800000;  // all of its bits are set only in NaN and infinities
constexpr float kLeastScale = 1e-36F;       // its inverse is still finite

struct ValueRange {
  float lowest = 0, highest = 0;
  bool finite = true;

  void include(const ValueRange& other) {
    lowest = std::min(lowest, other.lowest);
    highest = std::max(highest, other.highest);
    finite = finite && other.finite;
  }
};

constexpr int64_t kLanes = 8;
using Lanes = float __attribute__((vector_size(kLanes * sizeof(float))));

struct RangeOfLanes {
  Lanes low{}, high{}, odd{};

  void add(const float* from) {
    Lanes x;
    std::memcpy(&x, from, sizeof x);
    low = x < low ? x : low;
    high = x > high ? x : high;
    odd += x * 0.0F;  // NaN from the first non-finite value on
  }
};

ValueRange range_of(const float* from, int64_t count) {
  constexpr int64_t kAtOnce = 4;  // chains of sums that are independent of each other
  RangeOfLanes parts[kAtOnce];
  int64_t i = 0;
  for (; i + kAtOnce * kLanes <= count; i += kAtOnce * kLanes) {
    for (int64_t part = 0; part < kAtOnce; ++part) parts[part].add(from + i + part * kLanes);
  }
  for (; i + kLanes <= count; i += kLanes) parts[0].add(from + i);
  float rest[kLanes]{};
  std::copy(from + i, from + count, rest);
  parts[0].add(rest);
  ValueRange range;
  for (const RangeOfLanes& part : parts) {
    for (int64_t lane = 0; lane < kLanes; ++lane) {
      range.include({part.low[lane], part.high[lane], part.odd[lane] == 0});
    }
  }
  return range;
}

constexpr Rounding kNotFinite{std::numeric_limits<float>::quiet_NaN(), 0};

Rounding rounding_of(const ValueRange& range) {
  return range.finite ? menagerie::rounding_of(range.lowest, range.highest) : kNotFinite;
}

// Round with clamping; return false if a number is not finite.
bool round_clamped(const float* from, int64_t count, const Rounding& rounding, uint8_t* to) {
  const float inverse = rounding.scale > 0 ? 1 / rounding.scale : 0;
  const float offset = static_cast<float>(rounding.zero) + 0.5F;
  uint32_t odd = 0;  // an integer: a sum of floats would keep the loop from being vectorised
  for (int64_t i = 0; i < count; ++i) {
    odd |= static_cast<uint32_t>((std::bit_cast<uint32_t>(from[i]) & kExponent) == kExponent);
    const float place = std::max(0.0F, std::min(from[i] * inverse + offset, kSteps));
    to[i] = static_cast<uint8_t>(static_cast<int32_t>(place));
  }
  return odd == 0;
}

void round_all(const float* from, int64_t count, const Rounding& rounding, uint8_t* to) {
  if (!(rounding.scale > 0)) {
    std::fill(to, to + count, uint8_t{0});
    return;
  }
  const float inverse = 1 / rounding.scale;
  const float offset = static_cast<float>(rounding.zero) + 0.5F;
  for (int64_t i = 0; i < count; ++i) {
    // No value is as low as -1, so that truncation serves as rounding down.
    const auto whole = static_cast<int32_t>(from[i] * inverse + offset);
    to[i] = static_cast<uint8_t>(std::min<int32_t>(whole, static_cast<int32_t>(kSteps)));
  }
}

int64_t pieces_of(int64_t length) { return (length + kPiece - 1) / kPiece; }

// Call work(piece, slice, first number, count) for pieces of slices, on several threads.
template <class Work>
void for_each_piece(int64_t slices, int64_t length, const Work& work) {
  const int64_t pieces = pieces_of(length);
  const int64_t chunk = std::max<int64_t>(kPiece / std::max<int64_t>(length, 1), 1);
  threads::for_each(slices * pieces, chunk, [&](int64_t piece) {
    const int64_t begin = piece % pieces * kPiece;
    work(piece, piece / pieces, piece / pieces * length + begin, std::min(kPiece, length - begin));
  });
}

}  // namespace

std::optional<PackedRows> rows_behind(const Tensor& weight) {
  const NarrowRows* rows = weight.storage->narrow();
  if (rows == nullptr || weight.dtype != Dtype::kFloat32 || weight.dimensions < 2 ||
      weight.empty() || !weight.is_contiguous()) {
    return std::nullopt;
  }
  const int64_t columns = rows->columns;
  const int64_t first = weight.offset_bytes / element_size(weight.dtype);
  if (weight.elements() / weight.size[0] != columns || first % columns != 0) return std::nullopt;
  return PackedRows{rows, first / columns};
}

std::optional<IntegerWeight> integers_behind(const Tensor& weight) {
  const std::optional<PackedRows> rows = rows_behind(weight);
  if (!rows.has_value() || rows->all->row_scales.empty()) return std::nullopt;
  Tensor values = weight;
  values.storage = rows->all->values.storage;
  values.dtype = Dtype::kInt8;
  values.offset_bytes = rows->all->values.offset_bytes + rows->first * rows->all->columns;
  return IntegerWeight{values, rows->all->row_scales.data() + rows->first,
                       rows->all->sums.data() + rows->first,
                       rows->all->operand.has_value() ? &*rows->all->operand : nullptr};
}

Rounding rounding_of(float lowest, float highest) {
  const float scale = highest / kSteps - lowest / kSteps;
  if (scale < kLeastScale) return {};
  return {scale, static_cast<int32_t>(-lowest / scale + 0.5F)};
}

std::vector<Rounding> round_slices(const float* from, int64_t slices, int64_t length,
                                   const Rounding* fixed, uint8_t* to) {
  std::vector<Rounding> made(static_cast<size_t>(slices));
  if (slices == 0 || length == 0) return made;
  const int64_t pieces = pieces_of(length);
  std::vector<ValueRange> ranges(static_cast<size_t>(slices * pieces));
  const auto each_piece = [&](const auto& work) { for_each_piece(slices, length, work); };
  if (fixed != nullptr) {
    each_piece([&](int64_t piece, int64_t, int64_t begin, int64_t count) {
      ranges[static_cast<size_t>(piece)].finite =
          round_clamped(from + begin, count, *fixed, to + begin);
    });
    for (size_t piece = 0; piece < ranges.size(); ++piece) {
      Rounding& slice = made[piece / static_cast<size_t>(pieces)];
      if (piece % static_cast<size_t>(pieces) == 0) slice = *fixed;
      if (!ranges[piece].finite) slice = kNotFinite;
    }
    return made;
  }
  if (pieces == 1) {
    each_piece([&](int64_t, int64_t slice, int64_t begin, int64_t count) {
      made[slice] = rounding_of(range_of(from + begin, count));
      round_all(from + begin, count, made[slice], to + begin);
    });
    return made;
  }
  each_piece([&](int64_t piece, int64_t, int64_t begin, int64_t count) {
    ranges[static_cast<size_t>(piece)] = range_of(from + begin, count);
  });
  for (int64_t slice = 0; slice < slices; ++slice) {
    ValueRange whole;
    for (int64_t piece = 0; piece < pieces; ++piece) whole.include(ranges[slice * pieces + piece]);
    made[slice] = rounding_of(whole);
  }
  each_piece([&](int64_t, int64_t slice, int64_t begin, int64_t count) {
    round_all(from + begin, count, made[slice], to + begin);
  });
  return made;
}

Tensor rounded_and_back(const Tensor& tensor, const Rounding* fixed) {
  const int64_t slices = tensor.size[0];
  const int64_t length = slices == 0 ? 0 : tensor.elements() / slices;
  Tensor values = clone(tensor);
  const bool one_by_one = slices <= 1 || values.stride[0] == length;
  if (!one_by_one) values = contiguous(tensor);
  const Tensor rounded = empty_contiguous(Dtype::kUInt8, values.sizes());
  auto* integers = rounded.data<uint8_t>();
  auto* floats = values.data<float>();
  const std::vector<Rounding> how = round_slices(floats, slices, length, fixed, integers);
  for_each_piece(slices, length, [&](int64_t, int64_t slice, int64_t begin, int64_t count) {
    const Rounding rounding = how[static_cast<size_t>(slice)];
    for (int64_t i = begin; i < begin + count; ++i) floats[i] = rounding.back(integers[i]);
  });
  return values;
}

namespace {

constexpr size_t kUnpackedAxes = 8;
constexpr int64_t kMaxElements = int64_t{1} << 40;
constexpr int kZero = 8;  // added to a number of four bits when it is stored

// Widen numbers of four bits, two to a byte, the first in its lower half.
void widen_pairs(const uint8_t* bytes, int64_t column, int64_t count, float scale, float* to) {
  const auto number = [scale](unsigned half) {
    return static_cast<float>(static_cast<int>(half) - kZero) * scale;
  };
  if (column % 2 == 1 && count > 0) {
    *to++ = number(bytes[column++ / 2] >> 4);
    --count;
  }
  const uint8_t* from = bytes + column / 2;
  for (int64_t i = 0; i < count / 2; ++i) {
    to[2 * i] = number(from[i] & 0xFU);
    to[2 * i + 1] = number(from[i] >> 4);
  }
  if (count % 2 == 1) to[count - 1] = number(from[count / 2] & 0xFU);
}

int64_t checked_product(std::span<const int64_t> sizes, const std::string& name) {
  int64_t product = 1;
  for (const int64_t size : sizes) {
    require(size > 0, name, ": a quantised weight has an axis of size ", size);
    require(size <= kMaxElements / product, name, ": shape overflows");
    product *= size;
  }
  return product;
}

}  // namespace

void widen(const NarrowRows& rows, int64_t row, int64_t column, int64_t count, float* to) {
  const auto copied = [&](const auto* from) {
    for (int64_t i = 0; i < count; ++i) to[i] = static_cast<float>(from[i]);
  };
  const int64_t begin = row * rows.columns + column;
  if (rows.values.dtype == Dtype::kFloat16) {
    const Float16* from = rows.values.data<Float16>() + begin;
#ifdef __F16C__
    for (; count >= kLanes; count -= kLanes, from += kLanes, to += kLanes) {
      const __m128i halves = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from));
      _mm256_storeu_ps(to, _mm256_cvtph_ps(halves));
    }
#endif
    return copied(from);
  }
  if (rows.values.dtype == Dtype::kBFloat16) return copied(rows.values.data<BFloat16>() + begin);
  const int64_t groups = rows.scales.size[1], group = rows.columns / groups;
  const auto* scales = rows.scales.data<BFloat16>() + row * groups;
  const uint8_t* bytes = rows.values.data<uint8_t>() + row * rows.values.size[1];
  for (const int64_t end = column + count; column < end;) {
    const int64_t here = std::min(end, (column / group + 1) * group) - column;
    const float scale = scales[column / group];
    if (rows.values.dtype == Dtype::kInt8) {
      const auto* from = reinterpret_cast<const int8_t*>(bytes) + column;
      for (int64_t i = 0; i < here; ++i) to[i] = static_cast<float>(from[i]) * scale;
    } else {
      widen_pairs(bytes, column, here, scale, to);
    }
    column += here;
    to += here;
  }
}

void widen(const NarrowRows& rows, std::span<float> to) {
  for (int64_t row = 0; row < rows.values.size[0]; ++row) {
    widen(rows, row, 0, rows.columns, to.data() + row * rows.columns);
  }
}

QuantisedWeight::QuantisedWeight(const SafeTensors& file, const std::string& name)
    : packed_(file.tensor(name).dtype == Dtype::kUInt8) {
  const SafeTensors::Entry& stored = file.tensor(name);
  require(may_be(stored.dtype), name, ": is stored as ", info(stored.dtype).name,
          ", which is not a quantised weight");
  shape_ = packed_ ? unpacked_shape(file, name) : stored.shape;
  require(shape_.size() > 1, name, ": a quantised weight has two axes or more");
  rows_ = shape_[0];
  columns_ = checked_product(shape_, name) / rows_;
  values_ = stored.bytes;
  require(!packed_ || stored.shape == std::vector<int64_t>{rows_, bytes_in_row()}, name,
          ": is not packed as its shape asks for");
  const SafeTensors::Entry& scales = file.tensor(name + ".scales");
  require(scales.dtype == Dtype::kBFloat16, name, ": its scales are not bfloat16");
  by_row_ = scales.shape.size() == 1 && !packed_;
  require((by_row_ || scales.shape.size() == 2) && scales.shape[0] == rows_, name,
          ": its scales do not divide its rows");
  const int64_t groups = by_row_ ? 1 : scales.shape[1];
  require(groups > 0 && columns_ % groups == 0, name, ": its scales do not divide its rows");
  group_ = columns_ / groups;
  scales_ = scales.bytes;
  operand_ = rounding_beside(file, name);
}

std::optional<Rounding> QuantisedWeight::rounding_beside(const SafeTensors& file,
                                                         const std::string& name) const {
  const std::string range = name + ".operand";
  if (!file.tensors().contains(range)) return std::nullopt;
  const SafeTensors::Entry& found = file.tensor(range);
  require(by_row_ && found.dtype == Dtype::kFloat32 && found.shape == std::vector<int64_t>{2}, name,
          ": the range of its operand must be two float32, with a scale for each row");
  float ends[2];
  std::memcpy(ends, found.bytes.data(), sizeof ends);
  require(ends[0] <= 0 && ends[1] >= 0 && std::isfinite(ends[0]) && std::isfinite(ends[1]), name,
          ": its operand's range, from ", ends[0], " to ", ends[1],
          ", is infinite or does not hold zero");
  return rounding_of(ends[0], ends[1]);
}

std::vector<int64_t> QuantisedWeight::unpacked_shape(const SafeTensors& file,
                                                     const std::string& name) const {
  const SafeTensors::Entry& shape = file.tensor(name + ".shape");
  require(shape.dtype == Dtype::kInt64 && shape.shape.size() == 1, name,
          ": its shape must be a list of int64");
  require(shape.shape[0] <= static_cast<int64_t>(kUnpackedAxes), name, ": has more than ",
          kUnpackedAxes, " axes");
  std::vector<int64_t> sizes(static_cast<size_t>(shape.shape[0]));
  std::memcpy(sizes.data(), shape.bytes.data(), shape.bytes.size());
  return sizes;
}

std::shared_ptr<const NarrowRows> QuantisedWeight::integers(const View& view) const {
  auto made = std::make_shared<NarrowRows>();
  const auto matrix = [&](std::span<const std::byte> bytes, Dtype dtype, int64_t columns) {
    const int64_t sizes[] = {rows_, columns};
    const int64_t strides[] = {columns, 1};
    return make_view(view(bytes), dtype, sizes, strides, 0);
  };
  made->values = matrix(values_, packed_ ? Dtype::kUInt8 : Dtype::kInt8, bytes_in_row());
  made->scales = matrix(scales_, Dtype::kBFloat16, columns_ / group_);
  made->columns = columns_;
  if (!by_row_) return made;
  made->operand = operand_;
  for (int64_t row = 0; row < rows_; ++row) {
    made->row_scales.push_back(made->scales.data<BFloat16>()[row]);
    int64_t sum = 0;
    for (int64_t column = 0; column < columns_; ++column) {
      sum += static_cast<int8_t>(values_[static_cast<size_t>(row * columns_ + column)]);
    }
    made->sums.push_back(static_cast<float>(sum) * made->row_scales.back());
  }
  return made;
}

}  // namespace menagerie
