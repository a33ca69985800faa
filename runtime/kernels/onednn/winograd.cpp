// F(4 x 4, 3 x 3): tiles of 6 x 6 input values are transformed, multiplied by the transformed
// weights place by place, in 36 matrix products over the channels, and transformed back to tiles of
// 4 x 4 results. The matrices are those of Lavin and Gray (arXiv:1509.09308), section 4.1.

#include <immintrin.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "common/context.h"
#include "common/copy.h"
#include "common/platform/threads.h"
#include "kernels/narrow.h"
#include "kernels/onednn/kernel.h"
#include "kernels/onednn/onednn.h"
#include "kernels/panels.h"

namespace menagerie::onednn {
namespace {

using kernels::Epilogue;

constexpr int64_t kTile = 4;   // results along an axis
constexpr int64_t kPatch = 6;  // input values that they are computed from
constexpr int64_t kPlaces = kPatch * kPatch;
constexpr int64_t kLanes = 8;            // channels that are transformed at once
constexpr int64_t kLine = 16;            // floats of a line of the cache
constexpr int64_t kFewestChannels = 32;  // below it the transformations cost more than they save
constexpr int64_t kFewestTiles = 16;     // rows of the products
// With fewer direct multiplications, the first call costs more than many later calls save.
constexpr int64_t kFewestProducts = 12'000'000;
constexpr int64_t kMostTiles = 512;  // in memory at once
constexpr int64_t kTilesAtOnce = 4;  // that a thread takes

typedef float Vector __attribute__((vector_size(kLanes * sizeof(float)), aligned(4)));

Vector load(const float* from) { return *reinterpret_cast<const Vector*>(from); }
void store(float* to, Vector values) { *reinterpret_cast<Vector*>(to) = values; }

// Transform one axis of B^T d B: six input values, `step` apart, in place.
void transform_input(Vector* d, int64_t step) {
  const Vector d0 = d[0], d1 = d[step], d2 = d[2 * step], d3 = d[3 * step], d4 = d[4 * step],
               d5 = d[5 * step];
  d[0] = 4 * d0 - 5 * d2 + d4;
  d[step] = (d4 - 4 * d2) + (d3 - 4 * d1);
  d[2 * step] = (d4 - 4 * d2) - (d3 - 4 * d1);
  d[3 * step] = (d4 - d2) + 2 * (d3 - d1);
  d[4 * step] = (d4 - d2) - 2 * (d3 - d1);
  d[5 * step] = 4 * d1 - 5 * d3 + d5;
}

// Transform one axis of A^T m A: six products, `step` apart, to four results in the first places.
void transform_output(Vector* m, int64_t step) {
  const Vector m0 = m[0], m1 = m[step], m2 = m[2 * step], m3 = m[3 * step], m4 = m[4 * step],
               m5 = m[5 * step];
  m[0] = m0 + (m1 + m2) + (m3 + m4);
  m[step] = (m1 - m2) + 2 * (m3 - m4);
  m[2 * step] = (m1 + m2) + 4 * (m3 + m4);
  m[3 * step] = (m1 - m2) + 8 * (m3 - m4) + m5;
}

constexpr int64_t kWindow = 3;

// Compute row y of G g G^T of windows, in the numbers' own precision.
template <class Number, class Numbers>
void transform_window_row(const Numbers* g, int64_t y, Numbers* to) {
  constexpr Number kG[kPatch][kWindow] = {{1.0 / 4, 0, 0},
                                          {-1.0 / 6, -1.0 / 6, -1.0 / 6},
                                          {-1.0 / 6, 1.0 / 6, -1.0 / 6},
                                          {1.0 / 24, 1.0 / 12, 1.0 / 6},
                                          {1.0 / 24, -1.0 / 12, 1.0 / 6},
                                          {0, 0, 1}};
  Numbers row[kWindow];
  for (int64_t x = 0; x < kWindow; ++x) {
    row[x] = kG[y][0] * g[x] + kG[y][1] * g[kWindow + x] + kG[y][2] * g[2 * kWindow + x];
  }
  for (int64_t x = 0; x < kPatch; ++x) {
    to[x] = row[0] * kG[x][0] + row[1] * kG[x][1] + row[2] * kG[x][2];
  }
}

// Double precision: the transformed weights are rounded once, when they are stored.
typedef double Doubles __attribute__((vector_size(kLanes * sizeof(double))));
using Windows = std::array<std::array<Doubles, kPatch>, kPatch>;

// Return G g G^T of kLanes windows, whose numbers are `step` apart.
Windows transformed_windows(const float* g, int64_t step) {
  Doubles numbers[kWindow * kWindow];
  for (int64_t i = 0; i < kWindow * kWindow; ++i) {
    numbers[i] = __builtin_convertvector(load(g + i * step), Doubles);
  }
  Windows made;
  for (size_t y = 0; y < kPatch; ++y) {
    transform_window_row<double>(numbers, static_cast<int64_t>(y), made[y].data());
  }
  return made;
}

// Return the panels of output channels of matrices [places, in, out]; nothing if vectors of
// channels do not fit a panel.
std::optional<PanelForm> form_of(const Desc& weights) {
  const auto form = panel_form(weights, 2, 1);
  return form && form->width % kLanes == 0 ? form : std::nullopt;
}

// Store the transformed windows of some output channels from `o` on for each input channel. The 36
// lines of the cache are in one set: each is written at once, and past the cache.
void transform_channels(const Tensor& weight, int64_t o, const PanelForm& form, int64_t plane,
                        float* to) {
  const int64_t in = weight.size[1], count = std::min(kLine, weight.size[0] - o);
  const auto g = std::make_unique_for_overwrite<float[]>(kWindow * kWindow * in * count);
  kernels::pack_panel(
      {weight.data<float>() + o * weight.stride[0], weight.stride[1], weight.stride[0]}, in, count,
      count, g.get(), {kWindow * kWindow, weight.stride[3], in * count});
  for (int64_t c = 0; c < in; ++c) {
    Windows windows[kLine / kLanes];
    for (int64_t i = 0; i < count; i += kLanes) {
      windows[i / kLanes] = transformed_windows(g.get() + c * count + i, in * count);
    }
    for (int64_t place = 0; place < kPlaces; ++place) {
      for (int64_t i = 0; i < count; i += kLanes) {
        const Doubles& values = windows[i / kLanes][size_t(place / kPatch)][size_t(place % kPatch)];
        const int64_t panel = (o + i) / form.width * form.panel, column = (o + i) % form.width;
        _mm256_stream_ps(to + place * plane + panel + c * form.width + column,
                         (__m256) __builtin_convertvector(values, Vector));
      }
    }
  }
  _mm_sfence();
}

// Return the transformed windows as matrices [places, in, out], in the products' layout.
std::shared_ptr<PackedWeight> transformed_weights(const Tensor& weight, const Desc& wanted,
                                                  const PanelForm& form) {
  Key key("winograd weights");
  key.add(weight.raw());
  add_to_key(key, weight);
  add_to_key(key, wanted);
  return made_once<PackedWeight>(key, weight, [&] {
    auto made = std::make_shared<PackedWeight>(wanted);
    populate(made->floats(), made->bytes());
    const size_t needed = sizeof(float) * kPlaces * weight.size[0] * weight.size[1];
    if (made->bytes() > needed) std::memset(made->floats(), 0, made->bytes());  // it is padded
    const Tensor even =
        weight.stride[2] == kWindow * weight.stride[3] ? weight : contiguous(weight);
    threads::for_each((weight.size[0] + kLine - 1) / kLine, 1, [&](int64_t line) {
      transform_channels(even, line * kLine, form, wanted.get_strides()[0], made->floats());
    });
    return made;
  });
}

Desc dense(std::span<const int64_t> sizes) {
  const Extents strides = contiguous_strides(sizes);
  return strided(Dtype::kFloat32, sizes, {strides.data(), sizes.size()});
}

// Make the 36 products of `tiles` tiles: [places, tiles, in] * [places, in, out].
std::shared_ptr<Kernel> make_products(const Tensor& weight, int64_t tiles) {
  const int64_t left_sizes[] = {kPlaces, tiles, weight.size[1]};
  const int64_t right_sizes[] = {kPlaces, weight.size[1], weight.size[0]};
  const int64_t result_sizes[] = {kPlaces, tiles, weight.size[0]};
  const Desc left = dense(left_sizes), result = dense(result_sizes);
  const auto products = [&](const Desc& right) {
    const dnnl::matmul::primitive_desc descriptor(engine(), left, right, result,
                                                  attributes({.epilogue = {}}));
    return choose<dnnl::matmul>(descriptor);
  };
  ChosenPrimitive chosen = products(any_layout(Dtype::kFloat32, right_sizes));
  if (!form_of(chosen.weights)) chosen = products(dense(right_sizes));
  auto kernel = std::make_shared<Kernel>(chosen);
  kernel->add(DNNL_ARG_SRC, left, chosen.source);
  kernel->add(DNNL_ARG_DST, result, chosen.target, Kernel::Role::kWritten);
  kernel->add_packed(DNNL_ARG_WEIGHTS,
                     transformed_weights(weight, chosen.weights, *form_of(chosen.weights)));
  return kernel;
}

// The tiles of a batch of images, one after another.
struct Tiling {
  Tiling(const Tensor& in, const Tensor& out, const ConvolutionParameters& parameters)
      : input(in),
        output(out),
        padding_y(parameters.padding[0]),
        padding_x(parameters.padding[1]),
        across((out.size[3] + kTile - 1) / kTile),
        down((out.size[2] + kTile - 1) / kTile) {}

