// Launching generated shaders: the aoti_torch_mps_* functions that a wrapper calls around its
// kernels. A wrapper keeps its handles in statics of the library, which programs may share: they
// hold nothing of a program or a thread.
#include <algorithm>
#include <cstring>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "common/bundle.h"
#include "common/mapped_file.h"
#include "common/sha256.h"
#include "common/shim_support.h"
#include "metal/state.h"

using namespace menagerie;
using namespace menagerie::metal;

namespace {

constexpr size_t kMaxSource = size_t{64} << 20;

struct Function {
  std::shared_ptr<Kernel> kernel;
};

struct Library {
  std::shared_ptr<ShaderLibrary> shaders;
  std::mutex mutex;
  std::map<std::string, std::unique_ptr<Function>> functions;
};

// What this thread has set for the kernel that it is about to dispatch.
struct Pending {
  const Function* function = nullptr;
  std::vector<Argument> arguments;
};
thread_local Pending pending;

Library& library_of(AOTIMetalShaderLibraryHandle handle) {
  require(handle != nullptr, "the shader library's handle is null");
  return *reinterpret_cast<Library*>(handle);
}

Function& function_of(AOTIMetalKernelFunctionHandle handle) {
  require(handle != nullptr, "the kernel function's handle is null");
  return *reinterpret_cast<Function*>(handle);
}

// "menagerie:<path in the bundle>:<sha256>".
constexpr std::string_view kScheme = "menagerie:";

std::string bundled_source(std::string_view reference) {
  const Bundle* bundle = Context::current().bundle();
  require(bundle != nullptr, "no program is running whose bundle could hold ", reference);
  reference.remove_prefix(kScheme.size());
  const size_t colon = reference.rfind(':');
  require(colon != std::string_view::npos, "\"", reference, "\" is not a path and a sha256");
  const std::string path(reference.substr(0, colon));
  const std::string_view digest = reference.substr(colon + 1);
  const Manifest& manifest = bundle->manifest();
  const auto lists = [&](const ProgramSpec& program) {
    const auto shaders = program.files.find("shaders");
    return shaders != program.files.end() && shaders->second == path;
  };
  require(std::ranges::any_of(manifest.programs, lists), "the manifest lists no shaders \"", path,
          "\"");
  require(manifest.files.contains("shader_header"), "the manifest lists no shader_header");
  require(manifest.file(path).sha256 == digest, path, ": the library was made for sha256 ", digest,
          ", the manifest says ", manifest.file(path).sha256);
  return read_text(*bundle->checked_hash(manifest.files.at("shader_header")), kMaxSource) + "\n" +
         read_text(*bundle->checked_hash(path), kMaxSource);
}

// Libraries of this process by the hash of their text: models that ask for the same share it, and a
// model loaded twice compiles once. One that is not held any more is forgotten.
std::shared_ptr<ShaderLibrary> compiled(const std::string& source) {
  struct Cache {
    std::mutex mutex;
    std::map<std::string, std::weak_ptr<ShaderLibrary>> libraries;
  };
  static auto* cache = new Cache;  // wrappers give their libraries back as the process ends
  const std::string key = sha256(std::as_bytes(std::span(source)));
  const std::lock_guard lock(cache->mutex);
  std::erase_if(cache->libraries, [](const auto& entry) { return entry.second.expired(); });
  std::weak_ptr<ShaderLibrary>& known = cache->libraries[key];
  std::shared_ptr<ShaderLibrary> library = known.lock();
  if (library == nullptr) {
    library = MetalDevice::instance().compile(source);
    known = library;
  }
  return library;
}

void set_argument(AOTIMetalKernelFunctionHandle handle, Argument argument) {
  require(&function_of(handle) == pending.function, "the kernel's encoding has not been started");
  const auto same = std::ranges::find(pending.arguments, argument.index, &Argument::index);
  if (same != pending.arguments.end()) {
    *same = std::move(argument);
  } else {
    pending.arguments.push_back(std::move(argument));
  }
}

std::array<uint64_t, 3> extents(std::span<const uint64_t> given, std::string_view name) {
  require(!given.empty() && given.size() <= 3, name, " has ", given.size(), " axes, not 1 to 3");
  std::array<uint64_t, 3> extents{1, 1, 1};
  std::ranges::copy(given, extents.begin());
  return extents;
}

void launch(AOTIMetalKernelFunctionHandle handle, const Grid& grid) {
  const Function& function = function_of(handle);
  require(&function == pending.function, "the kernel's encoding has not been started");
  const uint64_t group = grid.group[0] * grid.group[1] * grid.group[2];
  const uint64_t most = function.kernel->max_threads_per_group();
  require(group > 0 && group <= most, "kernel ", function.kernel->name(), ": a group of ", group,
          " threads is not between 1 and ", most);
  for (const auto& [index, name] : function.kernel->buffers()) {
    require(
        std::ranges::find(pending.arguments, index, &Argument::index) != pending.arguments.end(),
        "kernel ", function.kernel->name(), ": argument ", index, " (", name, ") is not set");
  }
  Context::current().count_kernel();
  if (std::ranges::find(grid.threads, 0u) != grid.threads.end()) return;
  State::current().stream().dispatch(function.kernel, pending.arguments, grid);
}

std::span<const uint64_t> lengths(const uint64_t* first, size_t count) {
  return list(first, static_cast<int64_t>(count));
}

}  // namespace

MENAGERIE_SHIM aoti_torch_mps_create_shader_library(const char* metal_shader_source,
                                                    AOTIMetalShaderLibraryHandle* library_handle) {
  return guarded(__func__, [&] {
    require(metal_shader_source != nullptr, "the source is null");
    const std::string_view text = metal_shader_source;
    auto library = std::make_unique<Library>();
    library->shaders =
        compiled(text.starts_with(kScheme) ? bundled_source(text) : std::string(text));
    *library_handle = reinterpret_cast<AOTIMetalShaderLibraryHandle>(library.release());
  });
}

