"""Small kernels in the Metal Shading Language that compilers must refuse, or take.

Each is the text behind `#include <metal_stdlib>` and `using namespace metal;`; K and V stand for
heads of kernels. FORMS are other forms of what must be refused.
"""

_K = "kernel void k(device float* out, constant float* in, uint i [[thread_position_in_grid]]) "
_V = _K.replace("constant", "device const")

INVALID = {
    "pointer without address space (MSL 4: every pointer/reference needs one)": "K{ float* p = out; p[i] = in[i]; }",
    "constant pointer passed where device is taken": "float f(device const float* p, uint i) { return p[i]; }\nK{ out[i] = f(in, i); }",
    "threadgroup pointer passed where device is taken": "float f(device float* p) { return p[0]; }\nK{ threadgroup float t[1]; t[0] = in[i]; out[i] = f(t); }",
    "reference without address space to threadgroup memory": "void f(float& x) { x = 1; }\nK{ threadgroup float t[1]; f(t[0]); out[i] = t[0]; }",
    "threadgroup variable in a function that is no kernel": "float f(float x) { threadgroup float t[1]; t[0] = x; return t[0]; }\nK{ out[i] = f(in[i]); }",
    "global variable without constant": "float g = 2;\nK{ out[i] = g; }",
    "static local variable": "K{ static int n = 0; out[i] = n++; }",
    "double": "K{ double x = in[i]; out[i] = x; }",
    "long long": "K{ long long x = in[i]; out[i] = x; }",
    "recursion": "int f(int n) { return n < 2 ? 1 : n * f(n - 1); }\nK{ out[i] = f(int(in[i])); }",
    "lambda (until MSL 3.2)": "K{ auto f = [&](float x) { return x + 1; }; out[i] = f(in[i]); }",
    "goto": "K{ goto end; end: out[i] = in[i]; }",
    "virtual function": "struct A { virtual float f() { return 1; } };\nK{ A a; out[i] = a.f(); }",
    "C++17 structured binding": "struct P { float a, b; };\nK{ auto [a, b] = P{in[i], 1}; out[i] = a + b; }",
    "C++20 concept / abbreviated template": "auto f(auto x) { return x + 1; }\nK{ out[i] = f(in[i]); }",
    "simd_sum of a 64-bit integer": "kernel void k(device long* out, constant float* in, uint i [[thread_position_in_grid]]) { out[i] = simd_sum(long(in[i])); }",
    "simd_shuffle_xor of a 64-bit integer": "kernel void k(device long* out, constant float* in, uint i [[thread_position_in_grid]]) { out[i] = simd_shuffle_xor(long(in[i]), 1); }",
    "atomic<long>": "kernel void k(device atomic<long>* out, constant float* in, uint i [[thread_position_in_grid]]) { atomic_fetch_add_explicit(out, long(1), memory_order_relaxed); }",
    "atomic<half>": "kernel void k(device atomic<half>* out, constant float* in, uint i [[thread_position_in_grid]]) { atomic_fetch_add_explicit(out, half(1), memory_order_relaxed); }",
    "memory_order_acquire (MSL has relaxed alone before 3.2)": "kernel void k(device atomic_int* out, constant float* in, uint i [[thread_position_in_grid]]) { atomic_fetch_add_explicit(out, 1, memory_order_acquire); }",
    "two kernels calling each other: a kernel called by a kernel": "kernel void g(device float* out, constant float* in, uint i [[thread_position_in_grid]]) { out[i] = in[i]; }\nK{ g(out, in, i); }",
    "kernel writes through constant (const cast away)": "K{ ((float*)in)[i] = 1; }",
    "position attributes of different widths": "kernel void k(device float* out, uint3 a [[thread_position_in_grid]], uint2 b [[threadgroup_position_in_grid]]) { out[a.x] = b.x; }",
    "attribute on a variable length array": "K{ int n = int(in[0]); float t[n]; t[0] = 1; out[i] = t[0]; }",
    "bool vector swizzle assignment twice (v.xx = )": "K{ float2 v = float2(0); v.xx = float2(in[i]); out[i] = v.x; }",
    "new expression": "K{ float* p = new float[2]; out[i] = p[0]; }",
    "std namespace": "K{ out[i] = std::fabs(in[i]); }",
    "integer literal suffix ll": "K{ out[i] = float(1ll); }",
    "exp of an int (ambiguous among half and float overloads)": "K{ out[i] = exp(int(in[i])); }",
    "max(float, int)": "K{ out[i] = max(in[i], 1); }",
    "fmax of long": "K{ out[i] = fmax(long(1), long(2)); }",
    "member function called on a constant object": "struct S { float x; float f() const { return x; } };\nkernel void k(device float* out, constant S& s [[buffer(1)]], uint i [[thread_position_in_grid]]) { out[i] = s.f(); }",
    "kernel without void / sizes over 31 buffers": "kernel void k(device float* out [[buffer(31)]], uint i [[thread_position_in_grid]]) { out[i] = 1; }",
    "33 KB of threadgroup memory": "K{ threadgroup float t[8448]; t[i] = in[i]; out[i] = t[i]; }",
}

