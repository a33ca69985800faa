// The results of a convolution for rows of an image: of one pixel each, as floats or integers, and
// of windows.
#include "kernels/simd/expanders.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "common/context.h"
#include "common/copy.h"
#include "kernels/simd/depthwise.h"

namespace menagerie::simd {
namespace {

using kernels::Expanded;

class FloatExpander : public PanelExpander {
 public:
  FloatExpander(const Expanded& call, int64_t row, const Finish& finish)
      : PanelExpander(call, finish, packed_panels(call.expansion)), row_(row) {}

 protected:
  void multiply(const ExpandedRow& row, size_t panel, const Finish& finish,
                float* to) const override {
    const Tensor& input = call().input;
    const int64_t pixel = (row.image * input.size[2] + row.y) * input.size[3];
    multiply_pixels(input.data<float>() + pixel * row_, row_, input.size[1], panel, finish, to);
  }

 private:
  int64_t row_;
};

constexpr int64_t kGroup = 4;  // integers that one instruction multiplies and adds up

// The integers of a weight, panel by panel: [depth / 4, width, 4], zero beyond the last column.
class PackedIntegers : public Prepared {
 public:
  PackedIntegers(const Tensor& values, int64_t width) {
    const int64_t columns = values.size[0], depth = values.size[1];
    for (int64_t first = 0; first < columns; first += width) {
      panels_.push_back({first, std::min(width, columns - first), width});
    }
    const auto padded = panels_.size() * static_cast<size_t>(width);
    weights_.resize(padded * static_cast<size_t>(depth));
    sums_.resize(padded);
    for (int64_t o = 0; o < columns; ++o) {
      const int8_t* from = values.data<int8_t>() + o * depth;
      int8_t* to = weights_.data() + o / width * width * depth + o % width * kGroup;
      for (int64_t k = 0; k < depth; ++k) {
        to[k / kGroup * width * kGroup + k % kGroup] = from[k];
        sums_[static_cast<size_t>(o)] += from[k];
      }
    }
  }
  size_t bytes() const override { return weights_.size() + sums_.size() * sizeof(int32_t); }
  std::span<const Channels> panels() const { return panels_; }
  const int8_t* weights() const { return weights_.data(); }
  std::span<const int32_t> sums() const { return sums_; }  // of each column's integers

 private:
  std::vector<Channels> panels_;
  std::vector<int8_t> weights_;
  std::vector<int32_t> sums_;
};

std::shared_ptr<PackedIntegers> packed_integers(const Tensor& values, int64_t width) {
  Key key("pointwise integers");
  key.add(values.raw()).add(values.size[0]).add(values.size[1]);
  return made_once<PackedIntegers>(key, values,
                                   [&] { return std::make_shared<PackedIntegers>(values, width); });
}

// An expander that first rounds the images, each by itself, and multiplies integers.
class IntegerExpander : public Expander {
 public:
  IntegerExpander(const Expanded& call, const IntegerKernel& kernel, const Finish& finish)
      : Expander(call, finish),
        kernel_(kernel),
        weights_(packed_integers(call.integers->values, kernel.width)),
        rounded_(empty_strided(Dtype::kUInt8, call.input.sizes(), call.input.strides())) {
    const int64_t images = call.input.size[0];
    const std::vector<Rounding> how =
        round_slices(call.input.data<float>(), images, call.input.elements() / images,
                     call.integers->operand, rounded_.data<uint8_t>());
    const auto columns = static_cast<size_t>(call.expansion.size[0]);
    bias_.resize(weights_->sums().size());
    if (call.expansion_bias != nullptr) {
      std::copy_n(call.expansion_bias->data<float>(), columns, bias_.data());
    }
    for (const Rounding& image : how) {
      for (size_t o = 0; o < bias_.size(); ++o) {
        start_.push_back(-image.zero * weights_->sums()[o]);
        factor_.push_back(o < columns ? image.scale * call.integers->scales[o] : 0);
      }
    }
  }

  std::span<const Channels> panels() const override { return weights_->panels(); }

 protected:
  void multiply(const ExpandedRow& row, size_t panel, const Finish& finish,
                float* to) const override {
    const int64_t width = rounded_.size[3], depth = rounded_.size[1];
    const Channels& channels = panels()[panel];
    const size_t column = static_cast<size_t>(channels.first);
    const size_t number = static_cast<size_t>(row.image) * bias_.size() + column;
    IntegerTile tile{
        rounded_.data<uint8_t>() + (row.image * rounded_.size[2] + row.y) * width * depth,
        depth,
        weights_->weights() + channels.first * depth,
        start_.data() + number,
        factor_.data() + number,
        bias_.data() + column,
        to,
        channels.width,
        depth,
        0,
        channels.count};
    for (int64_t left = width; left > 0; left -= tile.rows) {
      tile.rows = std::min(left, kernel_.most_rows);
      kernel_.multiply(tile, finish);
      tile.input += tile.rows * depth;
      tile.output += tile.rows * channels.width;
    }
  }

