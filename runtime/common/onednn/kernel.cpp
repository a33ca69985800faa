#include "common/onednn/kernel.h"

#include "common/onednn/weights.h"

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

Kernel::Kernel(const Chosen& chosen)
    : primitive_(chosen.primitive),
      scratchpad_(unbound(chosen.scratchpad)),
      scratchpad_bytes_(chosen.scratchpad.get_size()),
      reference_(chosen.reference) {
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

void activate(const kernels::Epilogue& epilogue, const Tensor& tensor) {
  const auto wanted = eltwise_of(epilogue);
  if (!wanted) return;
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
    Chosen chosen;
    chosen.primitive = dnnl::eltwise_forward(descriptor);
    chosen.scratchpad = descriptor.scratchpad_desc();
    auto kernel = std::make_shared<Kernel>(chosen);
    kernel->add(DNNL_ARG_SRC, desc, desc);
    kernel->add(DNNL_ARG_DST, desc, desc, Kernel::Role::kWritten);
    return kernel;
  };
  Context::current().kernels().get<Kernel>(key, make)->run({tensor.raw(), tensor.raw()});
}

}  // namespace menagerie::onednn
