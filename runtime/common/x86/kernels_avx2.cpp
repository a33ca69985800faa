#include "common/x86/softmax.h"
#include "common/x86/tiles.h"

namespace menagerie::x86 {
namespace {

// Sums take 12 of the 16 registers. The wide panel's six rows need no packing: they fit a set of
// the first-level cache, however far apart they lie.
constexpr PanelKernel kPanels[] = {
    {2 * Lanes8::kCount, 6, multiply<Lanes8, 2, 6>},
    {Lanes8::kCount, 12, multiply<Lanes8, 1, 12>},
};

}  // namespace

constinit const Kernels avx2_kernels{kPanels,
                                     slide<Lanes8, kMostWindows>,
                                     row_maximum<Lanes8>,
                                     row_exponentials<Lanes8>,
                                     500'000,
                                     true,
                                     100'000};

}  // namespace menagerie::x86