MENAGERIE_SHIM
aoti_torch_mps_delete_shader_library(AOTIMetalShaderLibraryHandle library_handle) {
  return guarded(__func__, [&] { delete reinterpret_cast<Library*>(library_handle); });
}

// The function belongs to the library, as torch's does.
MENAGERIE_SHIM aoti_torch_mps_get_kernel_function(AOTIMetalShaderLibraryHandle library_handle,
                                                  const char* kernel_name,
                                                  AOTIMetalKernelFunctionHandle* function_handle) {
  return guarded(__func__, [&] {
    Library& library = library_of(library_handle);
    require(kernel_name != nullptr, "the kernel's name is null");
    const std::lock_guard lock(library.mutex);
    auto& function = library.functions[kernel_name];
    if (function == nullptr) {
      function = std::make_unique<Function>(Function{library.shaders->kernel(kernel_name)});
    }
    *function_handle = reinterpret_cast<AOTIMetalKernelFunctionHandle>(function.get());
  });
}

MENAGERIE_SHIM aoti_torch_mps_start_encoding(AOTIMetalKernelFunctionHandle func) {
  return guarded(__func__, [&] {
    pending = {};
    pending.function = &function_of(func);
  });
}

MENAGERIE_SHIM aoti_torch_mps_set_arg_tensor(AOTIMetalKernelFunctionHandle func, unsigned idx,
                                             AtenTensorHandle tensor) {
  return guarded(__func__, [&] {
    const Tensor& value = operand(tensor);
    if (on_device(value)) return set_argument(func, {idx, region_of(value), {}, 0});
    // A number that stayed on the host travels by value, as Metal's setBytes has it. Kernels have
    // no float64, and take a float instead (pytorch: aten/src/ATen/native/mps/OperationUtils.h).
    require(value.elements() == 1, "argument ", idx, ": ", value, " is not on the device");
    Argument argument{idx, {}, {}, static_cast<size_t>(element_size(value.dtype))};
    if (value.dtype == Dtype::kFloat64) {
      const auto number = static_cast<float>(*value.data<double>());
      argument.value_bytes = sizeof number;
      std::memcpy(argument.value.data(), &number, sizeof number);
    } else {
      std::memcpy(argument.value.data(), value.raw(), argument.value_bytes);
    }
    set_argument(func, std::move(argument));
  });
}

MENAGERIE_SHIM aoti_torch_mps_set_arg_int(AOTIMetalKernelFunctionHandle func, unsigned idx,
                                          int64_t val) {
  return guarded(__func__, [&] {
    Argument argument{idx, {}, {}, sizeof val};
    std::memcpy(argument.value.data(), &val, sizeof val);
    set_argument(func, std::move(argument));
  });
}

MENAGERIE_SHIM menagerie_mps_fault(const char* const* messages, int64_t count,
                                   AtenTensorHandle* ret) {
  return guarded(__func__,
                 [&] { *ret = to_handle(State::current().fault(list(messages, count))); });
}

// Without a group size torch takes the largest group, in one axis (MetalKernelFunction::dispatch).
MENAGERIE_SHIM aoti_torch_mps_dispatch_single(AOTIMetalKernelFunctionHandle func, uint64_t length) {
  return guarded(__func__, [&] {
    const uint64_t most = function_of(func).kernel->max_threads_per_group();
    launch(func, {{length, 1, 1}, {std::max<uint64_t>(std::min(length, most), 1), 1, 1}});
  });
}

MENAGERIE_SHIM aoti_torch_mps_dispatch_single_with_group_size(AOTIMetalKernelFunctionHandle func,
                                                              uint64_t length,
                                                              uint64_t group_size) {
  return guarded(__func__, [&] { launch(func, {{length, 1, 1}, {group_size, 1, 1}}); });
}

MENAGERIE_SHIM aoti_torch_mps_dispatch_array(AOTIMetalKernelFunctionHandle func,
                                             const uint64_t* length, size_t length_size) {
  return guarded(__func__, [&] {
    const uint64_t most = function_of(func).kernel->max_threads_per_group();
    launch(func, {extents(lengths(length, length_size), "the grid"), {most, 1, 1}});
  });
}

MENAGERIE_SHIM aoti_torch_mps_dispatch_array_with_group_size(AOTIMetalKernelFunctionHandle func,
                                                             const uint64_t* length,
                                                             size_t length_size,
                                                             const uint64_t* group_size,
                                                             size_t group_size_size) {
  return guarded(__func__, [&] {
    require(length_size == group_size_size, "the grid has ", length_size, " axes, its groups ",
            group_size_size);
    launch(func, {extents(lengths(length, length_size), "the grid"),
                  extents(lengths(group_size, group_size_size), "the group")});
  });
}

// The wrapper passes the address of a std::function, which this runtime's own compiler and the
// wrapper's lay out alike: both use libc++ on a Mac and libstdc++ on Linux.
MENAGERIE_ABI void aoti_torch_mps_shared_callback(AOTIMetalKernelFunctionHandle func,
                                                  void* user_data) {
  (*static_cast<std::function<void(AOTIMetalKernelFunctionHandle)>*>(user_data))(func);
}

MENAGERIE_SHIM aoti_torch_mps_run_command_block(AOTIMetalKernelFunctionHandle func,
                                                aoti_torch_mps_command_block_callback_t callback,
                                                void* user_data) {
  return guarded(__func__, [&] {
    function_of(func);
    require(callback != nullptr, "the callback is null");
    callback(func, user_data);
    pending = {};  // it holds buffers
  });
}
