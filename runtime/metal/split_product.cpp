#include "metal/split_product.h"

#include <algorithm>
#include <array>

#include "metal/operands.h"

namespace menagerie::metal {
namespace {

constexpr int64_t kBlock = 512;  // as tiles.h has it: parts end where its sums do
// Fewer terms are summed before another kernel has begun.
constexpr int64_t kFewest = 2 * kBlock;

}  // namespace

Parts parts_of(const ProductExtents& p, int64_t batch) {
  const int64_t count = std::min(kEnoughGroups / tiles_of(p, batch, kSmallTile), p.k / kFewest);
  if (count < 2) return {1, p.k};
  const int64_t length = static_cast<int64_t>(quotient(p.k, count * kBlock)) * kBlock;
  return {static_cast<int64_t>(quotient(p.k, length)), length};
}

void split_product(const Tensor& out, const Tensor& a, const Tensor& b, const ProductExtents& p,
                   const Parts& parts, const ProductTerms& terms) {
  const int64_t batch = out.size[0];
  const Tensor sums =
      metal::empty_contiguous(Dtype::kFloat32, std::array{batch, parts.count, p.m, p.n});
  const std::string type = metal_name(out.dtype);
  Arguments multiplied;
  multiplied.add(sums).add(a).add(b).add(p).add(strides_of(a)).add(strides_of(b)).add(parts);
  dispatch("split_product", "multiply_parts_" + type, multiplied,
           grid_of_tiles(p, batch * parts.count, kSmallTile));
  Arguments added;
  added.add(out).add(sums).add(addend_or(terms, a));
  added.add(p).add(strides_of_addend(terms)).add(parts);
  add_finish(added, terms.finishing, region_of(a));
  dispatch("split_product", "add_parts_" + type, added, threads_for(out));
}

}  // namespace menagerie::metal
