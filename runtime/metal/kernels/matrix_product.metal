// Matrix products, and convolutions as such, tile by tile (tiles.h).
#include "images.h"
#include "tiles.h"

// What a kernel's taps see of one image: a line for each place of the result, a term for each tap
// of each channel. Taps are told apart once a step, for all places; a place knows as bits which
// rows and columns of the kernel lie within its image.
template <typename T>
struct Patches {
  device const T* data;
  threadgroup int2* taps;  // of a step: how far each is, and the bits of its row and column
  int term;                // the first one
  Places of;
  Image from;
  Image to;
  Window w;
  // A thread's own: its place and what that sees, the tap that it prepares, and steps of taps.
  device const T* place;
  int seen;
  int channel, tap_y, tap_x;
  int channels_on, rows_on, columns_on;

  template <int Tile, bool kLines>
  void begin(Held<Tile, kLines>, uint line, uint index) {
    const int at = line + index % Tile;
    const int row = at / to.width;
    const int y = row * w.stride_y - w.padding_y;
    const int x = (at - row * to.width) * w.stride_x - w.padding_x;
    place = data + (y * of.row + x * of.column);
    seen = 0;
    for (int i = 0; i < w.height; ++i) seen |= within(y + i * w.dilation_y, from.height) << i;
    for (int i = 0; i < w.width; ++i) {
      seen |= within(x + i * w.dilation_x, from.width) << (w.height + i);
    }
    if (row >= to.height) seen = 0;
    const int area = w.height * w.width, steps = 1024 / Tile, own = term + index;
    channel = own / area;
    tap_y = own % area / w.width;
    tap_x = own % w.width;
    channels_on = steps / area;
    rows_on = steps % area / w.width;
    columns_on = steps % w.width;
    if (index < 1024 / Tile) tell(index);
    threadgroup_barrier(mem_flags::mem_threadgroup);
  }
  static int within(int at, int extent) { return at >= 0 && at < extent; }
  void tell(uint index) const {
    const int far =
        channel * of.channel + tap_y * w.dilation_y * of.row + tap_x * w.dilation_x * of.column;
    // No place has the last bit.
    int2 tap;
    tap.x = far;
    tap.y = channel < from.channels ? 1 << tap_y | 1 << (w.height + tap_x) : INT_MIN;
    taps[index] = tap;
  }

  template <int Tile, bool kLines>
  void hold(Held<Tile, kLines> held, uint, uint index) const {
    constexpr uint kApart = kThreads / Tile;
    threadgroup const int2* tap = taps + index / Tile;
    threadgroup float* at = held.all + held.at(index % Tile, index / Tile);
#pragma unroll
    for (uint i = 0; i < 1024 / Tile; i += kApart) {
      const int2 each = tap[i];
      const bool sees = (seen & each.y) == each.y;
      at[i * held.kTerm] = sees ? static_cast<float>(place[each.x]) : 0.0f;
    }
  }
  template <int Tile>
  void prepare(uint index) {
    if (index >= 1024 / Tile) return;
    tap_x += columns_on;
    if (tap_x >= w.width) tap_x -= w.width, ++tap_y;
    tap_y += rows_on;
    if (tap_y >= w.height) tap_y -= w.height, ++channel;
    channel += channels_on;
    tell(index);
  }
};

// Scaled: the rows of `b` are multiplied by factors before.
template <typename T, int Tile, bool kScaled>
kernel void multiply(device T* out [[buffer(0)]], device const T* a [[buffer(1)]],
                     device const T* b [[buffer(2)]], device const T* addend [[buffer(3)]],
                     constant Extents& p [[buffer(4)]], constant Strides& of_a [[buffer(5)]],
                     constant Strides& of_b [[buffer(6)]], device const T* factors [[buffer(7)]],
                     constant Strides& of_factors [[buffer(8)]],
                     constant Strides& of_addend [[buffer(9)]], FINISH(10, 11, 12),
                     device float* sums [[buffer(13)]], constant Parts& parts [[buffer(14)]],
                     uint3 group [[threadgroup_position_in_grid]],
                     uint index [[thread_index_in_threadgroup]]) {
  threadgroup float memory[MEMORY(Tile)];
  const Task task = task_of(group.z, p, parts);
  device const T* left = a + (task.batch * of_a.batch + task.first * of_a.column);
  device const T* right = b + (task.batch * of_b.batch + task.first * of_b.row);
  device const T* own = factors + (task.batch * of_factors.batch + task.first * of_factors.row);
  const Result<T> to{out, addend, sums, parts.count == 1, of_addend, p, {&finish, other, &of_other, task.batch}};
  multiply_tile<Tile>(Matrix<T>{left, of_a.row, of_a.column, p.m, task.terms},
                      Matrix<T, kScaled>{right, of_b.column, of_b.row, p.n, task.terms, own,
                                         of_factors.row},
                      to, task.terms, memory, group, index);
}

// A convolution of [N, C, H, W] by [O, C / groups, KH, KW] into a dense [N, O, H, W]; the batch is
// of the groups of all images, each of which is a product.
template <typename T, int Tile>
kernel void convolve(device T* out [[buffer(0)]], device const T* weight [[buffer(1)]],
                     device const T* input [[buffer(2)]], device const T* bias [[buffer(3)]],
                     constant Extents& p [[buffer(4)]], constant Image& from [[buffer(5)]],
                     constant Image& to [[buffer(6)]], constant Window& w [[buffer(7)]],
                     constant Places& of [[buffer(8)]], constant uint& groups [[buffer(9)]],
                     constant Strides& of_bias [[buffer(10)]], FINISH(11, 12, 13),
                     device float* sums [[buffer(14)]], constant Parts& parts [[buffer(15)]],
                     uint3 group [[threadgroup_position_in_grid]],
                     uint index [[thread_index_in_threadgroup]]) {
  threadgroup float memory[MEMORY(Tile)];
  threadgroup int2 taps[1024 / Tile];
  const Task task = task_of(group.z, p, parts);
  const uint image = task.batch / groups, first = (task.batch - image * groups) * p.m;
  const Matrix<T> kernels{weight + (first * p.k + task.first), p.k, 1, p.m, task.terms};
  const int channel = task.batch % groups * from.channels;
  const Patches<T> patches{input + (image * of.image + channel * of.channel),
                           taps,
                           static_cast<int>(task.first),
                           of,
                           from,
                           to,
                           w};
  const Result<T> result{out + (task.batch - image) * p.m * p.n,
                         bias + first * of_bias.row,
                         sums,
                         parts.count == 1,
                         of_bias,
                         p,
                         {&finish, other + first * of_other.row, &of_other, image}};
  multiply_tile<Tile>(kernels, patches, result, task.terms, memory, group, index);
}

#define INSTANTIATE(T, Tile)                                    \
  template [[host_name("multiply_" #T "_" #Tile)]] [[kernel]]   \
  decltype(multiply<T, Tile, false>) multiply<T, Tile, false>;  \
  template [[host_name("multiply_scaled_" #T "_" #Tile)]] [[kernel]] \
  decltype(multiply<T, Tile, true>) multiply<T, Tile, true>; \
  template [[host_name("convolve_" #T "_" #Tile)]] [[kernel]]   \
  decltype(convolve<T, Tile>) convolve<T, Tile>;

INSTANTIATE(float, 32)
INSTANTIATE(float, 64)
INSTANTIATE(half, 32)
INSTANTIATE(half, 64)
INSTANTIATE(bfloat, 32)
INSTANTIATE(bfloat, 64)
