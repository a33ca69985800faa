// Views, strides and copies. Expected strides are those of torch.empty_like and clone.
#include <array>
#include <numeric>

#include "check.h"
#include "common/copy.h"
#include "common/dtype.h"
#include "common/tensor.h"

using namespace menagerie;

namespace {

using Numbers = std::vector<int64_t>;

Tensor counted(const Numbers& sizes) {
  Tensor tensor = empty_contiguous(Dtype::kInt32, sizes);
  std::iota(tensor.data<int32_t>(), tensor.data<int32_t>() + tensor.elements(), 0);
  return tensor;
}

Tensor view(const Tensor& of, const Numbers& sizes, const Numbers& strides, int64_t offset) {
  return make_view(of.storage, of.dtype, sizes, strides, offset);
}

Numbers first(const Extents& extents, size_t count) {
  return {extents.begin(), extents.begin() + static_cast<std::ptrdiff_t>(count)};
}

}  // namespace

TEST("a view that ends with its storage is made, one element more is refused") {
  const Tensor base = counted({12});
  CHECK(view(base, {3, 4}, {4, 1}, 0).is_contiguous());
  CHECK(view(base, {2, 2}, {6, 2}, 3).data<int32_t>()[8] == 11);
  REFUSES("ends at byte 52 of a storage of 48", view(base, {2, 2}, {6, 2}, 4));
  CHECK(view(base, {0, 1000}, {1, 1}, 0).empty());
}

TEST("numbers that overflow or are negative are refused") {
  const Tensor base = counted({4});
  constexpr int64_t kHuge = int64_t{1} << 62;
  REFUSES("overflow", view(base, {kHuge, kHuge}, {1, 1}, 0));
  REFUSES("overflow", view(base, {kHuge, 4}, {0, 0}, 0));
  REFUSES("overflow", view(base, {2}, {kHuge}, 0));
  REFUSES("overflow", view(base, {1}, {1}, kHuge));
  REFUSES("is negative", view(base, {-1}, {1}, 0));
  REFUSES("is negative", view(base, {2}, {-1}, 1));
  REFUSES("is negative", view(base, {1}, {1}, -1));
  REFUSES("axes exceed", view(base, Numbers(17, 1), Numbers(17, 1), 0));
}

TEST("what counts as contiguous") {
  const Tensor base = counted({24});
  CHECK(view(base, {1, 4}, {99, 1}, 0).is_contiguous());
  CHECK(view(base, {2, 0, 3}, {7, 7, 7}, 0).is_contiguous());
  CHECK(!view(base, {2, 3}, {1, 2}, 0).is_contiguous());
  CHECK(!view(base, {2, 3}, {4, 1}, 0).is_contiguous());
}

TEST("strides of fresh tensors follow those of others as torch has them") {
  const Numbers sizes{2, 3, 4, 5};
  CHECK(first(contiguous_strides(sizes), 4) == Numbers({60, 20, 5, 1}));
  CHECK(first(channels_last_strides(sizes), 4) == Numbers({60, 1, 15, 3}));
  CHECK(first(contiguous_strides(Numbers{2, 0, 3}), 3) == Numbers({3, 3, 1}));
  CHECK(first(dense_strides_like(sizes, Numbers{120, 2, 30, 6}), 4) == Numbers({60, 1, 15, 3}));
  CHECK(first(dense_strides_like(Numbers{3, 4}, Numbers{0, 1}), 2) == Numbers({4, 1}));
}

TEST("channels-last is suggested by strides alone") {
  const Tensor base = counted({240});
  CHECK(suggests_channels_last(view(base, {2, 3, 4, 5}, {60, 1, 15, 3}, 0)));
  CHECK(!suggests_channels_last(view(base, {2, 3, 4, 5}, {60, 20, 5, 1}, 0)));
  CHECK(!suggests_channels_last(view(base, {2, 3, 4, 5}, {60, 0, 15, 3}, 0)));
  CHECK(!suggests_channels_last(view(base, {3, 4, 5}, {1, 15, 3}, 0)));
}

TEST("copies follow the strides of both sides") {
  const Tensor base = counted({12});
  const Tensor turned = view(base, {4, 3}, {1, 4}, 0);
  const Tensor dense = contiguous(turned);
  for (int32_t i = 0; i < 12; ++i) CHECK(dense.data<int32_t>()[i] == i % 3 * 4 + i / 3);
  const Tensor target = counted({5, 7});
  copy(turned, view(target, {4, 3}, {7, 2}, 1));
  CHECK(target.data<int32_t>()[1 + 3 * 7 + 2 * 2] == 11);
  CHECK(target.data<int32_t>()[0] == 0);
  CHECK(target.data<int32_t>()[34] == 34);
}

TEST("copies that overlap are refused, and shapes that do not broadcast") {
  const Tensor base = counted({12});
  REFUSES("overlap", copy(view(base, {4}, {1}, 0), view(base, {4}, {1}, 2)));
  REFUSES("cannot take", broadcast(base, Numbers{5, 3}));
  const Tensor wide = broadcast(view(base, {3, 1}, {1, 1}, 0), Numbers{2, 3, 4});
  CHECK(first(wide.stride, 3) == Numbers({0, 1, 0}));
}

TEST("assigning converts: bfloat16 rounds to nearest even, half overflows to infinity") {
  const Tensor from = empty_contiguous(Dtype::kFloat32, Numbers{4});
  const std::array<float, 4> values{1.0F + 0x1p-8F, 1.0F + 0x3p-8F, 70000.0F, -0.0F};
  std::ranges::copy(values, from.data<float>());
  const Tensor brief = empty_contiguous(Dtype::kBFloat16, Numbers{4});
  assign(from, brief);
  CHECK(static_cast<float>(brief.data<BFloat16>()[0]) == 1.0F);
  CHECK(static_cast<float>(brief.data<BFloat16>()[1]) == 1.0F + 0x4p-8F);
  const Tensor half = empty_contiguous(Dtype::kFloat16, Numbers{4});
  assign(from, half);
  CHECK(std::isinf(static_cast<float>(half.data<Float16>()[2])));
  CHECK(std::signbit(static_cast<float>(half.data<Float16>()[3])));
}
