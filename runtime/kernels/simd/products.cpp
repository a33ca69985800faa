// Products by panel kernels: weights are packed panel by panel, and rows are multiplied by them.
#include "kernels/simd/products.h"

#include <algorithm>

#include "common/context.h"
#include "common/platform/threads.h"
#include "kernels/panels.h"
#include "kernels/simd/kernels.h"

namespace menagerie::simd {
namespace {

size_t bytes_of(const PanelLayout& layout) {
  int64_t width = 0;
  each_panel(layout.columns,
             [&](const PanelKernel& kernel, int64_t, int64_t) { width += kernel.width; });
  return static_cast<size_t>(width * layout.taps * layout.depth) * sizeof(float);
}

}  // namespace

PackedPanels::PackedPanels(const float* weights, const PanelLayout& layout)
    : bytes_(bytes_of(layout)), memory_(lasting_memory(bytes_)) {
  std::vector<kernels::PanelPlace> places;
  float* to = memory_.get();
  each_panel(layout.columns, [&](const PanelKernel& kernel, int64_t first, int64_t columns) {
    panels_.push_back({&kernel, first, columns, to});
    places.push_back({first, columns, kernel.width, layout.depth * kernel.width, to});
    to += layout.taps * places.back().tap;
  });
  kernels::pack_panels(weights, layout, places);
}

std::shared_ptr<PackedPanels> packed_panels(const Tensor& weight, const PanelLayout& layout) {
  Key key("panels");
  key.add(weight.raw()).add(layout.columns).add(layout.taps).add(layout.depth);
  key.add(layout.column).add(layout.tap).add(layout.step);
  return made_once<PackedPanels>(
      key, weight, [&] { return std::make_shared<PackedPanels>(weight.data<float>(), layout); });
}

PackedPanels::PackedPanels(const NarrowWeight& weight)
    : bytes_(bytes_of({weight.columns, weight.taps, weight.depth, 0, 0, 0})),
      memory_(lasting_memory(bytes_)) {
  std::vector<float> pieces(static_cast<size_t>(floats_of_pieces(weight)));
  float* to = memory_.get();
  each_panel(weight.columns, [&](const PanelKernel& kernel, int64_t first, int64_t columns) {
    panels_.push_back({&kernel, first, columns, to});
    widen_panel(weight, first, columns, kernel.width, pieces.data(), to);
    to += weight.numbers() * kernel.width;
  });
}

std::shared_ptr<PackedPanels> packed_panels(const Tensor& weight) {
  if (const auto narrow = narrow_weight(weight)) {
    Key key("widened panels");
    key.add(static_cast<const void*>(weight.storage.get())).add(weight.offset_bytes);
    return made_once<PackedPanels>(key.add(weight.sizes()), weight,
                                   [&] { return std::make_shared<PackedPanels>(*narrow); });
  }
  return packed_panels(weight,
                       {weight.size[0], 1, weight.size[1], weight.stride[0], 0, weight.stride[1]});
}

std::optional<int64_t> row_of_pixels(const Tensor& images) {
  if (images.dtype != Dtype::kFloat32) return std::nullopt;
  if (images.size[1] > 1 && images.stride[1] != 1) return std::nullopt;
  int64_t row = images.size[1], count = 1;
  for (int32_t axis = images.dimensions - 1; axis >= 0; --axis) {
    if (axis == 1 || images.size[axis] == 1) continue;
    if (count == 1) row = images.stride[axis];
    if (images.stride[axis] != row * count) return std::nullopt;
    count *= images.size[axis];
  }
  return row;
}

bool is_pointwise(const Tensor& weight, const ConvolutionParameters& p) {
  bool plain = !p.transposed && p.groups == 1 && weight.storage->is_constant();
  for (size_t i = 0; i < p.spatial; ++i) {
    plain = plain && weight.size[i + 2] == 1 && p.stride[i] == 1 && p.padding[i] == 0;
  }
  return plain;
}

namespace {

constexpr int64_t kFewestRows = 56;        // of a block
constexpr int64_t kFewestOfThread = 28;    // below it threads share the panels
constexpr int64_t kBlockFloats = 700'000;  // of packed rows, and half of their results: what the
                                           // last cache has room for
constexpr int64_t kBlocksEach = 4;         // of a thread, so that none waits long for the last

// Return whether a tile has more rows than a set of the first-level cache has lines.
bool packs_rows() { return kernels().panels.front().multiply_packed != nullptr; }

// Pack rows tile by tile.
void pack_rows(const RowsProduct& p, float* packed) {
  each_tile(p.rows, kernels().panels.front().most_rows, [&](int64_t first, int64_t rows) {
    kernels::pack_panel({p.input + first * p.input_row, 1, p.input_row}, p.depth, rows, rows,
                        packed + first * p.depth);
  });
}

void multiply_panel(const RowsProduct& p, const float* packed, const Panel& panel,
                    const Finish& finish) {
  const float* bias = p.bias == nullptr ? nullptr : p.bias + panel.first;
  float* output = p.output + panel.first;
  if (packed == nullptr) {
    return multiply_rows(*panel.kernel,
                         {p.input, p.input_row, panel.weights, bias, output, p.output_row, p.depth,
                          p.rows, panel.columns},
                         finish);
  }
  each_tile(p.rows, kernels().panels.front().most_rows, [&](int64_t first, int64_t rows) {
    panel.kernel->multiply_packed(
        {packed + first * p.depth, 0, panel.weights, bias, output + first * p.output_row,
         p.output_row, p.depth, rows, panel.columns},
        finish);
  });
}

// Multiply a block of rows: it is packed, then multiplied by each panel in turn, so that a panel is
// read from distant memory once per block.
void multiply_block(const RowsProduct& p, const PackedPanels& weights, const Finish& finish,
                    float* packed) {
  if (packed != nullptr) pack_rows(p, packed);
  for (const Panel& panel : weights.panels()) multiply_panel(p, packed, panel, finish);
}

// Multiply rows that are too few to be divided: threads share the panels.
void multiply_few_rows(const RowsProduct& p, const PackedPanels& weights, const Finish& finish) {
  const int64_t space[] = {packs_rows() ? p.rows : 0, p.depth};
  const Tensor room = empty_contiguous(Dtype::kFloat32, space);
  float* packed = room.empty() ? nullptr : room.data<float>();
  if (packed != nullptr) pack_rows(p, packed);
  const std::span<const Panel> panels = weights.panels();
  threads::for_each(static_cast<int64_t>(panels.size()), 1, [&](int64_t panel) {
    multiply_panel(p, packed, panels[static_cast<size_t>(panel)], finish);
  });
}

// Return how many rows are packed at once: the same number for each thread.
int64_t rows_of_block(const RowsProduct& p, int64_t columns, int64_t threads) {
  const int64_t most =
      std::max(std::min(kBlockFloats / p.depth, 2 * kBlockFloats / columns), kFewestRows);
  const int64_t shares = threads > 1 && p.rows > most * threads ? kBlocksEach * threads : threads;
  const int64_t blocks = (p.rows + most * shares - 1) / (most * shares) * shares;
  const int64_t block = (p.rows + blocks - 1) / blocks;
  const int64_t tile = kernels().panels.front().most_rows;
  return blocks > threads ? (block + tile - 1) / tile * tile : block;
}

}  // namespace

bool takes_many_rows(int64_t rows) {
  return rows >= std::max(kFewestRows, kFewestOfThread * Context::current().threads());
}

void multiply_all_rows(const RowsProduct& p, const PackedPanels& weights, const Finish& finish) {
  if (!takes_many_rows(p.rows)) return multiply_few_rows(p, weights, finish);
  const int64_t threads = Context::current().threads();
  const int64_t block = rows_of_block(p, weights.columns(), threads);
  const bool packs = packs_rows();
  for_each_task((p.rows + block - 1) / block, packs ? block * p.depth : 0,
                [&](int64_t task, float* own) {
                  const int64_t first = task * block;
                  RowsProduct rows = p;
                  rows.input += first * p.input_row;
                  rows.output += first * p.output_row;
                  rows.rows = std::min(block, p.rows - first);
                  multiply_block(rows, weights, finish, packs ? own : nullptr);
                });
}

bool dense_product(const kernels::Product& p, const Tensor& output) {
  Finish finish;
  const int64_t rows = output.size[0], depth = p.a.size[1], columns = output.size[1];
  if (p.a.dtype != Dtype::kFloat32 || p.alpha != 1 || p.beta != 0) return false;
  if (!finish_of(p.epilogue, finish)) return false;
  const int64_t numbers = depth * columns;
  const bool far = numbers >= kernels().far_weights;
  const bool few = is_exponential(finish) && numbers <= kernels().few_weights;
  if (!far && !few && !is_faster_gelu(finish)) return false;
  note_own_kernel();
  const auto weights = packed_panels(p.b, {columns, 1, depth, p.b.stride[1], 0, p.b.stride[0]});
  multiply_all_rows(
      {p.a.data<float>(), p.a.stride[0], p.bias == nullptr ? nullptr : p.bias->data<float>(),
       output.data<float>(), output.stride[0], rows, depth},
      *weights, finish);
  return true;
}

}  // namespace menagerie::simd