  int64_t count() const { return output.size[0] * down * across; }

  const Tensor& input;
  const Tensor& output;
  int64_t padding_y, padding_x;
  int64_t across, down;
};

// The position of a tile in its image.
struct Place {
  Place(const Tiling& tiling, int64_t tile)
      : image(tile / (tiling.down * tiling.across)),
        y(tile / tiling.across % tiling.down * kTile),
        x(tile % tiling.across * kTile) {}

  int64_t image, y, x;
};

// Transform the patch of a tile; values beyond the image are zero.
void gather(const Tiling& tiling, int64_t tile, float* to, int64_t plane) {
  const Tensor& input = tiling.input;
  const Place place(tiling, tile);
  const float* image = input.data<float>() + place.image * input.stride[0];
  const int64_t top = place.y - tiling.padding_y, left = place.x - tiling.padding_x;
  for (int64_t c = 0; c < input.size[1]; c += kLanes) {
    Vector patch[kPlaces];
    for (int64_t i = 0; i < kPlaces; ++i) {
      const int64_t y = top + i / kPatch, x = left + i % kPatch;
      const bool inside = y >= 0 && y < input.size[2] && x >= 0 && x < input.size[3];
      patch[i] = inside ? load(image + y * input.stride[2] + x * input.stride[3] + c) : Vector{};
    }
    for (int64_t x = 0; x < kPatch; ++x) transform_input(patch + x, kPatch);
    for (int64_t y = 0; y < kPatch; ++y) transform_input(patch + y * kPatch, 1);
    for (int64_t i = 0; i < kPlaces; ++i) store(to + i * plane + c, patch[i]);
  }
}

// Transform the products of a tile back, with the bias and ReLU; results beyond the image are
// dropped.
void scatter(const Tiling& tiling, int64_t tile, const float* from, int64_t plane,
             const float* bias, bool relu) {
  const Tensor& output = tiling.output;
  const Place place(tiling, tile);
  float* image = output.data<float>() + place.image * output.stride[0];
  const int64_t rows = std::min(kTile, output.size[2] - place.y);
  const int64_t columns = std::min(kTile, output.size[3] - place.x);
  for (int64_t o = 0; o < output.size[1]; o += kLanes) {
    Vector patch[kPlaces];
    for (int64_t i = 0; i < kPlaces; ++i) patch[i] = load(from + i * plane + o);
    for (int64_t x = 0; x < kPatch; ++x) transform_output(patch + x, kPatch);
    for (int64_t y = 0; y < kTile; ++y) transform_output(patch + y * kPatch, 1);
    const Vector added = bias == nullptr ? Vector{} : load(bias + o);
    for (int64_t y = 0; y < rows; ++y) {
      for (int64_t x = 0; x < columns; ++x) {
        float* to = image + (place.y + y) * output.stride[2] + (place.x + x) * output.stride[3];
        const Vector sum = patch[y * kPatch + x] + added;
        store(to + o, relu ? (sum < 0 ? Vector{} : sum) : sum);
      }
    }
  }
}

bool has_dense_channels(const Tensor& image) {
  return image.stride[1] == 1 && image.size[1] % kLanes == 0 && image.size[1] >= kFewestChannels;
}

std::shared_ptr<Kernel> products_of(const Tensor& weight, int64_t tiles) {
  Key key("winograd");
  key.add(int64_t{Context::current().threads()}).add(tiles).add(weight.raw());
  add_to_key(key, weight);
  return Context::current().kernels().get<Kernel>(key,
                                                  [&] { return make_products(weight, tiles); });
}

// Transform windows [9, in, width] to one row of places [6, in, width].
void transform_windows(const float* windows, int64_t in, int64_t width, int64_t y, float* to) {
  const int64_t plane = in * width;
  for (int64_t i = 0; i < plane; i += kLanes) {
    Vector g[kWindow * kWindow], made[kPatch];
    for (int64_t tap = 0; tap < kWindow * kWindow; ++tap) g[tap] = load(windows + tap * plane + i);
    transform_window_row<float>(g, y, made);
    for (int64_t x = 0; x < kPatch; ++x) store(to + x * plane + i, made[x]);
  }
}

}  // namespace

bool winograd_pays(const Tensor& input, const Tensor& weight, const ConvolutionParameters& p,
                   const Tensor& output) {
  const bool plain = p.spatial == 2 && !p.transposed && p.groups == 1 && p.stride[0] == 1 &&
                     p.stride[1] == 1 && p.dilation[0] == 1 && p.dilation[1] == 1;
  return plain && weight.size[2] == 3 && weight.size[3] == 3 && weight.storage->is_constant() &&
         has_dense_channels(input) && has_dense_channels(output) &&
         Tiling(input, output, p).count() >= kFewestTiles &&
         output.elements() * weight.size[1] * kWindow * kWindow >= kFewestProducts;
}

void winograd(const Tensor& input, const Tensor& weight, const Tensor* bias,
              const ConvolutionParameters& parameters, const Epilogue& epilogue,
              const Tensor& output) {
  if (Profile* profile = Context::current().profile()) profile->add_work("(Winograd)", 0, 0);
  const Tiling tiling(input, output, parameters);
  const int64_t all = tiling.count(), in = input.size[1], out = output.size[1];
  const int64_t passes = (all + kMostTiles - 1) / kMostTiles;
  const int64_t tiles = (all + passes - 1) / passes;
  const bool narrow = kernels::is_stored_narrower(weight);
  const auto products = narrow ? nullptr : products_of(weight, tiles);
  const int64_t left_sizes[] = {kPlaces, tiles, in}, result_sizes[] = {kPlaces, tiles, out};
  const Tensor left = empty_contiguous(Dtype::kFloat32, left_sizes);
  const Tensor result = empty_contiguous(Dtype::kFloat32, result_sizes);
  const bool relu = epilogue.activation == kernels::Activation::kRelu;
  const float* added = bias == nullptr ? nullptr : bias->data<float>();
  for (int64_t first = 0; first < all; first += tiles) {
    const int64_t now = std::min(tiles, all - first);
    threads::for_each(now, kTilesAtOnce, [&](int64_t tile) {
      gather(tiling, first + tile, left.data<float>() + tile * in, tiles * in);
    });
    narrow ? kernels::multiply_narrow_places(weight, now, left, result, transform_windows)
           : products->run({left.raw(), result.raw()});
    threads::for_each(now, kTilesAtOnce, [&](int64_t tile) {
      scatter(tiling, first + tile, result.data<float>() + tile * out, tiles * out, added, relu);
    });
  }
  if (!relu) activate(epilogue, output);
}

}  // namespace menagerie::onednn
