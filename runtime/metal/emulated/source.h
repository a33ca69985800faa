// Reading Metal source: which kernels it has, what each parameter stands for; and the same text as
// C++ that the prelude makes compilable.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace menagerie::metal::emulated {

struct KernelParameter {
  std::string name;
  int role = 0;  // a buffer's index, or emulated::Role
};

struct KernelSource {
  std::string name;       // as the Metal library lists it
  std::string reference;  // as C++ names the function: "fill<float>"
  std::vector<KernelParameter> parameters;
  std::string max_threads;  // a constant expression; empty: the device's limit
  bool serial = false;      // uses atomics
};

struct ShaderSource {
  std::string text;
  std::vector<KernelSource> kernels;
};

// Blanks includes of Metal's own headers, which the prelude stands for; lines keep their numbers.
std::string without_metal_headers(std::string_view source);

// Translates preprocessed source. Threadgroup variables become references into the group's memory,
// since a C++ local would be each thread's own. Fails with the line where something is not known.
ShaderSource translate(std::string_view preprocessed);

// C++ that defines the table of kernels.
std::string kernel_table(const std::vector<KernelSource>& kernels);

}  // namespace menagerie::metal::emulated
