// Matrices that the lanes of a SIMD group hold together (Metal Shading Language Specification, 2.4
// and 6.7): eight by eight, two elements a lane. Which lane holds which element is Apple's affair;
// a kernel that counted on it would be wrong. Here lane l holds row l / 4, columns l % 4 * 2 and
// on. All 32 lanes must take part in each function, and mean the same matrix.
#pragma once

namespace menagerie::emulated {

inline constexpr uint kMatrixSide = 8;

MENAGERIE_UNCHECKED __attribute__((noinline)) inline void require_all_lanes() {
  const uint active = active_lanes();
  if (active != ~0U) fault(Fault::kInactiveLane, 0, 0, false, uint(__builtin_ctz(~active)));
}

// Waits for all lanes, which must have come with the same place and layout. Without checks nothing
// waits: a barrier lies between what lanes store and load.
MENAGERIE_THREADS void meet_at_matrix(Address place, ulong layout) {
#ifdef MENAGERIE_PLAIN
  return;
#endif
  const ulong mine[2] = {place, layout};
  exchange(mine[0], mine[1]);
  require_all_lanes();
  const metal::array<ulong, 2> first = lane_value<metal::array<ulong, 2>>(0);
  if (first[0] != mine[0] || first[1] != mine[1]) fault(Fault::kDifferentMatrix, 0, 0, false);
}

// The product of the matrices of which each lane has published two elements of both, by the first
// lane to go on; all lanes read their two elements of it. `product` is of the SIMD group.
MENAGERIE_UNCHECKED __attribute__((noinline)) inline void multiply_published(float* mine) {
  Fiber* fiber = current();
  Simd& simd = *fiber->simd;
  typedef float Row __attribute__((vector_size(kMatrixSide * sizeof(float)), aligned(4)));
  if (fiber->lane == 0) {
    float left[kMatrixSide][kMatrixSide];
    Row right[kMatrixSide];
    for (uint lane = 0; lane < kSimdWidth; ++lane) {
      const unsigned char* slot = simd.slots[1 - simd.turn][lane];
      __builtin_memcpy(&left[lane / 4][lane % 4 * 2], slot, 8);
      __builtin_memcpy(reinterpret_cast<float*>(&right[lane / 4]) + lane % 4 * 2, slot + 8, 8);
    }
    for (uint row = 0; row < kMatrixSide; ++row) {
      Row sum = left[row][0] * right[0];
      for (uint k = 1; k < kMatrixSide; ++k) sum += left[row][k] * right[k];
      __builtin_memcpy(simd.product[row], &sum, sizeof(sum));
    }
  }
  __builtin_memcpy(mine, &simd.product[fiber->lane / 4][fiber->lane % 4 * 2], 8);
}

}  // namespace menagerie::emulated

namespace metal {

template <class T, int Columns, int Rows>
struct simdgroup_matrix {
  static_assert(is_floating_point_v<T> && Columns == 8 && Rows == 8,
                "a SIMD group's matrix is 8 x 8 and floating");
  alignas(2 * sizeof(T)) T mine[2];

#ifdef MENAGERIE_PLAIN
  // Of what was loaded, all that the lane's two elements of a product take: no lane waits for it.
  bool loaded = false;
  T row[8];
  T columns[8][2];
#endif

