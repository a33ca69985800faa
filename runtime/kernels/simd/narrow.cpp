// Products with weights that are stored in half precision or as integers: a few panels of columns
// are widened at a time, into memory that stays in the cache while all rows are multiplied with
// them. So no weight is ever whole in memory as floats, and none is packed.
#include "kernels/simd/narrow.h"

#include <algorithm>
#include <array>
#include <functional>
#include <vector>

#include "common/context.h"
#include "common/copy.h"
#include "common/platform/threads.h"
#include "kernels/finish.h"
#include "kernels/narrow.h"
#include "kernels/simd/products.h"
#include "kernels/simd/simd.h"

namespace menagerie::simd {
namespace {

constexpr int64_t kFewNumbers = 4096;       // of a weight; one with fewer is widened once
constexpr int64_t kPanelFloats = 1 << 16;   // of panels, which stay in the second-level cache
constexpr int64_t kPairedFloats = 1 << 18;  // the same where rows are rounded for each group
constexpr int64_t kRowFloats = 1 << 15;     // of rows beside them
constexpr int64_t kMostRows = 96;           // of a block
constexpr int64_t kLeastShare = 56;         // rows that are worth widening panels once more
constexpr int64_t kLeastPiece = 128;        // numbers of a stored row that are widened at once
constexpr int64_t kSetBytes = 4096;  // rows this far apart share a set of the first-level cache
constexpr int64_t kLineFloats = 16;
constexpr int64_t kCopiedFloats = 1 << 20;
constexpr int64_t kSharesEach = 2;  // for each thread, so that none waits long for the last

int64_t whole_lines(int64_t floats) {
  return (floats + kLineFloats - 1) / kLineFloats * kLineFloats;
}

// Return a distance of rows that lets a tile of them stay in the first-level cache.
int64_t apart(int64_t floats) {
  return floats * int64_t{sizeof(float)} % kSetBytes == 0 ? floats + kLineFloats : floats;
}

// Rows of the left operand, `row` floats apart.
struct LeftRows {
  const float* data;
  int64_t row;
};

struct NarrowProduct {
  int64_t rows = 0;
  NarrowWeight weight{};
  const PairKernels* pairs = nullptr;  // where both operands are multiplied as bfloat16
  // Return rows from `first` on; rows that must be copied go to `room`, `room_row` floats apart.
  std::function<LeftRows(int64_t first, int64_t count, float* room)> left;
  int64_t room_row = 0;
  portable::Finish finish;
  std::optional<Finish> own;    // what the panel kernels apply, if that is all
  const float* bias = nullptr;  // the panel kernels'

  // Return the floats of a row of both operands, as they are multiplied.
  int64_t depth() const { return pairs ? (weight.numbers() + 1) / 2 : weight.numbers(); }
};

struct WorkerRoom {
  float *panels, *rows, *pieces, *sums;
};

// The division of work, and the memory that a worker needs.
struct Division {
  explicit Division(const NarrowProduct& p) {
    const PanelKernel& widest = kernels().panels.front();
    const int64_t depth = p.weight.numbers(), threads = Context::current().threads();
    const int64_t all = (p.weight.columns + widest.width - 1) / widest.width;
    const int64_t most = p.pairs ? kPairedFloats : kPanelFloats;
    const int64_t near = std::max<int64_t>(most / (depth * widest.width), 1);
    const int64_t tasks = threads > 1 ? kSharesEach * threads : 1;
    const int64_t panels = std::min(near, std::max<int64_t>(all / tasks, 1));
    width = panels * widest.width;
    groups = (all + panels - 1) / panels;
    shares = std::clamp<int64_t>((tasks + groups - 1) / groups, 1,
                                 std::max<int64_t>(p.rows / kLeastShare, 1));
    block = std::clamp(kRowFloats / p.depth() / widest.most_rows * widest.most_rows,
                       widest.most_rows, kMostRows);
    sizes = {whole_lines(width * depth), whole_lines(block * p.room_row),
             whole_lines(floats_of_pieces(p.weight)), p.own ? 0 : whole_lines(block * width)};
  }

