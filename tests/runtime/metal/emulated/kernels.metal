// Kernels that behave, and kernels that each do one thing that a GPU would punish.
#include <metal_stdlib>
using namespace metal;

kernel void add_one(device float* out, constant float* in, uint i [[thread_position_in_grid]]) {
  out[i] = in[i] + 1;
}

kernel void gather(device float* out, constant float* in, constant int* indices,
                   uint i [[thread_position_in_grid]]) {
  out[i] = in[indices[i]];
}

// Every position a thread can ask for; eight numbers a thread.
kernel void positions(
    device uint* out [[buffer(1)]],
    uint3 grid_position [[thread_position_in_grid]],
    uint3 group_position [[thread_position_in_threadgroup]],
    ushort3 group [[threadgroup_position_in_grid]],
    uint3 grid [[threads_per_grid]],
    uint3 size [[threads_per_threadgroup]],
    uint3 nominal [[dispatch_threads_per_threadgroup]],
    uint3 groups [[threadgroups_per_grid]],
    uint index [[thread_index_in_threadgroup]],
    ushort lane [[thread_index_in_simdgroup]],
    uint simd [[simdgroup_index_in_threadgroup]],
    uint width [[threads_per_simdgroup]],
    uint simds [[simdgroups_per_threadgroup]]) {
  const uint linear = (grid_position.z * grid.y + grid_position.y) * grid.x + grid_position.x;
  device uint* to = out + 8 * linear;
  to[0] = group_position.x + 100 * group_position.y + 10000 * group_position.z;
  to[1] = group.x + 100 * group.y + 10000 * group.z;
  to[2] = size.x + 100 * size.y + 10000 * size.z;
  to[3] = nominal.x + 100 * nominal.y + 10000 * nominal.z;
  to[4] = groups.x + 100 * groups.y + 10000 * groups.z;
  to[5] = index;
  to[6] = lane + 100 * simd;
  to[7] = width + 100 * simds;
}

// Reverses each group of 64 through threadgroup memory.
kernel void reverse_groups(device float* out, constant float* in,
                           uint i [[thread_position_in_grid]],
                           uint t [[thread_position_in_threadgroup]]) {
  threadgroup float shared[64];
  shared[t] = in[i];
  threadgroup_barrier(mem_flags::mem_threadgroup);
  out[i] = shared[63 - t];
}

