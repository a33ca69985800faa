// A primitive bound to its operands: descriptors, memory objects and reorders are made once; a call
// only sets addresses. It belongs to one context, so that one call runs at a time.
#pragma once

#include <initializer_list>
#include <memory>
#include <optional>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "kernels/onednn/support.h"

namespace menagerie::onednn {

class PackedWeight;

// A primitive as oneDNN has chosen it, with the layouts it takes.
struct ChosenPrimitive {
  dnnl::primitive primitive;
  Desc source;
  Desc weights;
  Desc bias;
  Desc target;
  Desc scratchpad;
  bool reference = false;  // oneDNN has nothing better than its plain loops
  bool by_gemm = false;    // its sigmoid turns a NaN into 0
};

template <class Operator, class Descriptor>
ChosenPrimitive choose(const Descriptor& descriptor) {
  return {Operator(descriptor),
          descriptor.src_desc(),
          descriptor.weights_desc(),
          descriptor.query_md(dnnl::query::weights_md, 1),
          descriptor.dst_desc(),
          descriptor.scratchpad_desc(),
          std::string_view(descriptor.impl_info_str()).starts_with("ref"),
          std::string_view(descriptor.impl_info_str()).find("gemm:") != std::string_view::npos};
}

// A copy from one layout to another.
class Reorder : public Prepared {
 public:
  Reorder(const Desc& from, const Desc& to);
  // Return the reorder for these layouts, kept by the current context.
  static std::shared_ptr<Reorder> between(const Desc& from, const Desc& to);
  void run(const dnnl::memory& from, const dnnl::memory& to) const;

 private:
  dnnl::reorder primitive_;
  Desc scratchpad_;
};

class Kernel : public Prepared {
 public:
  enum class Role { kRead, kWritten, kUpdated };

  explicit Kernel(const ChosenPrimitive& chosen);

  // Add the next operand: tensors come as `given`, the primitive takes them as `wanted`.
  void add(int argument, const Desc& given, const Desc& wanted, Role role = Role::kRead);
  // Add an operand that stays: packed now, unless its layout is already the wanted one. The
  // kernel's key must hold its address.
  void add_constant(int argument, const Tensor& tensor, const Desc& given, const Desc& wanted);

  // Add an operand that is already packed.
  void add_packed(int argument, std::shared_ptr<PackedWeight> weight);

  // Add an operand that stays where it is, unchanged. The kernel's key must hold its address.
  void add_fixed(int argument, const Desc& desc, const void* address);

  // Return whether oneDNN has only its plain loops for it.
  bool is_reference() const { return reference_; }
  bool loses_nan_in_sigmoid() const { return reference_ || by_gemm_; }

  // Run over the operands at these addresses, in the order in which they were added.
  void run(const std::vector<void*>& addresses);

 private:
  struct Operand {
    dnnl::memory inside;            // as the primitive takes it
    dnnl::memory outside;           // as the tensor comes
    std::shared_ptr<Reorder> into;  // null: not needed
    std::shared_ptr<Reorder> back;  // null: not needed
    bool direct = false;            // inside is outside
  };

  dnnl::primitive primitive_;
  dnnl::memory scratchpad_;
  size_t scratchpad_bytes_;
  bool reference_, by_gemm_;
  std::vector<Operand> operands_;
  std::unordered_map<int, dnnl::memory> arguments_;
  std::vector<std::shared_ptr<Prepared>> constants_;
};

// Apply an epilogue's activation in place.
void activate(const kernels::Epilogue& epilogue, const Tensor& tensor);

// A layout of floats whose columns lie in panels: [panels, ..., depth, width], with all other axes
// between them.
struct PanelForm {
  int64_t width;  // columns in a panel: a divisor of their number, or all of them
  int64_t panel;  // floats to the next panel
  int64_t depth;  // including its padding
};

// Return the panel form of a layout, if it has one, from its axes of columns and depth.
std::optional<PanelForm> panel_form(const Desc& desc, int columns, int depth);

// A constant in a kernel's layout, in memory of its own: it stays, so it is not in the arena.
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

// Return a constant tensor, stored as `given`, as a primitive takes it; made once.
std::shared_ptr<PackedWeight> packed_weight(const Tensor& tensor, const Desc& given,
                                            const Desc& wanted);

}  // namespace menagerie::onednn