  int64_t floats() const { return sizes[0] + sizes[1] + sizes[2] + sizes[3]; }
  WorkerRoom room(float* memory) const {
    float* rows = memory + sizes[0];
    return {memory, rows, rows + sizes[1], rows + sizes[1] + sizes[2]};
  }

  int64_t width;   // of a group of columns
  int64_t block;   // rows at a time
  int64_t groups;  // of columns
  int64_t shares;  // of rows
  std::array<int64_t, 4> sizes;
};

void multiply_rows_of(const NarrowProduct& p, std::span<const Panel> panels, int64_t first,
                      int64_t rows, const WorkerRoom& room) {
  const LeftRows left = p.left(first, rows, room.rows);
  const int64_t begin = panels.front().first;
  const int64_t columns = panels.back().first + panels.back().columns - begin;
  const portable::Place& result = p.finish.result;
  float* to = p.own ? result.at(first, begin) : room.sums;
  const int64_t to_row = p.own ? result.at(1, 0) - result.data : columns;
  for (const Panel& panel : panels) {
    multiply_rows(
        *panel.kernel,
        {left.data, left.row, panel.weights, p.bias == nullptr ? nullptr : p.bias + panel.first,
         to + panel.first - begin, to_row, p.depth(), rows, panel.columns},
        p.own.value_or(Finish{}));
  }
  for (int64_t i = 0; i < rows && !p.own; ++i) {
    p.finish.store(first + i, begin, columns, room.sums + i * columns);
  }
}

// Fill a panel as it is multiplied: pairs that lie side by side are moved as floats are.
void fill_panel(const NarrowProduct& p, int64_t first, int64_t columns, int64_t width,
                float* pieces, float* to) {
  const NarrowWeight& w = p.weight;
  if (p.pairs && !w.turned && w.taps == 1 && w.depth % 2 == 0) {
    const int64_t row = w.depth / 2;
    const auto* pairs = w.stored->values.data<float>() + (w.first + first) * row;
    return kernels::pack_panel({pairs, 1, row}, row, columns, width, to);
  }
  widen_panel(w, first, columns, width, pieces, to);
  if (p.pairs) p.pairs->pair(to, w.numbers(), width);
}

// Multiply a share of rows by a group of columns.
void multiply_share(const NarrowProduct& p, const Division& by, int64_t group, int64_t share,
                    const WorkerRoom& room) {
  const int64_t begin = group * by.width;
  std::vector<Panel> panels;
  float* to = room.panels;
  const PanelKernel* widest = kernels().panels.data();
  each_panel(std::min(by.width, p.weight.columns - begin),
             [&](const PanelKernel& kernel, int64_t first, int64_t columns) {
               fill_panel(p, begin + first, columns, kernel.width, room.pieces, to);
               const PanelKernel& own = p.pairs ? p.pairs->panels[&kernel - widest] : kernel;
               panels.push_back({&own, begin + first, columns, to});
               to += kernel.width * p.weight.numbers();
             });
  const int64_t end = (share + 1) * p.rows / by.shares;
  for (int64_t first = share * p.rows / by.shares; first < end; first += by.block) {
    multiply_rows_of(p, panels, first, std::min(by.block, end - first), room);
  }
}

// Copy all rows once, if they are few and several groups of columns would copy the same ones.
Tensor copied_rows(NarrowProduct& p) {
  if (p.room_row == 0 || Division(p).groups == 1 || p.rows * p.room_row > kCopiedFloats) return {};
  const int64_t sizes[] = {p.rows, p.room_row};
  const Tensor rows = empty_contiguous(Dtype::kFloat32, sizes);
  const LeftRows all{rows.data<float>(), p.room_row};
  threads::share_out(static_cast<size_t>(p.rows), kLineFloats, [&](threads::Tasks& left) {
    for (size_t next = 0, end = 0; left.take(next, end);) {
      const auto first = static_cast<int64_t>(next);
      p.left(first, static_cast<int64_t>(end) - first, rows.data<float>() + first * all.row);
    }
  });
  p.left = [all](int64_t first, int64_t, float*) -> LeftRows {
    return {all.data + first * all.row, all.row};
  };
  p.room_row = 0;
  return rows;
}

// Round rows to bfloat16 if the processor multiplies it and the weight is stored in it.
void round_rows(NarrowProduct& p) {
  if (p.weight.stored->values.dtype != Dtype::kBFloat16) return;
  p.pairs = pair_kernels();
  if (p.pairs == nullptr) return;
  const int64_t row = apart(p.depth()), numbers = p.weight.numbers();
  p.left = [pairs = p.pairs, floats = std::move(p.left), own = std::max(p.room_row, numbers),
            numbers, row](int64_t first, int64_t count, float* room) -> LeftRows {
    thread_local std::vector<float> one;
    one.resize(static_cast<size_t>(own));
    for (int64_t i = 0; i < count; ++i) {
      pairs->round(floats(first + i, 1, one.data()).data, numbers, room + i * row);
    }
    return {room, row};
  };
  p.room_row = row;
}

void multiply_narrow(NarrowProduct p) {
  round_rows(p);
  const Tensor copied = copied_rows(p);
  const Division by(p);
  for_each_task(by.groups * by.shares, by.floats(), [&](int64_t task, float* own) {
    multiply_share(p, by, task / by.shares, task % by.shares, by.room(own));
  });
}

// Return the location of results [rows, columns] or [batch, channels, ...].
portable::Place place_of_rows(const Tensor& output, int64_t first) {
  portable::Place place{output.data<float>() + first * output.stride[1], {}, output.stride[1]};
  for (int32_t axis = 0; axis < output.dimensions; ++axis) {
    if (axis == 1) continue;
    const auto i = static_cast<size_t>(std::max(axis - 1, 0));
    place.rows.size[i] = output.size[axis];
    place.rows.stride[i] = output.stride[axis];
  }
  return place;
}

// Compute the columns from `first` on of a result.
void compute_narrow(NarrowProduct p, const Tensor* bias, const kernels::Epilogue& epilogue,
                    int64_t first, const Tensor& output) {
  p.finish.result = place_of_rows(output, first);
  p.finish.epilogue = epilogue;
  Finish own;
  if (p.finish.alpha == 1 && p.finish.beta == 0 && row_of_pixels(output) &&
      finish_of(epilogue, own)) {
    p.own = own;
  }
  const float* numbers = bias == nullptr ? nullptr : bias->data<float>() + first;
  if (p.own) p.bias = numbers;
  if (!p.own && numbers != nullptr) p.finish.bias.assign(numbers, numbers + p.weight.columns);
  note_own_kernel();
  multiply_narrow(std::move(p));
}

// Prefetch the numbers of a row that are read next: pieces are too short for the processor to
// predict them.
void fetch(const NarrowRows& stored, int64_t row, int64_t column, int64_t count) {
  constexpr int64_t kLineBytes = 64;
  const int64_t bytes = stored.values.size[1] * element_size(stored.values.dtype);
  const int64_t end = std::min(column + count, stored.columns) * bytes / stored.columns;
  const char* from = stored.values.data<char>() + row * bytes;
  for (int64_t at = column * bytes / stored.columns; at < end; at += kLineBytes) {
    __builtin_prefetch(from + at);
  }
}

}  // namespace

std::optional<NarrowWeight> narrow_weight(const Tensor& weight) {
  if (weight.storage->narrow() == nullptr || weight.elements() < kFewNumbers) return std::nullopt;
  const auto rows = rows_behind(weight);
  if (!rows) return std::nullopt;
  const int64_t columns = weight.size[0], depth = weight.size[1];
  return NarrowWeight{rows->all, rows->first, columns, rows->all->columns / depth, depth};
}

int64_t floats_of_pieces(const NarrowWeight& weight) {
  return kernels().panels.front().width * std::max(kLeastPiece, weight.taps);
}

void widen_panel(const NarrowWeight& w, int64_t first, int64_t columns, int64_t width,
                 float* pieces, float* to) {
  if (w.turned) {
    for (int64_t k = 0; k < w.depth; ++k, to += width) {
      widen(*w.stored, w.first + k, first, columns, to);
      std::fill(to + columns, to + width, 0.0F);
    }
    return;
  }
  const int64_t most = std::max<int64_t>(kLeastPiece / w.taps, 1), row = most * w.taps;
  for (int64_t k = 0; k < w.depth; k += most) {
    const int64_t depth = std::min(most, w.depth - k);
    for (int64_t j = 0; j < columns; ++j) {
      fetch(*w.stored, w.first + first + j, (k + depth) * w.taps, row);
      widen(*w.stored, w.first + first + j, k * w.taps, depth * w.taps, pieces + j * row);
    }
    kernels::pack_panel({pieces, w.taps, row}, depth, columns, width, to + k * width,
                        {w.taps, 1, w.depth * width});
  }
}

bool narrow_product(const kernels::Product& p, const Tensor& output) {
  if (p.b.dimensions != 2 || p.b.storage->narrow() == nullptr) return false;
  auto weight = narrow_weight(with_axis_moved(p.b, 0, 1));
  if (!weight) {
    weight = narrow_weight(p.b);
    if (!weight) return false;
    std::swap(weight->columns, weight->depth);
    weight->turned = true;
  }
  const Tensor a = p.a.stride[1] == 1 ? p.a : contiguous(p.a);
  const float* from = a.data<float>();
  const int64_t row = a.stride[0], depth = weight->depth;
  NarrowProduct product;
  product.rows = a.size[0];
  product.weight = *weight;
  product.room_row = apart(row) == row ? 0 : apart(depth);
  product.left = [=, to_row = product.room_row](int64_t first, int64_t count, float* room) {
    if (to_row == 0) return LeftRows{from + first * row, row};
    for (int64_t i = 0; i < count; ++i) {
      std::copy_n(from + (first + i) * row, depth, room + i * to_row);
    }
    return LeftRows{room, to_row};
  };
  product.finish.alpha = p.alpha;
  product.finish.beta = p.beta;
  compute_narrow(std::move(product), p.bias, p.epilogue, 0, output);
  return true;
}

namespace {

using Axes = std::array<int64_t, kMaxSpatial>;

// The windows of images as rows [taps, channels] with dense channels; for lines and images, the
// first axes have one place.
struct ImageWindows {
  ImageWindows(const Tensor& input, const Tensor& weight, const ConvolutionParameters& p,
               const Tensor& output)
      : image(input.stride[0]), channels(weight.size[1]) {
    for (size_t i = 0; i < p.spatial; ++i) {
      const size_t axis = i + kMaxSpatial - p.spatial;
      size[axis] = input.size[i + 2];
      step[axis] = input.stride[i + 2];
      window[axis] = weight.size[i + 2];
      results[axis] = output.size[i + 2];
      stride[axis] = p.stride[i];
      padding[axis] = p.padding[i];
      dilation[axis] = p.dilation[i];
    }
  }