  // The lane's two, as Metal gives them: reading and writing them in pairs needs no layout.
  vec<T, 2>& thread_elements() {
#ifdef MENAGERIE_PLAIN
    loaded = false;
#endif
    return reinterpret_cast<vec<T, 2>&>(mine);
  }
  simdgroup_matrix() = default;
  // A diagonal matrix.
  explicit MENAGERIE_THREADS simdgroup_matrix(T value) {
    const uint lane = menagerie::emulated::this_lane();
    for (uint i = 0; i < 2; ++i) mine[i] = lane / 4 == lane % 4 * 2 + i ? value : T(0);
  }
};
using simdgroup_float8x8 = simdgroup_matrix<float, 8, 8>;
using simdgroup_half8x8 = simdgroup_matrix<half, 8, 8>;
using simdgroup_bfloat8x8 = simdgroup_matrix<bfloat, 8, 8>;

template <class T, int Columns, int Rows = Columns>
MENAGERIE_THREADS simdgroup_matrix<T, Columns, Rows> make_filled_simdgroup_matrix(T value) {
  simdgroup_matrix<T, Columns, Rows> result;
  result.mine[0] = result.mine[1] = value;
  return result;
}

#define MENAGERIE_MATRIX_PLACE                                                       \
  const uint lane = menagerie::emulated::this_lane();                                \
  menagerie::emulated::meet_at_matrix(                                               \
      reinterpret_cast<menagerie::emulated::Address>(memory),                        \
      elements_per_row ^ origin.x << 20 ^ origin.y << 40 ^ ulong(transposed) << 63); \
  const auto at = [&](uint row, uint column) {                                       \
    return (origin.y + (transposed ? column : row)) * elements_per_row + origin.x +  \
           (transposed ? row : column);                                              \
  };

template <class T>
MENAGERIE_THREADS void simdgroup_load(simdgroup_matrix<T, 8, 8>& matrix, const T* memory,
                                      ulong elements_per_row = 8, ulong2 origin = 0,
                                      bool transposed = false) {
  MENAGERIE_MATRIX_PLACE
  for (uint i = 0; i < 2; ++i) matrix.mine[i] = memory[at(lane / 4, lane % 4 * 2 + i)];
#ifdef MENAGERIE_PLAIN
  matrix.loaded = true;
  for (uint k = 0; k < 8; ++k) {
    matrix.row[k] = memory[at(lane / 4, k)];
    for (uint i = 0; i < 2; ++i) matrix.columns[k][i] = memory[at(k, lane % 4 * 2 + i)];
  }
#endif
}

template <class T>
MENAGERIE_THREADS void simdgroup_store(const simdgroup_matrix<T, 8, 8>& matrix, T* memory,
                                       ulong elements_per_row = 8, ulong2 origin = 0,
                                       bool transposed = false) {
  MENAGERIE_MATRIX_PLACE
  for (uint i = 0; i < 2; ++i) memory[at(lane / 4, lane % 4 * 2 + i)] = matrix.mine[i];
}
#undef MENAGERIE_MATRIX_PLACE

// result = left * right + addend, the sums in single precision.
template <class D, class A, class B, class C>
MENAGERIE_THREADS void simdgroup_multiply_accumulate(simdgroup_matrix<D, 8, 8>& result,
                                                     const simdgroup_matrix<A, 8, 8>& left,
                                                     const simdgroup_matrix<B, 8, 8>& right,
                                                     const simdgroup_matrix<C, 8, 8>& addend) {
  float products[2];
#ifdef MENAGERIE_PLAIN
  result.loaded = false;
  if (left.loaded && right.loaded) {
    for (uint i = 0; i < 2; ++i) {
      products[i] = float(left.row[0]) * float(right.columns[0][i]);
      for (uint k = 1; k < 8; ++k) {
        products[i] = products[i] + float(left.row[k]) * float(right.columns[k][i]);
      }
      result.mine[i] = D(float(addend.mine[i]) + products[i]);
    }
    return;
  }
#endif
  metal::array<float, 4> mine = {
      {float(left.mine[0]), float(left.mine[1]), float(right.mine[0]), float(right.mine[1])}};
  menagerie::emulated::publish(mine);
  menagerie::emulated::require_all_lanes();
  menagerie::emulated::multiply_published(products);
  for (uint i = 0; i < 2; ++i) result.mine[i] = D(float(addend.mine[i]) + products[i]);
}

template <class D, class A, class B>
MENAGERIE_THREADS void simdgroup_multiply(simdgroup_matrix<D, 8, 8>& result,
                                          const simdgroup_matrix<A, 8, 8>& left,
                                          const simdgroup_matrix<B, 8, 8>& right) {
  simdgroup_multiply_accumulate(result, left, right, make_filled_simdgroup_matrix<D, 8, 8>(D(0)));
}

}  // namespace metal
