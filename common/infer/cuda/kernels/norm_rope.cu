#include "common/infer/cuda/kernels/device_math.cuh"
#include "common/infer/cuda/kernels/gemm_index.h"
#include "common/infer/cuda/kernels/norm_rope.h"

namespace foretoken::device {
namespace {

constexpr int kRopeWarps = 4;
constexpr int kPairsOfLane = kMaxHeadDim / 2 / 32;

__device__ __forceinline__ float4 Plus(const float4& a, const float4& b) {
  return make_float4(a.x + b.x, a.y + b.y, a.z + b.z, a.w + b.w);
}

template <typename T>
__device__ __forceinline__ float4 Embedding(const NormParams& p, int32_t token,
                                            int column) {
  const T* row =
      static_cast<const T*>(p.embedding) + int64_t{token} * p.d_model;
  float v[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    v[i] = column + i < p.d_model ? Widen(row[column + i]) : 0.0f;
  }
  return make_float4(v[0], v[1], v[2], v[3]);
}

// The groups are loaded together and added one after the other.
__device__ __forceinline__ float4 GroupSum(const float* sums, int64_t stride,
                                           int groups) {
  float4 part[kGemmMaxGroups];
#pragma unroll
  for (int i = 0; i < kGemmMaxGroups; ++i) {
    if (i < groups) {
      part[i] = *reinterpret_cast<const float4*>(sums + i * stride);
    }
  }
  float4 sum = part[0];
#pragma unroll
  for (int i = 1; i < kGemmMaxGroups; ++i) {
    if (i < groups) sum = Plus(sum, part[i]);
  }
  return sum;
}

constexpr int kNormStep = kNormThreads * 4;  // columns

// The row's stream from column `column` on, grown. `bias`: that of these
// columns, which is asked for only where there is one, after the sums.
template <typename T, typename Bias>
__device__ __forceinline__ float4 Grown(const NormParams& p, int64_t row,
                                        const float4& old, int column,
                                        const Bias& bias) {
  if (p.embedding != nullptr) {
    return Embedding<T>(p, p.pass->row()[row].token, column);
  }
  float4 sum = GroupSum(p.sums + row * p.width + column,
                        p.padded_rows * p.width, p.groups);
  if (p.bias != nullptr) sum = Plus(sum, bias());
  return Plus(old, sum);
}

// A thread loads its first kAhead places of the row together and keeps them in
// registers. 2 is for passes with at most one row on each multiprocessor. 0 is
// for longer passes: fewer registers let two rows run on one multiprocessor.
template <typename T, int kAhead>
__global__ void __launch_bounds__(kNormThreads) NormKernel(const NormParams p) {
  auto& shared = StaticShared<float[kNormThreads / 32]>();
  AllowNextKernel();
  const int index = blockIdx.x;
  const bool is_row = index < (p.by_output ? p.pass->outputs : p.pass->rows);
  const int64_t row =
      is_row && p.by_output ? p.pass->output()[index].row : index;
  const int first = threadIdx.x * 4;
  constexpr int kKept = kAhead == 0 ? 1 : kAhead;
  float4 weight[kKept], bias[kKept];
#pragma unroll
  for (int i = 0; i < kAhead; ++i) {
    const int column = first + i * kNormStep;
    if (column >= p.width) continue;
    weight[i] = *reinterpret_cast<const float4*>(p.weight + column);
    if (p.bias != nullptr) {
      bias[i] = *reinterpret_cast<const float4*>(p.bias + column);
    }
  }
  WaitForPreviousKernels();
  if (!is_row) return;
  float* stream = p.stream + row * p.width;

  float squares = 0.0f;
  const auto grow = [&](int column, const float4& x) {
    *reinterpret_cast<float4*>(stream + column) = x;
    squares = __fmaf_rn(x.x, x.x, squares);
    squares = __fmaf_rn(x.y, x.y, squares);
    squares = __fmaf_rn(x.z, x.z, squares);
    squares = __fmaf_rn(x.w, x.w, squares);
  };
  float4 kept[kKept];
#pragma unroll
  for (int i = 0; i < kAhead; ++i) {
    const int column = first + i * kNormStep;
    if (column >= p.width) continue;
    kept[i] =
        Grown<T>(p, row, *reinterpret_cast<const float4*>(stream + column),
                 column, [&] { return bias[i]; });
  }
#pragma unroll
  for (int i = 0; i < kAhead; ++i) {
    const int column = first + i * kNormStep;
    if (column < p.width) grow(column, kept[i]);
  }
  constexpr int kRest = kAhead * kNormStep;
#pragma unroll 1
  for (int column = first + kRest; column < p.width; column += kNormStep) {
    grow(column,
         Grown<T>(p, row, *reinterpret_cast<const float4*>(stream + column),
                  column, [&] {
                    return *reinterpret_cast<const float4*>(p.bias + column);
                  }));
  }
  const float mean =
      BlockSum<kNormThreads>(squares, shared) / static_cast<float>(p.d_model);
  const float inverse = 1.0f / sqrtf(mean + p.eps);

  const auto store = [&](int column, const float4& x, const float4& w) {
    uint2 packed;
    packed.x =
        PackPair(Round<T>(x.x * inverse * w.x), Round<T>(x.y * inverse * w.y));
    packed.y =
        PackPair(Round<T>(x.z * inverse * w.z), Round<T>(x.w * inverse * w.w));
    *reinterpret_cast<uint2*>(static_cast<T*>(p.out) +
                              ActivationAt(index, column, p.padded_rows)) =
        packed;
  };
#pragma unroll
  for (int i = 0; i < kAhead; ++i) {
    const int column = first + i * kNormStep;
    if (column < p.width) store(column, kept[i], weight[i]);
  }
  // Each thread reads back what it wrote itself.
#pragma unroll 1
  for (int column = first + kRest; column < p.width; column += kNormStep) {
    store(column, *reinterpret_cast<const float4*>(stream + column),
          *reinterpret_cast<const float4*>(p.weight + column));
  }
}

__global__ void __launch_bounds__(kNormThreads)
    StatesKernel(const StatesParams p) {
  auto& shared = StaticShared<float[kNormThreads / 32]>();
  WaitForPreviousKernels();
  const NormParams& n = p.norm;
  const int64_t row = p.first + blockIdx.x;
  const bool grown = n.pass->row()[row].output >= 0;
  const float* stream = n.stream + row * n.width;
  float* out = p.out + int64_t{blockIdx.x} * n.width;
  float squares = 0.0f;
  // The columns and the order of NormKernel.
  for (int column = threadIdx.x * 4; column < n.width; column += kNormStep) {
    float4 x = *reinterpret_cast<const float4*>(stream + column);
    if (!grown) {
      float4 sum = GroupSum(n.sums + row * n.width + column,
                            n.padded_rows * n.width, n.groups);
      if (n.bias != nullptr) {
        sum = Plus(sum, *reinterpret_cast<const float4*>(n.bias + column));
      }
      x = Plus(x, sum);
    }
    *reinterpret_cast<float4*>(out + column) = x;
    squares = __fmaf_rn(x.x, x.x, squares);
    squares = __fmaf_rn(x.y, x.y, squares);
    squares = __fmaf_rn(x.z, x.z, squares);
    squares = __fmaf_rn(x.w, x.w, squares);
  }
  const float mean =
      BlockSum<kNormThreads>(squares, shared) / static_cast<float>(n.d_model);
  const float inverse = 1.0f / sqrtf(mean + n.eps);
  // Each thread reads back what it wrote itself.
  for (int column = threadIdx.x * 4; column < n.width; column += kNormStep) {
    const float4 x = *reinterpret_cast<const float4*>(out + column);
    const float4 w = *reinterpret_cast<const float4*>(n.weight + column);
    *reinterpret_cast<float4*>(out + column) =
        make_float4(x.x * inverse * w.x, x.y * inverse * w.y,
                    x.z * inverse * w.z, x.w * inverse * w.w);
  }
}

// Element `feature` of the row's QKV.
__device__ __forceinline__ float QkvValue(const RopeParams& p, int64_t row,
                                          int64_t feature) {
  const float* from = p.sums + row * p.features + feature;
  const int64_t stride = p.padded_rows * p.features;
  float part[kGemmMaxGroups];
#pragma unroll
  for (int i = 0; i < kGemmMaxGroups; ++i) {
    if (i < p.groups) part[i] = from[i * stride];
  }
  float sum = part[0];
#pragma unroll
  for (int i = 1; i < kGemmMaxGroups; ++i) {
    if (i < p.groups) sum = sum + part[i];
  }
  return p.bias == nullptr ? sum : sum + p.bias[feature];
}

template <typename T>
__device__ __forceinline__ T KeptValue(float x) {
  if (x != x) return Round<T>(0.0f);
  return Round<T>(fminf(fmaxf(x, -LargestFinite<T>()), LargestFinite<T>()));
}

// One warp: one row's query, key or value of one head. `slot` counts heads,
// then kv heads, then kv heads again.
template <typename T>
__global__ void __launch_bounds__(kRopeWarps * 32)
    RopeKernel(const RopeParams p) {
  AllowNextKernel();
  const int lane = threadIdx.x % 32;
  const int slot = blockIdx.x * kRopeWarps + threadIdx.x / 32;
  const int64_t row = blockIdx.y;
  const bool is_row = row < p.pass->rows;
  const int position = is_row ? p.pass->row()[row].position : 0;
  WaitForPreviousKernels();
  if (slot >= p.heads + 2 * p.kv.kv_heads || !is_row) return;
  const int half = p.head_dim / 2;
  const int64_t feature = int64_t{slot} * p.head_dim;
  // Pair j of the lane: dimensions i and i + half, i = lane + 32 j.
  float a[kPairsOfLane], b[kPairsOfLane];
#pragma unroll
  for (int j = 0; j < kPairsOfLane; ++j) {
    const int i = lane + 32 * j;
    const bool inside = i < half;
    a[j] = inside ? QkvValue(p, row, feature + i) : 0.0f;
    b[j] = inside ? QkvValue(p, row, feature + half + i) : 0.0f;
  }
  const int64_t scratch = p.kv.first_scratch_slot + row;
  if (slot >= p.heads + p.kv.kv_heads) {
    T* out = static_cast<T*>(p.kv.values) +
             KvAt(p.kv, p.layer, scratch, slot - p.heads - p.kv.kv_heads);
#pragma unroll
    for (int j = 0; j < kPairsOfLane; ++j) {
      const int i = lane + 32 * j;
      if (i >= half) continue;
      out[i] = KeptValue<T>(a[j]);
      out[i + half] = KeptValue<T>(b[j]);
    }
    return;
  }

  const bool query = slot < p.heads;
  const float* norm = query ? p.query_norm : p.key_norm;
  if (norm != nullptr) {
    float squares = 0.0f;
#pragma unroll
    for (int j = 0; j < kPairsOfLane; ++j) {
      squares = __fmaf_rn(a[j], a[j], squares);
      squares = __fmaf_rn(b[j], b[j], squares);
    }
    const float mean = WarpSum(squares) / static_cast<float>(p.head_dim);
    const float inverse = 1.0f / sqrtf(mean + p.eps);
#pragma unroll
    for (int j = 0; j < kPairsOfLane; ++j) {
      const int i = lane + 32 * j;
      if (i >= half) continue;
      a[j] = a[j] * inverse * norm[i];
      b[j] = b[j] * inverse * norm[i + half];
    }
  }
  const int64_t angle = int64_t{position} * half;
  float* query_out = p.queries + (row * p.heads + slot) * p.kv.padded_head_dim;
  T* key_out = static_cast<T*>(p.kv.keys) +
               KvAt(p.kv, p.layer, scratch, query ? 0 : slot - p.heads);
#pragma unroll
  for (int j = 0; j < kPairsOfLane; ++j) {
    const int i = lane + 32 * j;
    if (i >= half) continue;
    const float cosine = p.cosines[angle + i];
    const float sine = p.sines[angle + i];
    const float low = a[j] * cosine - b[j] * sine;
    const float high = b[j] * cosine + a[j] * sine;
    if (query) {
      query_out[i] = low * p.query_scale;
      query_out[i + half] = high * p.query_scale;
    } else {
      key_out[i] = Round<T>(low);
      key_out[i + half] = Round<T>(high);
    }
  }
}

// Calls `use` with the kernel of the type.
template <int kAhead, typename Use>
cudaError_t WithNorm(DeviceType type, const Use& use) {
  return type == DeviceType::kBFloat16 ? use(NormKernel<__nv_bfloat16, kAhead>)
                                       : use(NormKernel<__half, kAhead>);
}

}  // namespace

cudaError_t PrepareNormRope() {
  const auto prepare = [](auto* kernel) { return PrepareKernel(kernel); };
  for (const cudaError_t error : {WithNorm<0>(DeviceType::kBFloat16, prepare),
                                  WithNorm<0>(DeviceType::kFloat16, prepare),
                                  WithNorm<2>(DeviceType::kBFloat16, prepare),
                                  WithNorm<2>(DeviceType::kFloat16, prepare),
                                  PrepareKernel(StatesKernel),
                                  PrepareKernel(RopeKernel<__nv_bfloat16>),
                                  PrepareKernel(RopeKernel<__half>)}) {
    if (error != cudaSuccess) return error;
  }
  return cudaSuccess;
}

cudaError_t LaunchNorm(DeviceType type, const NormParams& params, int rows,
                       const DeviceLimits& device, Launcher& launcher) {
  const auto launch = [&](auto* kernel) {
    return launcher.Run(kernel, dim3(rows), dim3(kNormThreads), 0, params);
  };
  return rows <= device.multiprocessors ? WithNorm<2>(type, launch)
                                        : WithNorm<0>(type, launch);
}

cudaError_t LaunchStates(const StatesParams& params, int rows,
                         Launcher& launcher) {
  return launcher.Run(StatesKernel, dim3(rows), dim3(kNormThreads), 0, params);
}

cudaError_t LaunchRope(DeviceType type, const RopeParams& params, int rows,
                       Launcher& launcher) {
  const int slots = params.heads + 2 * params.kv.kv_heads;
  const dim3 grid((slots + kRopeWarps - 1) / kRopeWarps, rows);
  const dim3 block(kRopeWarps * 32);
  return type == DeviceType::kBFloat16
             ? launcher.Run(RopeKernel<__nv_bfloat16>, grid, block, 0, params)
             : launcher.Run(RopeKernel<__half>, grid, block, 0, params);
}

}  // namespace foretoken::device