VALID = {
    "pow ambiguous behind `using namespace c10::metal` (aten.igamma, aten.igammac of torch itself)": "namespace c10 { namespace metal { template <class T, class U, ::metal::enable_if_t<::metal::is_floating_point_v<T>, bool> = true> float pow(T a, U b) { return 0; } } }\nusing namespace c10::metal;\nV{ out[i] = pow(in[i], in[i]); }",
    "METAL_FUNC (mlx)": "METAL_FUNC float f(float x) { return x; }\nV{ out[i] = f(in[i]); }",
    "[[kernel]] behind template (mlx, torch Sort.metal style)": 'template <typename T> [[kernel]] void f(device T* out, uint i [[thread_position_in_grid]]) { out[i] = 1; }\ntemplate [[host_name("k")]] [[kernel]] void f<float>(device float* out, uint i [[thread_position_in_grid]]);',
    "instantiation by decltype (mlx, ggml)": 'template <typename T> kernel void f(device T* out, uint i [[thread_position_in_grid]]) { out[i] = 1; }\ntypedef decltype(f<float>) f_t;\ntemplate [[host_name("k")]] kernel f_t f<float>;',
    "[[kernel, max_total_threads_per_threadgroup(64)]] (mlx)": "[[kernel, max_total_threads_per_threadgroup(64)]] void k(device float* out, device const float* in [[buffer(1)]], uint i [[thread_position_in_grid]]) { out[i] = in[i]; }",
    "threadgroup initialiser (mlx layer_norm)": "V{ threadgroup float t[32] = {0}; t[i] = 1; out[i] = t[i]; }",
    "threadgroup memory as argument (ggml, torch)": "kernel void k(device float* out, device const float* in [[buffer(1)]], uint i [[thread_position_in_grid]], threadgroup float* t [[threadgroup(0)]]) { t[i] = 1; out[i] = t[i]; }",
    "overloads by address space (mlx complex.h)": "float f(device const float* p) { return 1; }\nfloat f(threadgroup const float* p) { return 2; }\nV{ out[i] = f(in); }",
    "function constants": "constant bool c [[function_constant(0)]];\nV{ out[i] = c ? 1 : 0; }",
    "half x half into float product (ggml mul_mm)": "V{ simdgroup_float8x8 c; simdgroup_half8x8 a, b; simdgroup_multiply_accumulate(c, a, b, c); }",
    "thread_elements (mlx steel)": "V{ simdgroup_float8x8 c; c.thread_elements()[0] = 1; out[i] = c.thread_elements()[1]; }",
    "float4x4 / packed_float3 / quad_sum / insert_bits / hadd / addsat": "V{ float4x4 m(1); packed_float3 p = 0; out[i] = quad_sum(in[i]) + insert_bits(1, 2, 3, 4) + hadd(1, 2) + addsat(1, 2); }",
    "union with a vector (mlx ops.h)": "union U { bool4 b; uint i; };\nV{ U u; u.i = 1; out[i] = u.b.x; }",
    "uniform<T>": "V{ uniform<int> n = make_uniform(3); out[i] = n; }",
    "versions of a member function by where its object lies (mlx complex.h)": "struct C { float re; constexpr operator float() const thread { return re; } constexpr operator float() const device { return re; } float f() const device { return 2 * re; } };\nkernel void k(device C* in, device float* out, uint i [[thread_position_in_grid]]) { C c = in[i]; out[i] = float(c) + static_cast<float>(in[i]) + in[i].f(); }",
    "parts of vectors by names that a structure has, too": "struct C { float2 xy; };\nK{ C c = {float2(1, 2)}; float4 v = 1; v.wz += c.xy; v.zx = v.zw; out[i] = v.bgra.x; }",
    "names that the library of the emulated device has": "struct Vector { float a; };\nstruct Places { int b; };\nK{ Vector v{1}; Places p{2}; out[i] = v.a + p.b; }",
    "operators by where their object lies (mlx complex.h)": "struct C { float re; };\nconstexpr thread C& operator+=(thread C& a, C b) { a.re += b.re; return a; }\nconstexpr threadgroup C& operator+=(threadgroup C& a, C b) { a.re += b.re; return a; }\nK{ C c = {1}; c += C{2}; out[i] = c.re; }",
    "specialisations by address space (mlx steel)": "template <class T> struct E {};\ntemplate <class T> struct E<device T*> { typedef T type; };\ntemplate <class T> struct E<threadgroup T*> { typedef T type; };\nK{ E<device float*>::type x = 1; out[i] = x; }",
    "most threads of a template's parameter (mlx gemv)": 'template <class T, int N> [[kernel, max_total_threads_per_threadgroup(N * 32)]] void f(device T* out, uint i [[thread_position_in_grid]]) { out[i] = 1; }\ntemplate [[host_name("k")]] [[kernel]] decltype(f<float, 2>) f<float, 2>;',
    "arrays as parameters with an address space (mlx utils.h)": "int f(constant const int n[2], const device float x[1]) { return n[1] + int(x[0]); }\nkernel void k(device float* out, constant int m[2], uint i [[thread_position_in_grid]]) { out[i] = f(m, out); }",
    "a buffer of a function constant (mlx steel)": "constant bool has [[function_constant(0)]];\nkernel void k(device float* out, constant int& n [[buffer(1), function_constant(has)]], uint i [[thread_position_in_grid]]) { out[i] = 1; if (has) out[i] = n; }",
    "braces in an assertion, places in quads": "struct C { int re; };\nstatic_assert(C{-5}.re == -5);\nkernel void k(device float* out, uint i [[thread_position_in_grid]], ushort q [[thread_index_in_quadgroup]], uint n [[quadgroups_per_threadgroup]]) { out[i] = q + n; }",
}

