#include "kernels/simd/kernels.h"

#include <limits>

#include "common/context.h"
#include "kernels/processor.h"
#include "kernels/simd/functions.h"
#include "kernels/simd/tiles.h"

namespace menagerie::simd {

const Kernels& kernels() {
  static const bool wide = kernels::has_avx512();
  return wide ? avx512_kernels : avx2_kernels;
}

const IntegerKernel* integer_kernel() {
  static const bool can = kernels::has_avx512_vnni();
  return can ? &vnni_kernel : nullptr;
}

const PairKernels* pair_kernels() {
  static const bool can = kernels::has_avx512_bf16();
  return can ? &bf16_kernels : nullptr;
}

void multiply_rows(const PanelKernel& kernel, ProductTile tile, const Finish& finish) {
  const float* input = tile.input;
  float* output = tile.output;
  each_tile(tile.rows, kernel.most_rows, [&](int64_t first, int64_t rows) {
    tile.input = input + first * tile.input_row;
    tile.output = output + first * tile.output_row;
    tile.rows = rows;
    kernel.multiply(tile, finish);
  });
}

bool finish_of(const kernels::Epilogue& epilogue, Finish& finish) {
  using kernels::Activation;
  switch (epilogue.activation) {
    case Activation::kNone:
      return true;
    case Activation::kRelu:
      finish.clamps = true;
      finish.highest = std::numeric_limits<float>::infinity();
      return true;
    case Activation::kClamp:
      finish.clamps = true;
      finish.lowest = epilogue.alpha;
      finish.highest = epilogue.beta;
      return true;
    case Activation::kSwish:
    case Activation::kSigmoid:
    case Activation::kHardSwish:
    case Activation::kHardSigmoid:
    case Activation::kGeluErf:
      finish.activation = epilogue.activation;
      return true;
    case Activation::kGeluTanh:
    case Activation::kTanh:
      return false;
  }
  return false;
}

bool is_exponential(const Finish& finish) {
  using kernels::Activation;
  return finish.activation == Activation::kSwish || finish.activation == Activation::kSigmoid;
}

bool is_faster_gelu(const Finish& finish) {
  return kernels().faster_gelu && finish.activation == kernels::Activation::kGeluErf;
}

void note_own_kernel() {
  if (Profile* profile = Context::current().profile()) profile->add_work("(own kernel)", 0, 0);
}

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

}  // namespace menagerie::simd
