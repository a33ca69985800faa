#include "metal/tiles.h"

#include "metal/operands.h"

namespace menagerie::metal {
namespace {

constexpr uint64_t kThreads = 128;  // of a group
// A large tile reads its operands less often, a small one leaves less of itself empty.
constexpr int64_t kLarge = 64, kSmall = kSmallTile;

int64_t tile_of(const ProductExtents& p, int64_t batch) {
  if (p.m <= kSmall || p.n <= kSmall) return kSmall;
  return tiles_of(p, batch, kLarge) < kEnoughGroups ? kSmall : kLarge;
}

}  // namespace

MatrixStrides strides_of(const Tensor& matrices) {
  const auto along = [&](int axis) { return matrices.size[axis] == 1 ? 0 : matrices.stride[axis]; };
  return {along(0), along(1), along(2)};
}

int64_t tiles_of(const ProductExtents& p, int64_t batch, int64_t tile) {
  return static_cast<int64_t>(quotient(p.m, tile) * quotient(p.n, tile)) * batch;
}

Grid grid_of_tiles(const ProductExtents& p, int64_t batch, int64_t tile) {
  return {{quotient(p.n, tile) * kThreads, quotient(p.m, tile), static_cast<uint64_t>(batch)},
          {kThreads, 1, 1}};
}

void dispatch_tiles(const std::string& file, const std::string& function,
                    const Arguments& arguments, const ProductExtents& p, int64_t batch,
                    Dtype dtype) {
  const int64_t tile = tile_of(p, batch);
  dispatch(file, function + "_" + metal_name(dtype) + "_" + std::to_string(tile), arguments,
           grid_of_tiles(p, batch, tile));
}

}  // namespace menagerie::metal
