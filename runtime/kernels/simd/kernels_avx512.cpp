// Compiled for x86-64-v4: nothing here may be called on a lesser processor.
#include <limits>

#include "kernels/simd/functions.h"
#include "kernels/simd/tiles.h"

namespace menagerie::simd {
namespace {

// Sums take 28 of the 32 registers. Few columns go to a shorter vector, not to half of a long one.
constexpr PanelKernel kPanels[] = {
    {2 * Lanes16::kCount, 14, multiply<Lanes16, 2, 14>, multiply<Lanes16, 2, 14, true>},
    {Lanes16::kCount, 14, multiply<Lanes16, 1, 14>, multiply<Lanes16, 1, 14, true>},
    {Lanes8::kCount, 14, multiply<Lanes8, 1, 14>, multiply<Lanes8, 1, 14, true>},
};
// Rows are packed once for all panels, as many as the first takes.
static_assert(kPanels[0].most_rows == kPanels[1].most_rows &&
              kPanels[0].most_rows == kPanels[2].most_rows);

}  // namespace

constinit const Kernels avx512_kernels{kPanels,
                                       slide<Lanes16, kMostWindows>,
                                       row_maximum<Lanes16>,
                                       row_exponentials<Lanes16>,
                                       1'500'000,
                                       false,
                                       std::numeric_limits<int64_t>::max()};

}  // namespace menagerie::simd
