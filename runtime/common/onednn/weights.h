// Constant weights in the layouts that oneDNN chooses, most of which are panels of columns.
#pragma once

#include <memory>
#include <optional>

#include "common/onednn/support.h"

namespace menagerie::onednn {

// A layout of floats whose columns lie in panels: [panels, ..., depth, width], all other axes
// between them.
struct PanelForm {
  int64_t width;  // a multiple of it, or all there are, are the columns
  int64_t panel;  // floats to the next
  int64_t depth;  // with what pads it
};

// That of a layout, if it is one, with its axes of columns and depth.
std::optional<PanelForm> panel_form(const Desc& desc, int columns, int depth);

// A constant in a kernel's layout, in memory of its own: it stays, so the arena is not for it.
class PackedWeight : public Prepared {
 public:
  explicit PackedWeight(const Desc& desc);
  size_t bytes() const override { return size_; }
  float* floats() const { return memory_.get(); }
  dnnl::memory operand() const { return operand_; }

 private:
  size_t size_;
  std::shared_ptr<float> memory_;
  dnnl::memory operand_;
};

// A constant tensor, which lies as `given`, as a primitive wants it; made once.
std::shared_ptr<PackedWeight> packed_weight(const Tensor& tensor, const Desc& given,
                                            const Desc& wanted);

}  // namespace menagerie::onednn
