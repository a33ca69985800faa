#include "common/x86/softmax.h"
#include "common/x86/tiles.h"

namespace menagerie::x86 {
namespace {

// Sums take 12 of the 16 registers.
constexpr PanelKernel kPanels[] = {
    {2 * Lanes8::kCount, 6, multiply<Lanes8, 2, 6>, multiply<Lanes8, 2, 6, true>},
    {Lanes8::kCount, 12, multiply<Lanes8, 1, 12>, multiply<Lanes8, 1, 12, true>},
};
// Rows are packed once for all panels, as many as the first takes.
static_assert(kPanels[0].most_rows <= kPanels[1].most_rows);

}  // namespace

constinit const Kernels avx2_kernels{kPanels, slide<Lanes8, kMostWindows>, row_maximum<Lanes8>,
                                     row_exponentials<Lanes8>, true};

}  // namespace menagerie::x86