namespace menagerie::kernels {

using simd::each_panel;
using simd::PanelKernel;

int64_t PackedRight::size() const {
  int64_t width = 0;
  each_panel(columns_, [&](const PanelKernel& kernel, int64_t, int64_t) { width += kernel.width; });
  return depth_ * width;
}

void PackedRight::pack(const float* b, int64_t row, int64_t column, float* to) const {
  const simd::PairKernels* pairs = coarse_ ? simd::pair_kernels() : nullptr;
  each_panel(columns_, [&](const PanelKernel& kernel, int64_t first, int64_t columns) {
    pack_panel({b + first * column, row, column}, depth_, columns, kernel.width, to);
    if (pairs != nullptr) pairs->pair(to, depth_, kernel.width);
    to += depth_ * kernel.width;
  });
}

void PackedRight::multiply(const float* a, int64_t a_row, int64_t rows, const float* packed,
                           float* c, int64_t c_row) const {
  const simd::PairKernels* pairs = coarse_ ? simd::pair_kernels() : nullptr;
  const int64_t depth = pairs == nullptr ? depth_ : (depth_ + 1) / 2;
  thread_local std::vector<float> rounded;
  if (pairs != nullptr) {
    rounded.resize(static_cast<size_t>(rows * depth));
    for (int64_t i = 0; i < rows; ++i) {
      pairs->round(a + i * a_row, depth_, rounded.data() + i * depth);
    }
    a = rounded.data();
    a_row = depth;
  }
  const PanelKernel* widest = simd::kernels().panels.data();
  each_panel(columns_, [&](const PanelKernel& kernel, int64_t first, int64_t columns) {
    const PanelKernel& own = pairs == nullptr ? kernel : pairs->panels[&kernel - widest];
    simd::multiply_rows(own, {a, a_row, packed, nullptr, c + first, c_row, depth, rows, columns},
                        {});
    packed += depth_ * kernel.width;
  });
}

}  // namespace menagerie::kernels
