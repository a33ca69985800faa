#include "metal/combine.h"

#include <string>

#include "metal/dispatch.h"
#include "metal/operands.h"
#include "metal/ordering.h"

namespace menagerie::metal {
namespace {

constexpr int64_t kEnoughThreads = 2048;  // for a GPU to be busy
constexpr int64_t kShort = 64;            // a list that is not worth three dispatches

// As combine.metal has it.
struct List {
  int64_t count, inner;
  int32_t reduction;
};

// The type that a value is combined as; stored ones are bits.
std::string type_of(Dtype dtype, Reduction reduction) {
  if (reduction != Reduction::kStore) return metal_name(dtype);
  switch (element_size(dtype)) {
    case 1:
      return "uchar";
    case 2:
      return "ushort";
    case 4:
      return "uint";
    default:
      return "long";
  }
}

}  // namespace

void combine_at(const Tensor& to, const Tensor& values, const Tensor& places, int64_t inner,
                Reduction reduction) {
  const List list{places.elements(), inner, static_cast<int32_t>(reduction)};
  const std::string type = type_of(to.dtype, reduction);
  Arguments arguments;
  arguments.add(to).add(values).add(places).add(list);
  if (!is_worth_sorting(inner, list.count)) {
    return dispatch("combine", "combine_in_turn_" + type, arguments, threads_for(inner));
  }
  arguments.add(order_of(places, {.length = list.count}, false));
  dispatch("combine", "combine_sorted_" + type, arguments, threads_for(list.count * inner));
}

bool is_worth_sorting(int64_t threads, int64_t length) {
  return threads < kEnoughThreads && length > kShort;
}

}  // namespace menagerie::metal