#define INSTANTIATE(T)                                                                        \
  template [[host_name("scale_" #T)]] kernel void scale<T>(device T * out, constant T * in,   \
                                                           constant float& by, uint i);
template <typename T>
kernel void scale(device T* out [[buffer(0)]], constant T* in [[buffer(1)]],
                  constant float& by [[buffer(2)]], uint i [[thread_position_in_grid]]) {
  out[i] = static_cast<T>(in[i] * by);
}
INSTANTIATE(float)
INSTANTIATE(half)
INSTANTIATE(bfloat)

kernel void half_arithmetic(device half* out, constant half* in,
                            uint i [[thread_position_in_grid]]) {
  out[i] = in[i] * in[i] - in[i] / half(3) + half(0.1);
}

kernel void literal(device float* out, constant float* in, uint i [[thread_position_in_grid]]) {
  auto third = 0.333333333333333333;
  static_assert(sizeof(third) == sizeof(float), "literals are floats");
  out[i] = in[i] * third + 1e-9;
}

kernel void simd_folds(device float* out, constant float* in, uint i [[thread_position_in_grid]]) {
  const float x = in[i];
  out[8 * i + 0] = simd_sum(x);
  out[8 * i + 1] = simd_product(x);
  out[8 * i + 2] = simd_max(x);
  out[8 * i + 3] = simd_min(x);
  out[8 * i + 4] = simd_prefix_inclusive_sum(x);
  out[8 * i + 5] = simd_prefix_exclusive_sum(x);
  out[8 * i + 6] = simd_any(x > 1.5f) + 2 * simd_all(x > 0.0f);
  out[8 * i + 7] = popcount(static_cast<ulong>(simd_ballot(x > 1.0f)));
}

kernel void simd_moves(device int* out, constant int* in, uint i [[thread_position_in_grid]]) {
  const int x = in[i];
  out[8 * i + 0] = simd_broadcast(x, 5);
  out[8 * i + 1] = simd_shuffle(x, ushort(31 - i % 32));
  out[8 * i + 2] = simd_shuffle_xor(x, 3);
  out[8 * i + 3] = simd_shuffle_and_fill_down(x, -7, 2);
  out[8 * i + 4] = simd_shuffle_and_fill_up(x, -7, 2);
  out[8 * i + 5] = simd_shuffle_rotate_down(x, 1);
  out[8 * i + 6] = as_type<int>(simd_broadcast_first(as_type<float>(x)));
  out[8 * i + 7] = simd_xor(x);
}

// Only the first `count` threads of a SIMD group come to the operation.
kernel void simd_some(device int* out, constant long& count, uint i [[thread_position_in_grid]]) {
  out[i] = -1;
  if (i % 32 < count) out[i] = simd_sum(1);
}

kernel void count_atomically(device atomic_uint* counts, device atomic<float>* total,
                             constant float* in, uint i [[thread_position_in_grid]]) {
  atomic_fetch_add_explicit(&counts[i % 4], 1u, memory_order_relaxed);
  atomic_fetch_add_explicit(total, in[i], memory_order_relaxed);
}

kernel void count_in_group(device uint* out, uint t [[thread_position_in_threadgroup]],
                           uint g [[threadgroup_position_in_grid]]) {
  threadgroup atomic_uint count;
  if (t == 0) atomic_store_explicit(&count, 0u, memory_order_relaxed);
  threadgroup_barrier(mem_flags::mem_threadgroup);
  atomic_fetch_add_explicit(&count, t, memory_order_relaxed);
  threadgroup_barrier(mem_flags::mem_threadgroup);
  if (t == 0) out[g] = atomic_load_explicit(&count, memory_order_relaxed);
}

kernel void vectors(device float4* out, constant float3* in, uint i [[thread_position_in_grid]]) {
  float3 v = in[i];
  float4 w = float4(v, 1);
  w.xy = w.yx;
  w *= 2;
  out[i] = w + float4(dot(v, v), float3(0));
}

// What follows is wrong on purpose.

kernel void read_at(device float* out, constant float* in, constant long& index,
                    uint i [[thread_position_in_grid]]) {
  if (i == 3) out[0] = in[index];
}

kernel void write_at(device float* out, constant long& index, uint i [[thread_position_in_grid]]) {
  if (i == 3) out[index] = 1;
}

kernel void copy_struct_at(device float4* out, constant float4* in, constant long& index,
                           uint i [[thread_position_in_grid]]) {
  if (i == 3) out[0] = in[index];
}

template <typename T>
kernel void touch(device T* out [[buffer(0)]], constant T* in [[buffer(1)]],
                  constant long& index [[buffer(2)]], uint i [[thread_position_in_grid]]) {
  if (i == 0) out[0] = in[index];
}
#define TOUCH(T) \
  template [[host_name("touch_" #T)]] [[kernel]] decltype(touch<T>) touch<T>;
TOUCH(bool)
TOUCH(char)
TOUCH(short)
TOUCH(half)
TOUCH(bfloat)
TOUCH(int)
TOUCH(float)
TOUCH(long)
TOUCH(char3)
TOUCH(half2)
TOUCH(half4)
TOUCH(float2)
TOUCH(float3)
TOUCH(float4)
TOUCH(long2)
TOUCH(long4)

struct Block {
  float values[11];
};
kernel void touch_block(device Block* out, constant Block* in, constant long& index,
                        uint i [[thread_position_in_grid]]) {
  if (i == 0) out[0] = in[index];
}

kernel void add_atomically_at(device atomic_int* out, constant long& index,
                              uint i [[thread_position_in_grid]]) {
  if (i == 3) atomic_fetch_add_explicit(out + index, 1, memory_order_relaxed);
}

kernel void misaligned(device char* out, constant long& offset,
                       uint i [[thread_position_in_grid]]) {
  if (i == 3) *reinterpret_cast<device float*>(out + offset) = 1;
}

kernel void uninitialised(device float* out, uint t [[thread_position_in_threadgroup]]) {
  threadgroup float shared[8];
  if (t != 5) shared[t] = t;
  threadgroup_barrier(mem_flags::mem_threadgroup);
  out[t] = shared[7 - t];
}

kernel void local_at(device float* out, constant long& index,
                     uint t [[thread_position_in_threadgroup]]) {
  threadgroup float first[8], second[8];
  first[t] = second[t] = t;
  threadgroup_barrier(mem_flags::mem_threadgroup);
  out[t] = first[t == 2 ? index : t] + second[t];
}

kernel void missing_barrier(device float* out, uint t [[thread_position_in_threadgroup]]) {
  threadgroup float shared[64];
  shared[t] = t;
  out[t] = shared[t ^ 1];
}

kernel void late_write(device float* out, uint t [[thread_position_in_threadgroup]]) {
  threadgroup float shared[64];
  shared[t] = t;
  threadgroup_barrier(mem_flags::mem_threadgroup);
  out[t] = shared[63 - t];
  shared[t] = 0;
}

kernel void early_write(device float* out, uint t [[thread_position_in_threadgroup]]) {
  threadgroup float shared[2];
  if (t == 0) shared[0] = 1;
  threadgroup_barrier(mem_flags::mem_threadgroup);
  out[t] = shared[0];
  if (t == 63) shared[0] = 2;
}

kernel void simd_is_enough(device float* out, uint t [[thread_position_in_threadgroup]]) {
  threadgroup float shared[64];
  shared[t] = t;
  simdgroup_barrier(mem_flags::mem_threadgroup);
  out[t] = shared[t ^ 1];
}

kernel void some_return(device float* out, uint t [[thread_position_in_threadgroup]]) {
  out[t] = t;
  if (t >= 40) return;
  threadgroup_barrier(mem_flags::mem_none);
  out[t] = -1;
}

kernel void two_barriers(device float* out, uint t [[thread_position_in_threadgroup]]) {
  if (t < 40) {
    threadgroup_barrier(mem_flags::mem_none);
    out[t] = 1;
  } else {
    threadgroup_barrier(mem_flags::mem_none);
    out[t] = 2;
  }
}

kernel void two_simd_operations(device float* out, uint t [[thread_position_in_threadgroup]]) {
  if (t < 10) {
    out[t] = simd_sum(1.0f);
  } else {
    out[t] = simd_max(2.0f);
  }
}

kernel void inactive_lane(device int* out, uint t [[thread_position_in_threadgroup]]) {
  out[t] = -1;
  if (t < 10) out[t] = simd_broadcast(int(t), 20);
}

[[max_total_threads_per_threadgroup(48)]]
kernel void at_most_48(device float* out, uint i [[thread_position_in_grid]]) {
  out[i] = i;
}

kernel void much_memory(device float* out, uint t [[thread_position_in_threadgroup]]) {
  threadgroup float first[8192];
  threadgroup float second[1];
  first[t] = t;
  second[0] = 1;
  out[t] = first[t] + second[0];
}

kernel void divide(device int* out, constant int* in, uint i [[thread_position_in_grid]]) {
  out[i] = 100 / in[i];
}

// out[0] = in[0] * in[1] + in[2] of matrices of 8 x 8; out[1] = in[1] transposed; out[2] diagonal.
kernel void matrices(device float* out, device const float* in,
                     uint t [[thread_position_in_threadgroup]]) {
  simdgroup_float8x8 a, b, c, sum;
  simdgroup_load(a, in);
  simdgroup_load(b, in + 64, 8);
  simdgroup_load(c, in, 8, ulong2(0, 16));
  simdgroup_multiply_accumulate(sum, a, b, c);
  simdgroup_store(sum, out);
  simdgroup_load(b, in + 64, 8, 0, true);
  simdgroup_store(b, out + 64, 8);
  simdgroup_store(simdgroup_float8x8(3.0f), out, 8, ulong2(0, 16));
}

kernel void half_matrices(device half* out, device const half* in) {
  simdgroup_half8x8 a, b, product;
  simdgroup_load(a, in, 16);
  simdgroup_load(b, in, 16, ulong2(8, 0));
  simdgroup_multiply(product, a, b);
  simdgroup_store(product, out);
}

kernel void matrix_of_some(device float* out, device const float* in,
                           uint t [[thread_position_in_threadgroup]]) {
  simdgroup_float8x8 a(1.0f);
  out[t] = 0;
  if (t < 31) simdgroup_load(a, in);
}

kernel void matrix_by_lane(device float* out, device const float* in,
                           uint t [[thread_position_in_threadgroup]]) {
  simdgroup_float8x8 a;
  simdgroup_load(a, in + t % 2);
  simdgroup_store(a, out);
}

kernel void matrix_out_of_bounds(device float* out, device const float* in) {
  simdgroup_float8x8 a;
  simdgroup_load(a, in, 100);
  simdgroup_store(a, out);
}
