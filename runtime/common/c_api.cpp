// The public C API over Bundle and Program.
#include <algorithm>
#include <string>

#include "common/backend.h"
#include "common/bundle.h"
#include "common/error.h"
#include "common/program.h"
#include "menagerie.h"

using namespace menagerie;

struct menagerie_bundle {
  std::shared_ptr<const Bundle> bundle;
};

struct menagerie_program {
  Program program;
};

namespace {

static_assert(kMaxDimensions == MENAGERIE_MAX_DIMENSIONS);

template <class Body>
menagerie_status answer(Body&& body) noexcept {
  return guarded("", body) == 0 ? MENAGERIE_OK : MENAGERIE_ERROR;
}

template <class T>
T& given(T* pointer, const char* name) {
  require(pointer != nullptr, name, " is null");
  return *pointer;
}

menagerie_tensor_spec describe(const TensorSpec& spec) {
  menagerie_tensor_spec out{};
  out.name = spec.name.c_str();
  out.dtype = static_cast<int32_t>(spec.dtype);
  out.dimensions = static_cast<int32_t>(spec.shape.size());
  for (size_t axis = 0; axis < spec.shape.size(); ++axis) {
    out.lowest[axis] = spec.shape[axis].lowest;
    out.highest[axis] = spec.shape[axis].highest;
    out.step[axis] = spec.shape[axis].step;
  }
  return out;
}

Tensor over_caller_memory(const menagerie_tensor& tensor) {
  require(tensor.dimensions >= 0 && tensor.dimensions <= MENAGERIE_MAX_DIMENSIONS, "a tensor has ",
          tensor.dimensions, " axes");
  const auto axes = static_cast<size_t>(tensor.dimensions);
  const std::span sizes(tensor.sizes, axes);
  const std::span strides(tensor.strides, axes);
  const Dtype dtype = to_dtype(tensor.dtype);
  const int64_t touched = extent(sizes, strides);
  require(tensor.data != nullptr || touched == 0, "a tensor's data pointer is null");
  int64_t bytes = 0;
  require(!__builtin_mul_overflow(touched, element_size(dtype), &bytes), "sizes overflow");
  return make_view(Storage::borrow(tensor.data, static_cast<size_t>(bytes)), dtype, sizes, strides,
                   0);
}

menagerie_tensor lend(const Tensor& tensor) {
  menagerie_tensor out{};
  out.data = tensor.raw();
  out.dtype = static_cast<int32_t>(tensor.dtype);
  out.dimensions = tensor.dimensions;
  std::ranges::copy(tensor.sizes(), out.sizes);
  std::ranges::copy(tensor.strides(), out.strides);
  return out;
}

menagerie_status tensor_spec(const std::vector<TensorSpec>& specs, size_t index,
                             menagerie_tensor_spec* spec) {
  return answer([&] {
    require(index < specs.size(), "index ", index, " is beyond ", specs.size());
    given(spec, "spec") = describe(specs[index]);
  });
}

}  // namespace

