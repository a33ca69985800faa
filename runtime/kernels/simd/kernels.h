// The innermost loops of products, convolutions and attention for x86-64, compiled for AVX2 and for
// AVX-512 from one source; the actual processor decides which are called.
#pragma once

#include <cstdint>
#include <span>

#include "kernels/kernels.h"

namespace menagerie::simd {

// The operations on sums before they are stored: activation(clamp(sum)).
struct Finish {
  bool clamps = false;
  float lowest = 0, highest = 0;
  kernels::Activation activation = kernels::Activation::kNone;  // besides a clamp
};

// A few rows of a product: output[rows, columns] = finish(input[rows, depth] * weights + bias).
// Rows are `input_row` and `output_row` floats apart. The weights are packed
// [depth, width of the panel]; what lies beyond `columns` there is zero.
struct ProductTile {
  const float* input;
  int64_t input_row;
  const float* weights;
  const float* bias;  // null for none
  float* output;
  int64_t output_row;
  int64_t depth, rows, columns;
};

// Products with panels of `width` columns, of at most `most_rows` rows.
struct PanelKernel {
  int64_t width;
  int64_t most_rows;
  void (*multiply)(const ProductTile&, const Finish&);
  // The same for an input [depth, rows], whose rows are packed; null where they need not be.
  void (*multiply_packed)(const ProductTile&, const Finish&) = nullptr;
};

// Products whose operands are bfloat16, two neighbouring terms in the place of a float: one
// instruction adds both.
struct PairKernels {
  std::span<const PanelKernel> panels;  // one for each of the panels of `Kernels`
  // Round n floats of a row; if n is odd, a zero is stored beside the last.
  void (*round)(const float* from, int64_t n, float* to);
  // Round a panel [depth, width] to pairs along its depth, in place; likewise.
  void (*pair)(float* panel, int64_t depth, int64_t width);
};

// The same for integers: output = finish((input * weights + start) * factor + bias), the product
// and its start in 32 bits. The weights are packed [depth / 4, width of the panel, 4], `depth` is a
// multiple of 4, and `start`, `factor` and `bias` are as long as the panel is wide.
struct IntegerTile {
  const uint8_t* input;
  int64_t input_row;
  const int8_t* weights;
  const int32_t* start;
  const float* factor;
  const float* bias;
  float* output;
  int64_t output_row;
  int64_t depth, rows, columns;
};

// Products of integers with panels of `width` columns, of at most `most_rows` rows.
struct IntegerKernel {
  int64_t width;
  int64_t most_rows;
  void (*multiply)(const IntegerTile&, const Finish&);
};

// Neighbouring results of a depthwise convolution whose windows lie in the image as far as they are
// read: output[p, c] = finish(sum over y, x of input[p, y, x, c] * weights[y, x, c] + bias). Steps
// are in floats; channels are dense.
struct WindowTile {
  const float* const* input;         // for each window row, the image's row
  int64_t left;                      // floats from there to the first window
  int64_t input_step, input_column;  // to the next result, window column
  const float* weights;
  int64_t weights_row, weights_column;
  const float* bias;  // null for none
  float* output;
  int64_t output_step;
  int64_t rows, columns;  // of the window
  int64_t count, channels;
};

inline constexpr int64_t kMostWindows = 8;      // results that a call computes
inline constexpr int64_t kMostWindowRows = 16;  // of a window

struct Kernels {
  std::span<const PanelKernel> panels;  // widest first; the last is as wide as a vector
  void (*slide)(const WindowTile&, const Finish&);
  float (*maximum)(const float* values, int64_t n);
  float (*exponentials)(float* values, int64_t n, float highest);
  // Products that were measured to be faster than the library's: those with at least this many
  // weights, with GELU after them, and with SiLU or a sigmoid and this few weights.
  int64_t far_weights;
  bool faster_gelu;
  int64_t few_weights;
};

extern const Kernels avx2_kernels;
extern const Kernels avx512_kernels;

extern const IntegerKernel vnni_kernel;
extern const PairKernels bf16_kernels;

// Return the kernels that multiply bfloat16; null if the processor lacks the instruction.
const PairKernels* pair_kernels();

// Return the kernel that multiplies integers; null if the processor lacks the instruction.
const IntegerKernel* integer_kernel();

// Return the kernels for this processor, or for the lesser one that ONEDNN_MAX_CPU_ISA names.
const Kernels& kernels();

// Call take(kernel, first column, columns) for the widest panels that waste less than a narrowest
// one, from the first column to the last.
template <class Take>
void each_panel(int64_t columns, const Take& take) {
  const std::span<const PanelKernel> panels = kernels().panels;
  const int64_t narrowest = panels.back().width;
  for (int64_t first = 0; first < columns;) {
    const int64_t left = columns - first;
    auto kernel = panels.begin();
    while (left <= kernel->width - narrowest) ++kernel;
    take(*kernel, first, left < kernel->width ? left : kernel->width);
    first += kernel->width;
  }
}

// Call take(first row, rows) for tiles of at most `most` rows, of nearly equal heights.
template <class Take>
void each_tile(int64_t rows, int64_t most, const Take& take) {
  const int64_t tiles = (rows + most - 1) / most;
  for (int64_t tile = 0; tile < tiles; ++tile) {
    const int64_t first = tile * rows / tiles;
    take(first, (tile + 1) * rows / tiles - first);
  }
}

// Multiply any number of rows by one panel, tile by tile.
void multiply_rows(const PanelKernel& kernel, ProductTile tile, const Finish& finish);

// Convert an epilogue for these kernels; return false if they lack its activation or operation.
bool finish_of(const kernels::Epilogue& epilogue, Finish& finish);

// Return whether the activation takes exponentials, which oneDNN is slow at after a product.
bool is_exponential(const Finish& finish);

// Return whether it is GELU, and a product that ends with it is faster here than by the library.
bool is_faster_gelu(const Finish& finish);

// Tell a profile that these kernels computed an operator.
void note_own_kernel();

}  // namespace menagerie::simd