 private:
  const IntegerKernel& kernel_;
  std::shared_ptr<PackedIntegers> weights_;
  Tensor rounded_;
  std::vector<float> bias_;     // of each column, as wide as all panels
  std::vector<int32_t> start_;  // of each image's columns
  std::vector<float> factor_;
};

// Multiply pixels by a factor and finish them, in place.
void finish_times(float factor, const Channels& channels, int64_t pixels, const Finish& finish,
                  float* values) {
  const std::vector<float> factors(static_cast<size_t>(channels.count), factor);
  WindowTile tile{};  // a window of one pixel
  const float* from = values;
  tile.input = &from;
  tile.input_step = tile.output_step = channels.width;
  tile.weights = factors.data();
  tile.rows = tile.columns = 1;
  tile.channels = channels.count;
  for (int64_t first = 0; first < pixels; first += kMostWindows) {
    tile.left = first * channels.width;
    tile.output = values + tile.left;
    tile.count = std::min(kMostWindows, pixels - first);
    kernels().slide(tile, finish);
  }
}

// Return the layout of a weight [O, C, height, width] as one matrix, channel by channel.
PanelLayout layout_of(const Tensor& weight) {
  return {weight.size[0],   weight.size[1],   weight.size[2] * weight.size[3],
          weight.stride[0], weight.stride[1], weight.stride[weight.size[3] == 1 ? 2 : 3]};
}

// An expander that copies what each pixel's window reads, then multiplies those rows.
class WindowExpander : public PanelExpander {
 public:
  WindowExpander(const Expanded& call, const Finish& finish)
      : PanelExpander(call, finish, packed_panels(call.expansion, layout_of(call.expansion))) {
    const auto& p = call.expansion_parameters;
    for (int64_t x = 0; x < call.expansion.size[3]; ++x) {
      const WindowRange pixels(x * p.dilation[1] - p.padding[1], p.stride[1], width(),
                               call.input.size[3]);
      across_.push_back(pixels);
    }
  }

  int64_t gathered() const override { return width() * depth(); }
  void gather(int64_t image, int64_t y, float* to) const override {
    const Tensor& input = call().input;
    const auto& p = call().expansion_parameters;
    for (int64_t c = 0; c < input.size[1]; ++c) {
      for (int64_t i = 0; i < call().expansion.size[2]; ++i, to += call().expansion.size[3]) {
        const int64_t row = y * p.stride[0] - p.padding[0] + i * p.dilation[0];
        const bool inside = row >= 0 && row < input.size[2];
        gather_row(inside ? input.data<float>() + image * input.stride[0] + c * input.stride[1] +
                                row * input.stride[2]
                          : nullptr,
                   to);
      }
    }
  }

 protected:
  void multiply(const ExpandedRow& row, size_t panel, const Finish& finish,
                float* to) const override {
    multiply_pixels(row.gathered, depth(), depth(), panel, finish, to);
  }

 private:
  int64_t width() const { return call().sizes[3]; }
  int64_t depth() const { return call().expansion.elements() / call().expansion.size[0]; }

  // Copy what one row of the windows reads of an image row, which is null outside the image.
  void gather_row(const float* from, float* to) const {
    const auto& p = call().expansion_parameters;
    const int64_t column = call().input.stride[3], step = p.stride[1] * column;
    const int64_t pixels = width(), between = depth();
    for (size_t x = 0; x < across_.size(); ++x, ++to) {
      const WindowRange reach = from == nullptr ? WindowRange(0, 1, 0, 0) : across_[x];
      const int64_t left = (static_cast<int64_t>(x) * p.dilation[1] - p.padding[1]) * column;
      for (int64_t i = 0; i < pixels; ++i) {
        to[i * between] = i >= reach.first && i < reach.last ? from[left + i * step] : 0;
      }
    }
  }

  std::vector<WindowRange>
      across_;  // for each column of a window, the pixels for which it is inside
};

// Return null where the kernels do not support the weight's layout.
std::unique_ptr<Expander> window_expander(const Expanded& call, const Finish& finish) {
  const Tensor& weight = call.expansion;
  const bool is_matrix = weight.size[2] == 1 || weight.size[3] == 1 ||
                         weight.stride[2] == weight.size[3] * weight.stride[3];
  const bool plain = call.expansion_parameters.groups == 1 && weight.storage->is_constant();
  if (!is_matrix || !plain || call.input.dtype != Dtype::kFloat32) return nullptr;
  return std::make_unique<WindowExpander>(call, finish);
}

}  // namespace

void Expander::expand(const ExpandedRow& row, size_t panel, float* to) const {
  const Tensor* rows = call_.rows;
  const float factor =
      rows == nullptr ? 1
                      : rows->data<float>()[row.image * rows->stride[0] + row.y * rows->stride[2]];
  if (factor == 1) return multiply(row, panel, finish_, to);
  multiply(row, panel, {}, to);
  finish_times(factor, panels()[panel], call_.sizes[3], finish_, to);
}

PanelExpander::PanelExpander(const Expanded& call, const Finish& finish,
                             std::shared_ptr<PackedPanels> weights)
    : Expander(call, finish), weights_(std::move(weights)) {
  for (const Panel& panel : weights_->panels()) {
    panels_.push_back({panel.first, panel.columns, panel.kernel->width});
  }
}

void PanelExpander::multiply_pixels(const float* pixels, int64_t between, int64_t depth,
                                    size_t panel, const Finish& finish, float* to) const {
  const Panel& p = weights_->panels()[panel];
  const Tensor* bias = call().expansion_bias;
  multiply_rows(
      *p.kernel,
      {pixels, between, p.weights, bias == nullptr ? nullptr : bias->data<float>() + p.first, to,
       p.kernel->width, depth, call().sizes[3], p.columns},
      finish);
}

std::unique_ptr<Expander> expander_of(const Expanded& call, const Finish& finish) {
  if (!is_pointwise(call.expansion, call.expansion_parameters)) {
    return call.integers.has_value() ? nullptr : window_expander(call, finish);
  }
  const auto row = row_of_pixels(call.input);
  if (!row) return nullptr;
  if (call.integers.has_value()) {
    const IntegerKernel* kernel = integer_kernel();
    const int64_t depth = call.input.size[1];
    if (kernel == nullptr || *row != depth || depth % kGroup != 0) return nullptr;
    return std::make_unique<IntegerExpander>(call, *kernel, finish);
  }
  return std::make_unique<FloatExpander>(call, *row, finish);
}

}  // namespace menagerie::simd
