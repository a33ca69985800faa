#include "common/onednn/weights.h"

#include <algorithm>
#include <vector>

#include "common/constant_cache.h"
#include "common/onednn/kernel.h"
#include "common/x86/packed_panels.h"

namespace menagerie::onednn {
namespace {

// How weights [columns, depth, taps...] lie that follow each other by equal steps; nothing if taps
// do not.
std::optional<x86::PanelLayout> even_layout(const Desc& given) {
  const Dims sizes = given.get_dims(), strides = given.get_strides();
  x86::PanelLayout layout{sizes[0], 1, sizes[1], strides[0], 0, strides[1]};
  for (size_t axis = sizes.size(); axis-- > 2;) {
    if (sizes[axis] == 1) continue;
    if (layout.taps == 1) layout.tap = strides[axis];
    if (strides[axis] != layout.tap * layout.taps) return std::nullopt;
    layout.taps *= sizes[axis];
  }
  return layout;
}

// Whether taps lie between panels and depth, one behind the other.
bool holds_taps(const Desc& wanted, const PanelForm& form) {
  const Dims sizes = wanted.get_dims(), strides = wanted.get_strides();
  int64_t step = form.depth * form.width;
  for (size_t axis = sizes.size(); axis-- > 2; step *= sizes[axis]) {
    if (sizes[axis] > 1 && strides[axis] != step) return false;
  }
  return sizes[0] <= form.width || form.panel == step;
}

// Packs by our own kernels, which take half of the time; false if they have not the layouts.
bool pack_own(const void* data, const Desc& given, const Desc& wanted, float* to) {
  if (given.get_data_type() != dnnl::memory::data_type::f32) return false;
  const auto form = panel_form(wanted, 0, 1);
  const auto layout = even_layout(given);
  if (!form || !layout || !holds_taps(wanted, *form)) return false;
  std::vector<x86::PanelPlace> places;
  const int64_t tap = form->depth * form->width;
  for (int64_t first = 0; first < layout->columns; first += form->width) {
    places.push_back({first, std::min(form->width, layout->columns - first), form->width, tap, to});
    to += layout->taps * tap;
  }
  x86::pack_panels(static_cast<const float*>(data), *layout, places);
  return true;
}

}  // namespace

std::optional<PanelForm> panel_form(const Desc& desc, int columns, int depth) {
  if (desc.get_format_kind() != dnnl::memory::format_kind::blocked ||
      desc.get_data_type() != dnnl::memory::data_type::f32) {
    return std::nullopt;
  }
  const Dims sizes = desc.get_dims(), padded = desc.get_padded_dims(), strides = desc.get_strides();
  const Dims blocks = desc.get_inner_blks(), axes = desc.get_inner_idxs();
  if (blocks.empty()) {
    const bool plain = strides[columns] == 1 && strides[depth] == sizes[columns];
    return plain ? std::optional<PanelForm>({strides[depth], 0, sizes[depth]}) : std::nullopt;
  }
  if (axes.back() != columns) return std::nullopt;
  const int64_t width = blocks.back();
  int64_t deep = 1;
  for (size_t i = 0; i + 1 < blocks.size(); ++i) {
    if (axes[i] != depth) return std::nullopt;
    deep *= blocks[i];
  }
  if (padded[depth] > deep && strides[depth] != deep * width) return std::nullopt;
  return PanelForm{width, strides[columns], padded[depth]};
}

PackedWeight::PackedWeight(const Desc& desc)
    : size_(desc.get_size()),
      memory_(lasting_memory(size_)),
      operand_(desc, engine(), memory_.get()) {}

std::shared_ptr<PackedWeight> packed_weight(const Tensor& tensor, const Desc& given,
                                            const Desc& wanted) {
  Key key("packed");
  key.add(tensor.raw());
  add_to_key(key, given);
  add_to_key(key, wanted);
  return made_once<PackedWeight>(key, tensor, [&] {
    auto made = std::make_shared<PackedWeight>(wanted);
    if (!pack_own(tensor.raw(), given, wanted, made->floats())) {
      Reorder(given, wanted).run({given, engine(), tensor.raw()}, made->operand());
    }
    return made;
  });
}

}  // namespace menagerie::onednn