extern "C" {

const char* menagerie_version(void) {
  static const std::string version = backend::version();
  return version.c_str();
}

const char* menagerie_last_error(void) { return last_error(); }

menagerie_status menagerie_bundle_open(const char* folder, menagerie_bundle** bundle) {
  return answer([&] {
    given(bundle, "bundle") = new menagerie_bundle{Bundle::open(&given(folder, "folder"))};
  });
}

menagerie_status menagerie_bundle_open_signed(const char* folder, const char* trust,
                                              menagerie_bundle** bundle) {
  return answer([&] {
    const Trust roots = Trust::read(&given(trust, "trust"));
    given(bundle, "bundle") = new menagerie_bundle{Bundle::open(&given(folder, "folder"), &roots)};
  });
}

void menagerie_bundle_close(menagerie_bundle* bundle) { delete bundle; }

size_t menagerie_bundle_program_count(const menagerie_bundle* bundle) {
  return bundle->bundle->manifest().programs.size();
}

const char* menagerie_bundle_program_name(const menagerie_bundle* bundle, size_t index) {
  const auto& programs = bundle->bundle->manifest().programs;
  return index < programs.size() ? programs[index].name.c_str() : nullptr;
}

menagerie_status menagerie_bundle_verify(const menagerie_bundle* bundle) {
  return answer([&] {
    const Bundle& opened = *given(bundle, "bundle").bundle;
    for (const auto& [path, entry] : opened.manifest().listed) {
      if (!opened.is_left_out(path)) opened.checked_hash(path);
    }
  });
}

menagerie_status menagerie_program_open(menagerie_bundle* bundle, const char* name, int32_t threads,
                                        menagerie_program** program) {
  return answer([&] {
    given(program, "program") = new menagerie_program{
        Program(given(bundle, "bundle").bundle, &given(name, "name"), threads)};
  });
}

void menagerie_program_close(menagerie_program* program) { delete program; }

size_t menagerie_program_input_count(const menagerie_program* program) {
  return program->program.spec().inputs.size();
}

size_t menagerie_program_output_count(const menagerie_program* program) {
  return program->program.spec().outputs.size();
}

menagerie_status menagerie_program_input(const menagerie_program* program, size_t index,
                                         menagerie_tensor_spec* spec) {
  return tensor_spec(program->program.spec().inputs, index, spec);
}

menagerie_status menagerie_program_output(const menagerie_program* program, size_t index,
                                          menagerie_tensor_spec* spec) {
  return tensor_spec(program->program.spec().outputs, index, spec);
}

menagerie_status menagerie_program_set_threads(menagerie_program* program, int32_t threads) {
  return answer([&] { given(program, "program").program.set_threads(threads); });
}

menagerie_status menagerie_program_run(menagerie_program* program, const menagerie_tensor* inputs,
                                       size_t input_count, menagerie_tensor* outputs,
                                       size_t output_count) {
  return answer([&] {
    Program& running = given(program, "program").program;
    require(input_count == 0 || inputs != nullptr, "inputs is null");
    require(output_count == running.spec().outputs.size() && outputs != nullptr, "the program has ",
            running.spec().outputs.size(), " outputs, room is given for ", output_count);
    std::vector<Tensor> tensors;
    for (size_t i = 0; i < input_count; ++i) tensors.push_back(over_caller_memory(inputs[i]));
    std::ranges::transform(running.run(tensors), outputs, lend);
  });
}

menagerie_status menagerie_program_reset(menagerie_program* program) {
  return answer([&] { given(program, "program").program.reset(); });
}

uint64_t menagerie_program_kernel_calls(const menagerie_program* program) {
  return program->program.kernel_calls();
}

menagerie_status menagerie_program_set_profiling(menagerie_program* program, int on) {
  return answer([&] { given(program, "program").program.set_profiling(on != 0); });
}

menagerie_status menagerie_program_kernel_times(menagerie_program* program,
                                                menagerie_kernel_time* times, size_t room,
                                                size_t* count) {
  return answer([&] {
    const Profile* profile = given(program, "program").program.profile();
    require(profile != nullptr, "the program's kernels are not timed: set profiling first");
    require(room == 0 || times != nullptr, "times is null");
    size_t place = 0;
    for (const auto& [name, each] : profile->kernels()) {
      if (place == room) break;
      const double milliseconds = std::chrono::duration<double, std::milli>(each.time).count();
      times[place++] = {name.c_str(), each.calls, milliseconds, each.flops, each.bytes};
    }
    given(count, "count") = profile->kernels().size();
  });
}

menagerie_status menagerie_machine_peaks(int32_t threads, double* flops, double* bytes) {
  return answer([&] {
    const backend::Peaks peaks = backend::measured_peaks(threads);
    given(flops, "flops") = peaks.flops;
    given(bytes, "bytes") = peaks.bytes;
  });
}

}  // extern "C"