  // Copy the row of result number `index`; `data` begins with the channels that are read.
  void copy_row(const float* data, int64_t index, float* to) const {
    Axes at;  // of the window's first place
    for (size_t axis = kMaxSpatial; axis-- > 0; index /= results[axis]) {
      at[axis] = index % results[axis] * stride[axis] - padding[axis];
    }
    data += index * image;
    for (int64_t z = 0; z < window[0]; ++z) {
      for (int64_t y = 0; y < window[1]; ++y, to += window[2] * channels) {
        const int64_t places[] = {at[0] + z * dilation[0], at[1] + y * dilation[1]};
        const bool inside =
            places[0] >= 0 && places[0] < size[0] && places[1] >= 0 && places[1] < size[1];
        copy_line(inside ? data + places[0] * step[0] + places[1] * step[1] : nullptr, at[2], to);
      }
    }
  }

  int64_t image, channels;
  Axes size{1, 1, 1}, step{}, window{1, 1, 1}, results{1, 1, 1};
  Axes stride{1, 1, 1}, padding{}, dilation{1, 1, 1};

 private:
  // Copy a line of the window, with zeros where there is no image.
  void copy_line(const float* line, int64_t at, float* to) const {
    for (int64_t x = 0; x < window[2]; ++x, at += dilation[2], to += channels) {
      const bool inside = line != nullptr && at >= 0 && at < size[2];
      inside ? (void)std::copy_n(line + at * step[2], channels, to)
             : (void)std::fill_n(to, channels, 0.0F);
    }
  }
};

Tensor with_dense_channels(const Tensor& images) {
  if (images.stride[1] == 1 || images.size[1] == 1) return images;
  const Extents strides = channels_last_strides(images.sizes());
  const Tensor made =
      empty_strided(images.dtype, images.sizes(), {strides.data(), images.sizes().size()});
  copy(images, made);
  return made;
}

}  // namespace

bool narrow_convolution(const Tensor& input, const Tensor& weight, const Tensor* bias,
                        const ConvolutionParameters& p, const kernels::Epilogue& epilogue,
                        const Tensor& output) {
  const auto all = narrow_weight(weight);
  const bool thin = weight.size[0] / p.groups < kernels().panels.back().width;
  if (!all || p.transposed || (thin && p.groups > 1)) return false;
  const Tensor images = with_dense_channels(input);
  const ImageWindows windows(images, weight, p, output);
  const auto pixels = is_pointwise(weight, p) ? row_of_pixels(images) : std::nullopt;
  const int64_t columns = all->columns / p.groups;
  for (int64_t group = 0; group < p.groups; ++group) {
    const float* from = images.data<float>() + group * windows.channels;
    NarrowProduct product;
    product.rows = output.elements() / output.size[1];
    product.weight = *all;
    product.weight.first += group * columns;
    product.weight.columns = columns;
    product.room_row = pixels && apart(*pixels) == *pixels ? 0 : apart(all->numbers());
    product.left = [&, row = product.room_row](int64_t first, int64_t count, float* room) {
      if (row == 0) return LeftRows{from + first * *pixels, *pixels};
      for (int64_t i = 0; i < count; ++i) windows.copy_row(from, first + i, room + i * row);
      return LeftRows{room, row};
    };
    compute_narrow(std::move(product), bias, epilogue, group * columns, output);
  }
  return true;
}

}  // namespace menagerie::simd

