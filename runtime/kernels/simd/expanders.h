// The results of a convolution for rows of an image, some channels at a time.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "kernels/simd/kernels.h"
#include "kernels/simd/products.h"

namespace menagerie::simd {

// Channels that are computed together; `width` floats lie from one pixel's to the next's.
struct Channels {
  int64_t first, count, width;
};

// A row of the expanded image, and the input gathered for it.
struct ExpandedRow {
  int64_t image, y;
  const float* gathered;
};

class Expander {
 public:
  Expander(const kernels::Expanded& call, const Finish& finish) : call_(call), finish_(finish) {}
  virtual ~Expander() = default;
  Expander(const Expander&) = delete;
  Expander& operator=(const Expander&) = delete;

  // Return all channels, the widest panel first.
  virtual std::span<const Channels> panels() const = 0;
  // Return the floats of a row's inputs, if all panels read them from memory of their own.
  virtual int64_t gathered() const { return 0; }
  virtual void gather(int64_t, int64_t, float*) const {}
  // Compute the pixels of a row, one after another.
  void expand(const ExpandedRow& row, size_t panel, float* to) const;

 protected:
  virtual void multiply(const ExpandedRow& row, size_t panel, const Finish& finish,
                        float* to) const = 0;
  const kernels::Expanded& call() const { return call_; }

 private:
  const kernels::Expanded& call_;
  const Finish& finish_;
};

// An expander by products of floats.
class PanelExpander : public Expander {
 public:
  PanelExpander(const kernels::Expanded& call, const Finish& finish,
                std::shared_ptr<PackedPanels> weights);
  std::span<const Channels> panels() const override { return panels_; }

 protected:
  // Multiply a row's pixels, each of `depth` numbers, that lie `between` floats apart.
  void multiply_pixels(const float* pixels, int64_t between, int64_t depth, size_t panel,
                       const Finish& finish, float* to) const;

 private:
  std::shared_ptr<PackedPanels> weights_;
  std::vector<Channels> panels_;
};

// Return an expander for floats or integers, as the weight is; null where the kernels do not
// support the operands' layouts or the processor cannot multiply integers.
std::unique_ptr<Expander> expander_of(const kernels::Expanded& call, const Finish& finish);

}  // namespace menagerie::simd