FORMS = {
    "pointer without address space behind a comma": "K{ float x = 1, *p = &x; out[i] = *p; }",
    "device cast to constant": "K{ constant float* p = (constant float*)out; out[i] = p[0]; }",
    "const_cast constant": "K{ const_cast<device float*>(in)[i] = 1; }",
    "kernel argument thread pointer": "kernel void k(thread float* out) { out[0] = 1; }",
    "kernel argument by value": "kernel void k(float x, device float* out) { out[0] = x; }",
    "global constexpr without constant": "constexpr float g = 2;\nK{ out[i] = g; }",
    "static local const": "K{ static const float n = 1; out[i] = n; }",
    "long int long": "K{ long int long x = 1; out[i] = x; }",
    "noexcept operator": "K{ out[i] = noexcept(in[i]); }",
    "register": "K{ register int x = 1; out[i] = x; }",
    "atomic<ulong> fetch_add": "kernel void k(device atomic<ulong>* out) { atomic_fetch_add_explicit(out, 1ul, memory_order_relaxed); }",
    "atomic float in threadgroup add": "kernel void k(device float* out) { threadgroup atomic<float> t; atomic_fetch_add_explicit(&t, 1.0f, memory_order_relaxed); out[0] = 1; }",
    "atomic float max": "kernel void k(device atomic<float>* out) { atomic_fetch_max_explicit(out, 1.0f, memory_order_relaxed); }",
    "float4 ctor too few": "K{ float4 v = float4(1, 2, 3); out[i] = v.x; }",
    "duplicate buffer": "kernel void k(device float* a [[buffer(0)]], device float* b [[buffer(0)]]) { a[0] = b[0]; }",
    "position int": "kernel void k(device float* a, int i [[thread_position_in_grid]]) { a[i] = i; }",
    "position uint4": "kernel void k(device float* a, uint4 i [[thread_position_in_grid]]) { a[0] = i.x; }",
    "index uint2": "kernel void k(device float* a, uint2 i [[thread_index_in_threadgroup]]) { a[0] = i.x; }",
    "positions of ushort and uint": "kernel void k(device float* a, uint i [[thread_position_in_grid]], ushort n [[threads_per_grid]]) { a[i] = n; }",
    "pointer no space, ctor init": "K{ float* p(out); p[i] = 1; }",
    "pointer no space in struct member": "struct S { float* p; };\nK{ S s; s.p = out; s.p[i] = 1; }",
    "pointer template param no space unused": "template <class T> T f(T* p) { return *p; }\nK{ out[i] = 1; }",
    "simd_sum long in template": "template <class T> T f(T x) { return simd_sum(x); }\nkernel void k(device long* out) { out[0] = f(out[0]); }",
    "swizzle xxyy": "K{ float4 v = 1; v.xxyy = float4(2); out[i] = v.x; }",
    "helper calls kernel": "kernel void g(device float* out) { out[0] = 1; }\nvoid h(device float* out) { g(out); }\nkernel void k(device float* out) { h(out); }",
    "if constexpr": "template <class T> float f() { if constexpr (sizeof(T) == 4) return 1; else return 2; }\nK{ out[i] = f<float>(); }",
    "range for init": "K{ float t[2] = {1, 2}; for (int n = 0; float x : t) out[i] = x; }",
    "member on threadgroup": "struct S { float x; float f() const { return x; } };\nkernel void k(device float* out) { threadgroup S s; s.x = 1; out[0] = s.f(); }",
}

for _kernels in (INVALID, VALID, FORMS):
    for _kind, _text in _kernels.items():
        _kernels[_kind] = _text.replace("K{", f"{_K}{{").replace("V{", f"{_V}{{")
