// The weights of attention: a softmax over each row of scores [batch, heads, queries, keys], one
// SIMD group a row.
#include <metal_stdlib>
using namespace metal;

struct Shape {
  long heads;
  long queries;
  long keys;
  int causal;  // a query sees the keys up to its own position
  int mask;    // 0: none, 1: is added, 2: zero hides
};

float score_of(device const float* row, device const float* mask, constant Shape& shape,
               constant long* mask_stride, long query, long mask_at, long key) {
  if (shape.causal && key > query) return -INFINITY;
  if (shape.mask == 0) return row[key];
  const float masked = mask[mask_at + key * mask_stride[3]];
  if (shape.mask == 1) return row[key] + masked;
  return masked == 0 ? -INFINITY : row[key];
}

kernel void weigh(device float* scores [[buffer(0)]], device const float* mask [[buffer(1)]],
                  constant Shape& shape [[buffer(2)]], constant long* mask_stride [[buffer(3)]],
                  uint group [[threadgroup_position_in_grid]],
                  uint lane [[thread_index_in_simdgroup]], uint lanes [[threads_per_simdgroup]]) {
  const long query = group % shape.queries;
  const long head = group / shape.queries % shape.heads;
  const long batch = group / shape.queries / shape.heads;
  const long mask_at = batch * mask_stride[0] + head * mask_stride[1] + query * mask_stride[2];
  device float* row = scores + group * shape.keys;
  float highest = -INFINITY;
  float unknown = 0;  // or NaN, which no maximum shows
  for (long key = lane; key < shape.keys; key += lanes) {
    const float score = score_of(row, mask, shape, mask_stride, query, mask_at, key);
    row[key] = score;
    highest = max(highest, score);
    if (isnan(score)) unknown = score;
  }
  highest = simd_max(highest);
  unknown = simd_sum(unknown);
  float total = 0;
  for (long key = lane; key < shape.keys; key += lanes) {
    // A query that may see no key gives every key the weight zero.
    row[key] = isnan(unknown) ? unknown : highest == -INFINITY ? 0 : exp(row[key] - highest);
    total += row[key];
  }
  total = simd_sum(total);
  const float scale = total == 0 ? 0 : 1 / total;
  for (long key = lane; key < shape.keys; key += lanes) row[key] *= scale;
}
