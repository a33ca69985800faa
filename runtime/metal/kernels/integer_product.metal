// Products of dense matrices of whole numbers, one thread an element of the result; sums wrap
// around. out = alpha * a * b + beta * out.
#include <metal_stdlib>
using namespace metal;

struct Product {
  long m;
  long n;
  long k;
  long alpha;
  long beta;
};

kernel void multiply(device long* out [[buffer(0)]], device const long* a [[buffer(1)]],
                     device const long* b [[buffer(2)]], constant Product& p [[buffer(3)]],
                     uint thread_index [[thread_position_in_grid]]) {
  const long column = thread_index % p.n;
  const long row = thread_index / p.n % p.m;
  const long batch = thread_index / p.n / p.m;
  device const long* left = a + (batch * p.m + row) * p.k;
  device const long* right = b + batch * p.k * p.n + column;
  long sum = 0;
  for (long i = 0; i < p.k; ++i) sum += left[i] * right[i * p.n];
  // What is multiplied by zero may be uninitialised.
  const long addend = p.beta == 0 ? 0 : p.beta * out[thread_index];
  out[thread_index] = p.alpha * sum + addend;
}
