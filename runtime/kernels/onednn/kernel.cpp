#include "kernels/onednn/kernel.h"

#include <xmmintrin.h>

#include <algorithm>
#include <atomic>
#include <vector>

#include "common/context.h"
#include "common/copy.h"
#include "common/platform/threads.h"
#include "kernels/finish.h"
#include "kernels/onednn/onednn.h"
#include "kernels/panels.h"

namespace menagerie::onednn {
namespace {

dnnl::memory unbound(const Desc& desc) { return {desc, engine(), nullptr}; }

std::shared_ptr<Storage> scratch(size_t bytes) {
  return Storage::allocate(Context::current().arena(), bytes);
}

}  // namespace

Reorder::Reorder(const Desc& from, const Desc& to) {
  dnnl::primitive_attr attributes;
  attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  const dnnl::reorder::primitive_desc descriptor(engine(), from, engine(), to, attributes);
  primitive_ = dnnl::reorder(descriptor);
  scratchpad_ = descriptor.scratchpad_desc();
}

std::shared_ptr<Reorder> Reorder::between(const Desc& from, const Desc& to) {
  Context& context = Context::current();
  Key key("reorder");
  key.add(int64_t{context.threads()});
  add_to_key(key, from);
  add_to_key(key, to);
  return context.kernels().get<Reorder>(key, [&] { return std::make_shared<Reorder>(from, to); });
}

void Reorder::run(const dnnl::memory& from, const dnnl::memory& to) const {
  const auto space = scratch(scratchpad_.get_size());
  primitive_.execute(stream(), {{DNNL_ARG_FROM, from},
                                {DNNL_ARG_TO, to},
                                {DNNL_ARG_SCRATCHPAD, {scratchpad_, engine(), space->data()}}});
}

Kernel::Kernel(const ChosenPrimitive& chosen)
    : primitive_(chosen.primitive),
      scratchpad_(unbound(chosen.scratchpad)),
      scratchpad_bytes_(chosen.scratchpad.get_size()),
      reference_(chosen.reference),
      by_gemm_(chosen.by_gemm) {
  arguments_.emplace(DNNL_ARG_SCRATCHPAD, scratchpad_);
}

void Kernel::add(int argument, const Desc& given, const Desc& wanted, Role role) {
  Operand operand;
  operand.inside = unbound(wanted);
  operand.direct = same_layout(given, wanted);
  if (!operand.direct) {
    operand.outside = unbound(given);
    if (role != Role::kWritten) operand.into = Reorder::between(given, wanted);
    if (role != Role::kRead) operand.back = Reorder::between(wanted, given);
  }
  arguments_.emplace(argument, operand.inside);
  operands_.push_back(std::move(operand));
}

void Kernel::add_constant(int argument, const Tensor& tensor, const Desc& given,
                          const Desc& wanted) {
  if (same_layout(given, wanted)) {
    arguments_.emplace(argument, dnnl::memory(wanted, engine(), tensor.raw()));
    return;
  }
  add_packed(argument, packed_weight(tensor, given, wanted));
}

void Kernel::add_packed(int argument, std::shared_ptr<PackedWeight> weight) {
  arguments_.emplace(argument, weight->operand());
  constants_.push_back(std::move(weight));
}

void Kernel::add_fixed(int argument, const Desc& desc, const void* address) {
  arguments_.emplace(argument, dnnl::memory(desc, engine(), const_cast<void*>(address)));
}

void Kernel::run(const std::vector<void*>& addresses) {
  require(addresses.size() == operands_.size(), "a kernel of ", operands_.size(),
          " operands is called with ", addresses.size());
  std::vector<std::shared_ptr<Storage>> spaces;
  for (size_t i = 0; i < operands_.size(); ++i) {
    Operand& operand = operands_[i];
    if (operand.direct) {
      operand.inside.set_data_handle(addresses[i]);
      continue;
    }
    spaces.push_back(scratch(operand.inside.get_desc().get_size()));
    operand.inside.set_data_handle(spaces.back()->data());
    operand.outside.set_data_handle(addresses[i]);
    if (operand.into) operand.into->run(operand.outside, operand.inside);
  }
  if (scratchpad_bytes_ > 0) {
    spaces.push_back(scratch(scratchpad_bytes_));
    scratchpad_.set_data_handle(spaces.back()->data());
  }
  primitive_.execute(stream(), arguments_);
  for (const Operand& operand : operands_) {
    if (operand.back) operand.back->run(operand.inside, operand.outside);
  }
}

namespace {

// MXCSR's flag of an invalid operation: MAXPS and MINPS set it for a quiet NaN too (Intel's manual,
// volume 2).
constexpr unsigned kInvalid = 1;

// Return whether a thread has the flag, and clear it.
bool met_nan() {
  std::atomic<bool> met = false;
  const auto look = [](void* data) {
    if ((_mm_getcsr() & kInvalid) == 0) return;
    _mm_setcsr(_mm_getcsr() & ~kInvalid);
    *static_cast<std::atomic<bool>*>(data) = true;
  };
  const int32_t threads = threads::chosen();
  threads > 1 ? threads::run_on_each(look, &met, static_cast<size_t>(threads)) : look(&met);
  return met;
}

// Return whether oneDNN's activation turns a NaN into a number.
bool loses_nan(kernels::Activation activation) {
  using kernels::Activation;
  return activation == Activation::kRelu || activation == Activation::kClamp ||
         activation == Activation::kHardSigmoid;
}

// Apply the activation in place, by a loop that lets a NaN pass.
void activate_plainly(const kernels::Epilogue& epilogue, const Tensor& tensor) {
  constexpr size_t kTask = 1 << 14;  // elements that are worth another thread
  const bool direct = tensor.dtype == Dtype::kFloat32 &&
                      extent(tensor.sizes(), tensor.strides()) == tensor.elements();
  const Tensor values = direct ? tensor : widened(tensor);
  threads::share_out(static_cast<size_t>(values.elements()), kTask, [&](threads::Tasks& tasks) {
    for (size_t i = 0, end = 0; tasks.take(i, end);) {
      portable::activate(epilogue, values.data<float>() + i, static_cast<int64_t>(end - i));
    }
  });
  if (!direct) assign(values, tensor);
}

}  // namespace

void finish(const kernels::Epilogue& epilogue, const Tensor& output, bool may_repeat,
            const std::function<void(const kernels::Epilogue&)>& compute) {
  if (!loses_nan(epilogue.activation)) return compute(epilogue);
  if (may_repeat) {
    _mm_setcsr(_mm_getcsr() & ~kInvalid);
    compute(epilogue);
    if (!met_nan()) return;
  }
  kernels::Epilogue plain = epilogue;
  plain.activation = kernels::Activation::kNone;
  compute(plain);
  activate_plainly(epilogue, output);
}

void activate(const kernels::Epilogue& epilogue, const Tensor& tensor) {
  const auto wanted = eltwise_of(epilogue);
  if (!wanted) return;
  if (loses_nan(epilogue.activation)) return activate_plainly(epilogue, tensor);
  Key key("activation");
  key.add(int64_t{Context::current().threads()});
  add_to_key(key, tensor);
  key.add(static_cast<int64_t>(epilogue.activation));
  key.add(double{epilogue.alpha}).add(double{epilogue.beta});
  const auto make = [&] {
    const Desc desc = strided(tensor);
    const dnnl::eltwise_forward::primitive_desc descriptor(
        engine(), dnnl::prop_kind::forward_inference, wanted->algorithm, desc, desc, wanted->alpha,
        wanted->beta, attributes({.epilogue = {}}));
    ChosenPrimitive chosen;
    chosen.primitive = dnnl::eltwise_forward(descriptor);
    chosen.scratchpad = descriptor.scratchpad_desc();
    auto kernel = std::make_shared<Kernel>(chosen);
    kernel->add(DNNL_ARG_SRC, desc, desc);
    kernel->add(DNNL_ARG_DST, desc, desc, Kernel::Role::kWritten);
    return kernel;
  };
  Context::current().kernels().get<Kernel>(key, make)->run({tensor.raw(), tensor.raw()});
}

namespace {

// Return the layout of weights [columns, depth, taps...] that follow each other by equal steps;
// nothing if taps do not.
std::optional<kernels::PanelLayout> even_layout(const Desc& given) {
  const Dims sizes = given.get_dims(), strides = given.get_strides();
  kernels::PanelLayout layout{sizes[0], 1, sizes[1], strides[0], 0, strides[1]};
  for (size_t axis = sizes.size(); axis-- > 2;) {
    if (sizes[axis] == 1) continue;
    if (layout.taps == 1) layout.tap = strides[axis];
    if (strides[axis] != layout.tap * layout.taps) return std::nullopt;
    layout.taps *= sizes[axis];
  }
  return layout;
}

// Return whether taps lie between panels and depth, one behind another.
bool holds_taps(const Desc& wanted, const PanelForm& form) {
  const Dims sizes = wanted.get_dims(), strides = wanted.get_strides();
  int64_t step = form.depth * form.width;
  for (size_t axis = sizes.size(); axis-- > 2; step *= sizes[axis]) {
    if (sizes[axis] > 1 && strides[axis] != step) return false;
  }
  return sizes[0] <= form.width || form.panel == step;
}

// Pack by our own kernels, which take half the time; return false if they lack the layouts.
bool pack_own(const void* data, const Desc& given, const Desc& wanted, float* to) {
  if (given.get_data_type() != dnnl::memory::data_type::f32) return false;
  const auto form = panel_form(wanted, 0, 1);
  const auto layout = even_layout(given);
  if (!form || !layout || !holds_taps(wanted, *form)) return false;
  std::vector<kernels::PanelPlace> places;
  const int64_t tap = form->depth * form->width;
  for (int64_t first = 0; first < layout->columns; first += form->width) {
    places.push_back({first, std::min(form->width, layout->columns - first), form->width, tap, to});
    to += layout->taps * tap;
  }
  kernels::pack_panels(static_cast<const float*>(data), *layout, places);
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
