#include "common/quantised.h"

#include <cmath>
#include <cstring>

namespace menagerie {
namespace {

constexpr size_t kMaxAxes = 8;
constexpr int64_t kMaxElements = int64_t{1} << 40;
constexpr int kZero = 8;  // what a number of four bits is stored with added

// A bfloat16 is the upper half of a float.
float scale_at(std::span<const std::byte> scales, int64_t index) {
  uint16_t half = 0;
  std::memcpy(&half, scales.data() + index * 2, sizeof half);
  const uint32_t bits = static_cast<uint32_t>(half) << 16;
  float value = 0;
  std::memcpy(&value, &bits, sizeof value);
  return value;
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

QuantisedWeight::QuantisedWeight(const SafeTensors& file, const std::string& name)
    : packed_(file.tensor(name).dtype == Dtype::kUInt8) {
  const SafeTensors::Entry& stored = file.tensor(name);
  require(may_be(stored.dtype), name, ": is stored as ", info(stored.dtype).name,
          ", which is no quantised weight");
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
          ": the range of its operand is no two float32 beside a scale for each row");
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
          ": its shape is no list of int64");
  require(shape.shape[0] <= static_cast<int64_t>(kMaxAxes), name, ": has more than ", kMaxAxes,
          " axes");
  std::vector<int64_t> sizes(static_cast<size_t>(shape.shape[0]));
  std::memcpy(sizes.data(), shape.bytes.data(), shape.bytes.size());
  return sizes;
}

float QuantisedWeight::value(int64_t row, int64_t column) const {
  const std::byte byte =
      values_[static_cast<size_t>(row * bytes_in_row() + (packed_ ? column / 2 : column))];
  if (!packed_) return static_cast<float>(static_cast<int8_t>(byte));
  const auto both = static_cast<unsigned>(byte);
  const unsigned half = column % 2 == 0 ? both & 0xFU : both >> 4;
  return static_cast<float>(static_cast<int>(half) - kZero);
}

void QuantisedWeight::widen(std::span<float> out) const {
  size_t index = 0;
  for (int64_t row = 0; row < rows_; ++row) {
    for (int64_t first = 0; first < columns_; first += group_) {
      const float scale = scale_at(scales_, row * (columns_ / group_) + first / group_);
      for (int64_t column = first; column < first + group_; ++column) {
        out[index++] = value(row, column) * scale;
      }
    }
  }
}

std::shared_ptr<const IntegerRows> QuantisedWeight::integers(const View& view) const {
  auto made = std::make_shared<IntegerRows>();
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
    made->row_scales.push_back(scale_at(scales_, row));
    int64_t sum = 0;
    for (int64_t column = 0; column < columns_; ++column) {
      sum += static_cast<int8_t>(values_[static_cast<size_t>(row * columns_ + column)]);
    }
    made->sums.push_back(static_cast<float>(sum) * made->row_scales.back());
  }
  return made;
}

}  // namespace menagerie
