// Runs the first program of a bundle on zeros and prints the first elements of each float output.
//
// In a folder of `menagerie pull --standalone`, with this file:
//
//     c++ -std=c++17 run.cpp -Iinclude -L. -lmenagerie_cpu -Wl,-rpath,'$ORIGIN' -o run
//     ./run bundle roots
#include <menagerie.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <stdexcept>
#include <vector>

namespace {

void check(menagerie_status status) {
  if (status != MENAGERIE_OK) throw std::runtime_error(menagerie_last_error());
}

struct Close {
  void operator()(menagerie_bundle* bundle) const { menagerie_bundle_close(bundle); }
  void operator()(menagerie_program* program) const { menagerie_program_close(program); }
};

// A bundle whose signature one of the roots at `trust` has found right.
std::unique_ptr<menagerie_bundle, Close> open_bundle(const char* folder, const char* trust) {
  menagerie_bundle* bundle = nullptr;
  check(menagerie_bundle_open_signed(folder, trust, &bundle));
  return std::unique_ptr<menagerie_bundle, Close>(bundle);
}

std::unique_ptr<menagerie_program, Close> open_program(menagerie_bundle* bundle) {
  menagerie_program* program = nullptr;
  check(menagerie_program_open(bundle, menagerie_bundle_program_name(bundle, 0), 0, &program));
  return std::unique_ptr<menagerie_program, Close>(program);
}

// An input of the lowest sizes it may have, over zeros that this holds.
struct Zeros {
  explicit Zeros(const menagerie_tensor_spec& spec) {
    tensor.dtype = spec.dtype;
    tensor.dimensions = spec.dimensions;
    int64_t elements = 1;
    for (int32_t axis = spec.dimensions; axis-- > 0;) {
      tensor.sizes[axis] = spec.lowest[axis];
      tensor.strides[axis] = elements;
      elements *= spec.lowest[axis];
    }
    memory.resize(static_cast<size_t>(std::max<int64_t>(elements, 1)));  // 8 bytes serve any dtype
    tensor.data = memory.data();
  }
  std::vector<int64_t> memory;
  menagerie_tensor tensor{};
};

void run(const char* folder, const char* trust) {
  const auto bundle = open_bundle(folder, trust);
  const auto program = open_program(bundle.get());
  std::vector<Zeros> held;
  for (size_t i = 0; i < menagerie_program_input_count(program.get()); ++i) {
    menagerie_tensor_spec spec;
    check(menagerie_program_input(program.get(), i, &spec));
    held.emplace_back(spec);
  }
  std::vector<menagerie_tensor> inputs, outputs(menagerie_program_output_count(program.get()));
  for (const Zeros& each : held) inputs.push_back(each.tensor);
  check(menagerie_program_run(program.get(), inputs.data(), inputs.size(), outputs.data(),
                              outputs.size()));
  for (size_t i = 0; i < outputs.size(); ++i) {
    menagerie_tensor_spec spec;
    check(menagerie_program_output(program.get(), i, &spec));
    std::printf("%s:", spec.name);
    const menagerie_tensor& output = outputs[i];
    const int32_t last = output.dimensions - 1;
    if (output.dtype == MENAGERIE_FLOAT32 && last >= 0) {
      const auto* values = static_cast<const float*>(output.data);
      for (int64_t k = 0; k < std::min<int64_t>(output.sizes[last], 4); ++k) {
        std::printf(" %.9g", static_cast<double>(values[k * output.strides[last]]));
      }
    }
    std::printf("\n");
  }
}

}  // namespace

int main(int count, char** values) {
  if (count != 3) {
    std::fprintf(stderr, "usage: run BUNDLE TRUST\n");
    return 2;
  }
  try {
    run(values[1], values[2]);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
  return 0;
}
