// Metal 4's tensors over a kernel's own pointers, and the product of two by a group's threads
// (MPPTensorOpsMatMul2d.h of Apple's MetalPerformancePrimitives). Extents, strides and places begin
// with the axis along a row. Which thread holds which element of a product is not specified; a
// kernel that counted on it would be wrong: here neighbours go to neighbouring threads.
#ifdef MENAGERIE_METAL4

#ifdef MENAGERIE_LANGUAGE
#define MENAGERIE_THREADS inline
namespace menagerie::emulated {
uint this_thread();
}  // namespace menagerie::emulated
#endif

namespace metal {

constexpr size_t dynamic_extent = ~size_t(0);

template <class Index, size_t Axes>
struct dextents {
  array<Index, Axes> sizes;
  template <class... Sizes>
  explicit dextents(Sizes... all) : sizes{{Index(all)...}} {}
  Index extent(size_t axis) const { return sizes[axis]; }
};

struct tensor_inline {};

// Over memory of the kernel; neighbours along the first axis are neighbours there.
template <class Element, class Extents, class Kind>
struct tensor {
  static_assert(is_same_v<Kind, tensor_inline>, "of tensors only those over pointers are emulated");
  Element* data;
  Extents extents;
  array<int, 2> strides;

  tensor(Element* from, Extents sizes, array<int, 2> apart)
      : data(from), extents(sizes), strides(apart) {}
  int get_extent(size_t axis) const { return extents.extent(axis); }
  // Zero beyond the extents.
  float value(int inner, int outer) const {
    const bool within = inner < get_extent(0) && outer < get_extent(1);
    return within ? float(data[long(inner) * strides[0] + long(outer) * strides[1]]) : 0.0f;
  }
};

template <int Count>
struct execution_simdgroups {
  static constexpr int threads = 32 * Count;
};

}  // namespace metal

namespace mpp::tensor_ops {

using metal::dynamic_extent;

struct matmul2d_descriptor {
  enum class mode { multiply, multiply_accumulate };
  int m, n, k;
  bool transpose_left, transpose_right, relaxed_precision;
  mode matmul_mode;

  constexpr matmul2d_descriptor(int rows, int columns, int terms = int(dynamic_extent),
                                bool left = false, bool right = false, bool relaxed = false,
                                mode how = mode::multiply)
      : m(rows),
        n(columns),
        k(terms),
        transpose_left(left),
        transpose_right(right),
        relaxed_precision(relaxed),
        matmul_mode(how) {}
};

// A thread's share of a product.
template <class Sum, int Rows, int Columns, int Threads>
struct cooperative_tensor {
  static_assert(Rows * Columns % Threads == 0, "the threads share a product evenly");
  Sum mine[Rows * Columns / Threads];

  static constexpr ushort get_capacity() { return Rows * Columns / Threads; }
  bool is_valid_element(ushort) const { return true; }
  metal::array<int, 2> get_multidimensional_index(ushort i) const {
    const int place = i * Threads + int(menagerie::emulated::this_thread());
    return {{place % Columns, place / Columns}};
  }
  Sum& operator[](ushort i) { return mine[i]; }
};

template <matmul2d_descriptor Of, class Scope>
struct matmul2d {
  static_assert(Of.k == int(dynamic_extent), "only products of all terms at once are emulated");

  template <class Left, class Right, class Sum>
  cooperative_tensor<Sum, Of.m, Of.n, Scope::threads> get_destination_cooperative_tensor() const {
    return {};
  }

  // All threads of the scope come here together.
  template <class Left, class Right, class Result>
  MENAGERIE_THREADS void run(const Left& left, const Right& right, Result& result) const {
    metal::threadgroup_barrier(metal::mem_flags::mem_none);
    const int terms = left.get_extent(Of.transpose_left ? 1 : 0);
    for (ushort i = 0; i < result.get_capacity(); ++i) {
      const metal::array<int, 2> place = result.get_multidimensional_index(i);
      float sum = Of.matmul_mode == matmul2d_descriptor::mode::multiply ? 0.0f : float(result[i]);
      for (int term = 0; term < terms; ++term) {
        sum += (Of.transpose_left ? left.value(place[1], term) : left.value(term, place[1])) *
               (Of.transpose_right ? right.value(term, place[0]) : right.value(place[0], term));
      }
      result[i] = sum;
    }
  }
};

}  // namespace mpp::tensor_ops

#endif  // MENAGERIE_METAL4
