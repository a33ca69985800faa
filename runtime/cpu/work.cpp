#include "cpu/work.h"

#include <string>

#include "common/context.h"
#include "common/platform/threads.h"

namespace menagerie {
namespace {

double bytes_of(const Tensor& tensor) {
  return double(tensor.elements()) * double(element_size(tensor.dtype));
}

// Return the sizes as text: "axbxc".
std::string sizes_text(const Tensor& tensor) {
  std::string text;
  for (const int64_t size : tensor.sizes()) {
    text += (text.empty() ? "" : "x") + std::to_string(size);
  }
  return text;
}

double bytes_of(const Tensor& left, const Tensor& right, const Tensor& output) {
  return bytes_of(left) + bytes_of(right) + bytes_of(output);
}

void note(const Tensor& left, const Tensor& right, double flops, double bytes,
          const Tensor* third = nullptr) {
  Profile* profile = Context::current().profile();
  if (profile == nullptr) return;
  std::string text = sizes_text(left) + " by " + sizes_text(right);
  if (third != nullptr) text += " by " + sizes_text(*third);
  profile->add_work(text, flops, bytes);
}

void use_threads(int32_t count) {
  Context::current().set_threads(count);
  threads::choose(count);
}

Work noted(const Tensor& left, const Tensor& right, const Tensor& output, double flops) {
  const double bytes = bytes_of(left, right, output);
  note(left, right, flops, bytes);
  return {flops, bytes};
}

}  // namespace

// Either takes one thread some 50 us, below which sharing the work out does not pay.
Work::Work(double flops, double bytes) {
  constexpr double kWorthFlops = 2e6;
  constexpr double kWorthBytes = 5e5;
  if (threads::most_by_work == 0) return;
  before_ = Context::current().threads();
  use_threads(flops < kWorthFlops && bytes < kWorthBytes ? 1 : threads::most_by_work);
}

Work::~Work() {
  if (before_ != 0) use_threads(before_);
}

Work work_of_product(const Tensor& a, const Tensor& b, const Tensor& output) {
  return noted(a, b, output, 2.0 * double(output.elements()) * double(a.size[a.dimensions - 1]));
}

Work work_of_convolution(const Tensor& input, const Tensor& weight, bool transposed,
                         const Tensor& output) {
  const double each = double(weight.elements()) / double(weight.size[0]);
  return noted(input, weight, output,
               2.0 * each * double((transposed ? input : output).elements()));
}

Work work_of_attention(const Tensor& q, const Tensor& k, const Tensor& output) {
  return noted(q, k, output, 4.0 * double(q.elements()) * double(k.size[2]));
}

void note_expanded(const kernels::Expanded& call, const Tensor& output) {
  const Tensor& weight = call.weight;
  const double pixels = double(call.sizes[0]) * double(call.sizes[2]) * double(call.sizes[3]);
  const double products = pixels * double(call.expansion.elements()) +
                          double(output.elements()) * double(weight.size[2] * weight.size[3]);
  note(call.input, call.expansion, 2.0 * products,
       bytes_of(call.input, call.expansion, output) + bytes_of(weight), &weight);
}

}  // namespace menagerie
