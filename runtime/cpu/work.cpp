#include "cpu/work.h"

#include <string>

#include "common/context.h"

namespace menagerie {
namespace {

double bytes_of(const Tensor& tensor) {
  return double(tensor.elements()) * double(element_size(tensor.dtype));
}

// "a x b x c"
std::string sizes_text(const Tensor& tensor) {
  std::string text;
  for (const int64_t size : tensor.sizes()) {
    text += (text.empty() ? "" : "x") + std::to_string(size);
  }
  return text;
}

void note(const Tensor& left, const Tensor& right, const Tensor& output, double flops,
          const Tensor* third = nullptr) {
  Profile* profile = Context::current().profile();
  if (profile == nullptr) return;
  std::string text = sizes_text(left) + " by " + sizes_text(right);
  double bytes = bytes_of(left) + bytes_of(right) + bytes_of(output);
  if (third != nullptr) {
    text += " by " + sizes_text(*third);
    bytes += bytes_of(*third);
  }
  profile->add_work(text, flops, bytes);
}

}  // namespace

void note_product(const Tensor& a, const Tensor& b, const Tensor& output) {
  note(a, b, output, 2.0 * double(output.elements()) * double(a.size[a.dimensions - 1]));
}

void note_convolution(const Tensor& input, const Tensor& weight, bool transposed,
                      const Tensor& output) {
  const double each = double(weight.elements()) / double(weight.size[0]);
  note(input, weight, output, 2.0 * each * double((transposed ? input : output).elements()));
}

void note_expanded(const kernels::Expanded& call, const Tensor& output) {
  const Tensor& weight = call.weight;
  const double pixels = double(call.sizes[0]) * double(call.sizes[2]) * double(call.sizes[3]);
  const double products = pixels * double(call.expansion.elements()) +
                          double(output.elements()) * double(weight.size[2] * weight.size[3]);
  note(call.input, call.expansion, output, 2.0 * products, &weight);
}

void note_attention(const Tensor& q, const Tensor& k, const Tensor& output) {
  note(q, k, output, 4.0 * double(q.elements()) * double(k.size[2]));
}

}  // namespace menagerie
