#include "common/program.h"

#include <map>
#include <set>

#include "common/backend.h"
#include "common/copy.h"
#include "common/platform/threads.h"

namespace menagerie {
namespace {

// The library and the weights know one constant by different names.
std::map<std::string, std::string> weight_names(const ProgramSpec& spec) {
  return {spec.constants.begin(), spec.constants.end()};
}

// The library states a constant's size in bytes as in a blob of its own: rounded up.
bool fills(size_t bytes, size_t stated) {
  constexpr size_t kBlobAlignment = 64;
  const size_t rounded = (bytes + kBlobAlignment - 1) / kBlobAlignment * kBlobAlignment;
  return stated == bytes || stated == rounded;
}

void check_axis(const TensorSpec& spec, size_t axis, int64_t size,
                std::map<std::string, int64_t>& seen) {
  const Axis& wanted = spec.shape[axis];
  if (size < wanted.lowest || size > wanted.highest) {
    const bool fixed = wanted.lowest == wanted.highest;
    fail("input ", spec.name, ": axis ", axis, " has size ", size, ", the program takes ",
         wanted.lowest, fixed ? "" : " to " + std::to_string(wanted.highest),
         fixed ? "" : " (" + wanted.name + ")");
  }
  if (wanted.name.empty()) return;
  require(size % wanted.step == 0, "input ", spec.name, ": axis ", axis, " has size ", size,
          ", but ", wanted.name, " must be a multiple of ", wanted.step);
  const auto [place, fresh] = seen.emplace(wanted.name, size);
  require(fresh || place->second == size, "input ", spec.name, ": axis ", axis, " has size ", size,
          ", but ", wanted.name, " is ", place->second, " in an earlier axis");
}

}  // namespace

Program::Program(std::shared_ptr<const Bundle> bundle, const std::string& name, int32_t threads)
    : bundle_(std::move(bundle)),
      spec_(bundle_->manifest().program(name)),
      context_(threads, bundle_),
      most_threads_(threads == 0 ? context_.threads() : 0),
      library_(bundle_->library(spec_)) {
  require(library_.input_count() == spec_.inputs.size(), "program ", name, ": the library takes ",
          library_.input_count(), " inputs, the manifest lists ", spec_.inputs.size());
  require(library_.output_count() == spec_.outputs.size(), "program ", name, ": the library gives ",
          library_.output_count(), " outputs, the manifest lists ", spec_.outputs.size());
  load_constants();
}

Program::~Program() {
  const Context::Loan loan(context_);  // the library releases what it has from this context
  outputs_.clear();
  library_.close();
  constants_.clear();
  state_.clear();
}

void Program::load_constants() {
  const auto names = weight_names(spec_);
  std::vector<std::pair<std::string, TensorHandle>> handles;
  bool folds = false;
  const Context::Loan loan(context_);
  for (const ConstantInfo& info : library_.constants()) {
    folds = folds || info.folded;
    if (info.folded) continue;
    auto found = names.find(info.original_name);
    if (found == names.end()) found = names.find(info.name);  // a constant that a pass made
    require(found != names.end(), "program ", spec_.name, ": the manifest gives no weights for ",
            info.original_name.empty() ? info.name : info.original_name);
    weights_bytes_ += info.bytes;
    Tensor tensor = bundle_->constant(found->second, info.dtype);
    require(static_cast<int32_t>(tensor.dtype) == info.dtype &&
                fills(tensor.storage->bytes(), info.bytes),
            "program ", spec_.name, ": weights ", found->second, " are ", tensor,
            ", the library wants ", info.bytes, " bytes of dtype number ", info.dtype);
    constants_.push_back(std::make_unique<Tensor>(own_if_changed(found->first, std::move(tensor))));
    handles.emplace_back(info.name, constants_.back().get());
  }
  require(state_.size() == spec_.state.size(), "program ", spec_.name,
          ": the library lacks a constant that the manifest lists as state");
  context_.keep_second_handles(&constants_);
  library_.set_constants(handles);
  context_.keep_second_handles(nullptr);
  if (folds) library_.fold_constants();
  if (folds || !state_.empty()) backend::finish();
}

Tensor Program::own_if_changed(const std::string& name, Tensor constant) {
  if (!spec_.state.contains(name)) return constant;
  state_.push_back({constant, backend::clone(constant)});
  return state_.back().own;
}

void Program::reset() {
  const std::lock_guard lock(mutex_);
  const Context::Loan loan(context_);
  for (const Kept& kept : state_) backend::assign(kept.first, kept.own);
  backend::finish();
  state_lost_ = false;
}

void Program::check_inputs(std::span<const Tensor> inputs) const {
  require(inputs.size() == spec_.inputs.size(), "program ", spec_.name, " takes ",
          spec_.inputs.size(), " inputs, not ", inputs.size());
  std::map<std::string, int64_t> seen;
  for (size_t i = 0; i < inputs.size(); ++i) {
    const TensorSpec& wanted = spec_.inputs[i];
    const Tensor& given = inputs[i];
    require(given.dtype == wanted.dtype, "input ", wanted.name, ": dtype is ",
            info(given.dtype).name, ", the program takes ", info(wanted.dtype).name);
    require(given.dimensions == static_cast<int32_t>(wanted.shape.size()), "input ", wanted.name,
            ": has ", given.dimensions, " axes, the program takes ", wanted.shape.size());
    for (size_t axis = 0; axis < wanted.shape.size(); ++axis) {
      check_axis(wanted, axis, given.size[axis], seen);
    }
  }
}

// Generated code shares out each loop or none, whatever the loop does: this little is not worth it.
// A GPU's work has threads of its own.
int32_t Program::threads_for(std::span<const Tensor> inputs) const {
  constexpr size_t kWorthBytes = size_t{512} << 10;
  size_t bytes = weights_bytes_;
  for (const Tensor& input : inputs) {
    bytes += static_cast<size_t>(input.elements() * element_size(input.dtype));
  }
  const bool little = backend::kDeviceType == kCpuDevice && bytes < kWorthBytes;
  return little ? 1 : most_threads_;
}

std::span<const Tensor> Program::run(std::span<const Tensor> inputs) {
  const std::lock_guard lock(mutex_);
  check_inputs(inputs);
  require(!state_lost_, "program ", spec_.name,
          ": its state was lost in a run that failed. Reset it first");
  outputs_.clear();
  if (most_threads_ != 0) context_.set_threads(threads_for(inputs));
  const threads::Run run(context_.threads(), most_threads_);
  const Context::Loan loan(context_);
  Tensors owned;
  for (const Tensor& input : inputs) {
    owned.push_back(std::make_unique<Tensor>(backend::bring_in(input)));
  }
  std::vector<TensorHandle> given;
  for (auto& tensor : owned) given.push_back(tensor.release());
  state_lost_ = !state_.empty();
  for (const auto& result : compute(given)) {
    // An output that is an input passed through must not outlive the caller's memory.
    outputs_.push_back(result->storage->is_owned() ? *result : contiguous(*result));
  }
  state_lost_ = false;
  context_.arena()->end_run();
  backend::end_run();
  return outputs_;
}

Tensors Program::compute(std::vector<TensorHandle>& inputs) {
  std::vector<TensorHandle> results(spec_.outputs.size(), nullptr);
  const auto taken = [&] {
    Tensors owned;
    std::set<TensorHandle> seen;  // a tensor that is two outputs is one handle that occurs twice
    for (TensorHandle result : results) {
      const bool again = result != nullptr && !seen.insert(result).second;
      owned.push_back(again ? std::make_unique<Tensor>(*result) : std::unique_ptr<Tensor>(result));
    }
    return owned;
  };
  try {
    library_.run(inputs, results);
    backend::finish();
    return taken();
  } catch (...) {
    taken();
    backend::abandon();
    throw;
  }
}

void Program::set_profiling(bool on) {
  const std::lock_guard lock(mutex_);
  context_.set_profiling(on);
}

void Program::set_threads(int32_t threads) {
  const std::lock_guard lock(mutex_);
  context_.set_threads(threads);
  most_threads_ = threads == 0 ? context_.threads() : 0;
}

}  // namespace menagerie
