// Inserted into every wrapper: gives a fallback kernel's result the strides that the generated code
// around it counts on. Kernels choose their output's layout by rules of their own (torch's depend
// on the thread count); loops index by what code generation assumed. Equal in nearly every case,
// and then this only compares; where they differ, one copy makes the result right.
#pragma once

#include <algorithm>
#include <initializer_list>

namespace torch::aot_inductor {

inline bool has_strides(const int64_t* sizes, const int64_t* strides,
                        std::initializer_list<int64_t> expected) {
  for (size_t i = 0; i < expected.size(); ++i) {
    if (sizes[i] > 1 && strides[i] != expected.begin()[i]) return false;
  }
  return true;
}

inline void lay_out(RAIIAtenTensorHandle& tensor, std::initializer_list<int64_t> sizes,
                    std::initializer_list<int64_t> strides, const char* kernel) {
  int64_t rank = 0, count = 0;
  int64_t *actual_sizes = nullptr, *actual_strides = nullptr;
  AOTI_TORCH_ERROR_CODE_CHECK(aoti_torch_get_dim(tensor.get(), &rank));
  AOTI_TORCH_ERROR_CODE_CHECK(aoti_torch_get_numel(tensor.get(), &count));
  AOTI_TORCH_ERROR_CODE_CHECK(aoti_torch_get_sizes(tensor.get(), &actual_sizes));
  AOTI_TORCH_ERROR_CODE_CHECK(aoti_torch_get_strides(tensor.get(), &actual_strides));
  AOTI_RUNTIME_CHECK(rank == static_cast<int64_t>(sizes.size()) &&
                         std::equal(sizes.begin(), sizes.end(), actual_sizes),
                     std::string(kernel) + " returned another shape than was compiled for");
  if (count == 0 || has_strides(actual_sizes, actual_strides, strides)) return;
  int32_t dtype = 0, device = 0;
  AOTI_TORCH_ERROR_CODE_CHECK(aoti_torch_get_dtype(tensor.get(), &dtype));
  AOTI_TORCH_ERROR_CODE_CHECK(aoti_torch_get_device_type(tensor.get(), &device));
  AtenTensorHandle fresh = nullptr;
  AOTI_TORCH_ERROR_CODE_CHECK(
      aoti_torch_empty_strided(rank, sizes.begin(), strides.begin(), dtype, device, 0, &fresh));
  RAIIAtenTensorHandle result(fresh);
  AOTI_TORCH_ERROR_CODE_CHECK(aoti_torch_copy_(fresh, tensor.get(), 0));
  tensor = std::move(result);
}

// Called first by each wrapper; the runtime has compared inputs with the manifest.
inline void __check_inputs_outputs(AtenTensorHandle*, AtenTensorHandle*) {}

}  // namespace torch::aot_inductor
// Inserted into every wrapper and into the interface: what is a model's own in its constructor, as
// data. The constructor itself is in the interface, since compiling it takes as long as all the
// rest of a small model's wrapper.

#include <cstdint>

namespace torch::aot_inductor {

struct ConstantFacts {
  const char* name;
  int32_t (*dtype)();
  int32_t (*device_type)();
  int64_t offset;
  size_t data_size;
  bool from_folded;
  int32_t type;
  int64_t axes;
  int32_t (*layout)();
  const char* original_fqn;
};

struct ModelFacts {
  size_t inputs, outputs, constants;
  const char* const* names;        // of the inputs, then of the outputs
  const ConstantFacts* described;  // one for each constant
  const int64_t* extents;          // of each constant its sizes, then its strides
};

extern const ModelFacts model_facts;

// A model as its wrapper sees it, which has no need of the headers of torch's own class.
class Program {
 public:
  struct Kernels {  // that Inductor's code asks for: all of ours are functions
    Kernels* get() { return this; }
  };

  Program(std::vector<ConstantHandle>* constants, int32_t device)
      : constants_(constants), device_idx_(device) {}

  void run_impl(AtenTensorHandle* inputs, AtenTensorHandle* outputs, void* stream,
                AOTIProxyExecutorHandle executor);

 private:
  static void _const_run_impl(std::vector<AtenTensorHandle>&, void*, AOTIProxyExecutorHandle);

  std::vector<ConstantHandle>* constants_;
  int32_t device_idx_;
  Kernels kernels_;
};

#ifdef MENAGERIE_INTERFACE
AOTInductorModel::AOTInductorModel(std::shared_ptr<ConstantMap> constants_map,
                                   std::shared_ptr<std::vector<ConstantHandle>> constants_array,
                                   const std::string& device_str,
                                   std::optional<std::string> cubin_dir)
    : AOTInductorModelBase(model_facts.inputs, model_facts.outputs, model_facts.constants,
                           device_str, std::move(cubin_dir), false) {
  const char* const* name = model_facts.names;
  for (auto& input : inputs_info_) input.name = *name++;
  for (auto& output : outputs_info_) output.name = *name++;
  const ConstantFacts* facts = model_facts.described;
  const int64_t* extents = model_facts.extents;
  for (auto& constant : constants_info_) {
    constant.name = facts->name;
    constant.dtype = facts->dtype();
    constant.device_type = facts->device_type();
    constant.offset = facts->offset;
    constant.data_size = facts->data_size;
    constant.from_folded = facts->from_folded;
    constant.type = facts->type;
    constant.shape.assign(extents, extents + facts->axes);
    constant.stride.assign(extents + facts->axes, extents + 2 * facts->axes);
    constant.layout = facts->layout();
    constant.original_fqn = facts->original_fqn;
    extents += 2 * facts->axes;
    ++facts;
  }
  update_constants_map(std::move(constants_map));
  update_constants_array(std::move(constants_array));
}

void AOTInductorModel::run_impl(AtenTensorHandle* inputs, AtenTensorHandle* outputs,
                                DeviceStreamType stream, AOTIProxyExecutorHandle executor) {
  Program(constants_.get(), device_idx_).run_impl(inputs, outputs, stream, executor);
}

// Constants are folded before code is generated.
std::unordered_map<std::string, AtenTensorHandle> AOTInductorModel::const_run_impl(
    DeviceStreamType, AOTIProxyExecutorHandle, bool) {
  return {};
}
#endif

}  // namespace torch::aot_inductor

#ifdef MENAGERIE_INTERFACE
template class torch::aot_inductor::AOTInductorModelBase<torch::aot_inductor::AOTInductorModel>;
// Inductor asks for them even when no constant is embedded.
unsigned char _binary_constants_bin_start[64], _binary_constants_bin_end[1];
#endif