namespace menagerie::kernels {

bool is_stored_narrower(const Tensor& weight) { return simd::narrow_weight(weight).has_value(); }

void multiply_narrow_places(const Tensor& stored, int64_t tiles, const Tensor& left,
                            const Tensor& result, TransformWindows& transform) {
  constexpr int64_t kTaps = 9, kAcross = 6, kPlaces = kAcross * kAcross;
  const simd::NarrowWeight weight = *simd::narrow_weight(stored);
  const int64_t in = weight.depth, out = weight.columns;
  const int64_t left_plane = left.size[1] * in, result_plane = result.size[1] * out;
  std::vector<simd::Panel> panels;
  simd::each_panel(out, [&](const simd::PanelKernel& kernel, int64_t first, int64_t columns) {
    panels.push_back({&kernel, first, columns, nullptr});
  });
  const int64_t widest = panels.front().kernel->width * in;
  const int64_t windows = kTaps * widest, places = kAcross * widest;
  const int64_t floats = windows + places + simd::floats_of_pieces(weight);
  const auto tasks = static_cast<int64_t>(panels.size());
  simd::for_each_task(tasks, floats, [&](int64_t task, float* own) {
    float *made = own + windows, *pieces = made + places;
    const simd::Panel& panel = panels[static_cast<size_t>(task)];
    const int64_t width = panel.kernel->width;
    simd::widen_panel(weight, panel.first, panel.columns, width, pieces, own);
    for (int64_t place = 0; place < kPlaces; ++place) {
      if (place % kAcross == 0) transform(own, in, width, place / kAcross, made);
      simd::multiply_rows(
          *panel.kernel,
          {left.data<float>() + place * left_plane, in, made + place % kAcross * in * width,
           nullptr, result.data<float>() + place * result_plane + panel.first, out, in, tiles,
           panel.columns},
          {});
    }
  });
}

}  // namespace menagerie::kernels
