// What a GPU's matrix units and launches do that the engine relies on or may
// come to: one program, a JSON object for each line, nothing of the engine's
// but its instructions.
//
//   gpu_probe [--device N]
//
//   mma.model.TYPE.CASE    chains of instructions whose bits are not those of
//                          tests/support/cuda_on_cpu/tensor_core.h
//   mma.wgmma.TYPE.N.CASE  sums of mma.m16n8k16 and of wgmma that differ
//   mma.zeros.TYPE         sums that a product of zero and a huge number moved
//   launch.overlap         stale reads over three kernels that begin early
// Exit status 0: no difference but from the model; 1: some, or something did not
// run; 2: no GPU.
#include <cuda_runtime.h>

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "common/infer/cuda/kernels/device_math.cuh"
#include "common/infer/cuda/kernels/gemm_index.h"
#include "common/infer/cuda/kernels/launch.h"
#include "common/infer/cuda/kernels/warpgroup_instructions.cuh"
#include "tests/support/cuda_on_cpu/tensor_core.h"

namespace foretoken::gpu_tests {
namespace {

using device::Mma;

constexpr int kSteps = 8;   // instructions of a chain, 16 k each
constexpr int kBlocks = 64;  // independent chains

bool Good(cudaError_t error, const char* what) {
  if (error == cudaSuccess) return true;
  std::printf("{\"id\": \"%s\", \"error\": \"%s\"}\n", what,
              cudaGetErrorString(error));
  std::fflush(stdout);
  return false;
}

// The chains' inputs in the order of elements: a [block][step][64][16], of
// which mma.m16n8k16 takes 16 rows; b [block][step][n][16].
struct Numbers {
  int n = 8;
  std::vector<float> a, b, c;  // c: [block], where every sum begins
};

template <typename T>
__device__ uint4 FragmentOfA(const T* a, int lane) {
  const auto pair = [&](int row, int k) {
    return *reinterpret_cast<const uint32_t*>(a + row * 16 + k);
  };
  const int row = lane / 4, k = lane % 4 * 2;
  return make_uint4(pair(row, k), pair(row + 8, k), pair(row, k + 8),
                    pair(row + 8, k + 8));
}

// out: [block][64][n].
template <typename T>
__global__ void MmaChains(const T* a, const T* b, const float* c, int n,
                          int steps, float* out) {
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  for (int column = 0; column < n; column += 8) {
    float sums[4];
    for (float& sum : sums) sum = c[blockIdx.x];
    for (int s = 0; s < steps; ++s) {
      const int64_t at = int64_t{blockIdx.x} * steps + s;
      const uint4 fa = FragmentOfA(a + at * 64 * 16 + warp * 16 * 16, lane);
      const T* row = b + (at * n + column + lane / 4) * 16 + lane % 4 * 2;
      Mma<T>(sums, fa, *reinterpret_cast<const uint32_t*>(row),
             *reinterpret_cast<const uint32_t*>(row + 8));
    }
    for (int i = 0; i < 4; ++i) {
      const int r = warp * 16 + lane / 4 + i / 2 * 8;
      out[(int64_t{blockIdx.x} * 64 + r) * n + column + lane % 4 * 2 + i % 2] =
          sums[i];
    }
  }
}

// The same chains by wgmma, rows as the engine's products have them in shared
// memory.
template <typename T, int kN>
__global__ void __launch_bounds__(128, 1)
    WgmmaChains(const T* a, const T* b, const float* c, int steps, float* out) {
#if FORETOKEN_WARPGROUPS
  __shared__ __align__(1024) T shared[kN * device::kGemmKBlock];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  float d[kN / 2];
  for (float& sum : d) sum = c[blockIdx.x];
  for (int s = 0; s < steps; ++s) {
    const int64_t at = int64_t{blockIdx.x} * steps + s;
    __syncthreads();
    for (int i = threadIdx.x; i < kN * 16; i += 128) {
      shared[device::ActivationAt(i / 16, i % 16, kN)] = b[at * kN * 16 + i];
    }
    asm volatile("fence.proxy.async.shared::cta;\n" ::: "memory");
    __syncthreads();
    const uint4 fa = FragmentOfA(a + at * 64 * 16 + warp * 16 * 16, lane);
    device::KeepSums(d);
    device::BeginProducts();
    device::Wgmma<T, kN>::Add(
        d, fa, device::DescribeRows(device::SharedAddress(shared)));
    device::CommitProducts();
    device::WaitProducts<0>();
    device::KeepSums(d);
  }
#pragma unroll
  for (int i = 0; i < kN / 2; ++i) {
    const int r = warp * 16 + lane / 4 + i % 4 / 2 * 8;
    out[(int64_t{blockIdx.x} * 64 + r) * kN + i / 4 * 8 + lane % 4 * 2 +
        i % 2] = d[i];
  }
#endif
}

template <typename T>
class OnDevice {
 public:
  explicit OnDevice(size_t count) : count_(count) {
    if (cudaMalloc(&data_, count * sizeof(T)) != cudaSuccess) data_ = nullptr;
  }
  explicit OnDevice(const std::vector<T>& values) : OnDevice(values.size()) {
    (void)cudaMemcpy(data_, values.data(), count_ * sizeof(T),
                     cudaMemcpyHostToDevice);
  }
  ~OnDevice() { (void)cudaFree(data_); }
  OnDevice(const OnDevice&) = delete;
  OnDevice& operator=(const OnDevice&) = delete;

  T* get() const { return data_; }
  // Waits for what runs.
  bool Read(std::vector<T>& values, const char* what) const {
    values.resize(count_);
    return Good(cudaMemcpy(values.data(), data_, count_ * sizeof(T),
                           cudaMemcpyDeviceToHost),
                what);
  }

 private:
  T* data_ = nullptr;
  size_t count_;
};

template <typename T>
T Rounded(float x);
template <>
__nv_bfloat16 Rounded<__nv_bfloat16>(float x) {
  return __float2bfloat16_rn(x);
}
template <>
__half Rounded<__half>(float x) {
  return __float2half_rn(x);
}
float Widened(__nv_bfloat16 x) { return __bfloat162float(x); }
float Widened(__half x) { return __half2float(x); }

template <typename T>
std::vector<T> RoundedAll(const std::vector<float>& values) {
  std::vector<T> all;
  all.reserve(values.size());
  for (const float value : values) all.push_back(Rounded<T>(value));
  return all;
}

const char* const kCases[] = {"normal", "cancelling", "exponents", "small",
                              "large"};

// `half`: numbers that fp16 can hold.
Numbers Draw(const std::string& which, int n, bool half, int seed) {
  Numbers numbers;
  numbers.n = n;
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::uniform_int_distribution<int> exponent(half ? -12 : -30, half ? 12 : 30);
  const auto draw = [&](size_t i) {
    const float x = normal(random);
    if (which == "cancelling") return i % 2 == 0 ? 64.0f + x : -64.0f + x;
    if (which == "exponents") return std::ldexp(x, exponent(random));
    if (which == "small") return std::ldexp(x, half ? -20 : -75);
    if (which == "large") return std::ldexp(x, half ? 13 : 55);
    return x;
  };
  const size_t chains = size_t{kBlocks} * kSteps;
  for (size_t i = 0; i < chains * 64 * 16; ++i) numbers.a.push_back(draw(i));
  for (size_t i = 0; i < chains * n * 16; ++i) {
    numbers.b.push_back(which == "cancelling" ? 1.0f + normal(random) / 64
                                              : draw(0));
  }
  for (int i = 0; i < kBlocks; ++i) {
    numbers.c.push_back(i % 2 == 0 ? 0.0f : draw(0) * draw(0));
  }
  return numbers;
}

bool SameBits(float a, float b) {
  return std::memcmp(&a, &b, sizeof(a)) == 0;
}

void Say(const std::string& id, size_t different, size_t of) {
  std::printf("{\"id\": \"%s\", \"different\": %zu, \"of\": %zu}\n",
              id.c_str(), different, of);
  std::fflush(stdout);
}

// Reports a comparison and returns whether there was no difference.
bool Same(const std::string& id, size_t different, size_t of) {
  Say(id, different, of);
  return different == 0;
}

template <typename T>
bool Chains(const Numbers& numbers, std::vector<float>& out) {
  const OnDevice<T> a(RoundedAll<T>(numbers.a)), b(RoundedAll<T>(numbers.b));
  const OnDevice<float> c(numbers.c);
  const OnDevice<float> sums(size_t{kBlocks} * 64 * numbers.n);
  MmaChains<T><<<kBlocks, 128>>>(a.get(), b.get(), c.get(), numbers.n, kSteps,
                                 sums.get());
  return Good(cudaGetLastError(), "mma") && sums.Read(out, "mma");
}

// One instruction is compared by a chain of one; a chain shows what it adds up
// to.
template <typename T>
bool AgainstModel(const std::string& type, int least) {
  bool good = true;
  for (const char* which : kCases) {
    const Numbers numbers = Draw(which, 8, least == -14, 1);
    std::vector<float> got;
    if (!Chains<T>(numbers, got)) return false;
    size_t different = 0;
    for (int block = 0; block < kBlocks; ++block) {
      for (int row = 0; row < 64; ++row) {
        for (int column = 0; column < 8; ++column) {
          float sum = numbers.c[block];
          for (int s = 0; s < kSteps; ++s) {
            const size_t at = size_t(block) * kSteps + s;
            float a[16], b[16];
            for (int k = 0; k < 16; ++k) {
              a[k] = Widened(
                  Rounded<T>(numbers.a[(at * 64 + row) * 16 + k]));
              b[k] = Widened(
                  Rounded<T>(numbers.b[(at * 8 + column) * 16 + k]));
            }
            sum = cuda_on_cpu::TensorCoreSum(a, b, sum, least);
          }
          const float of_gpu = got[(block * 64 + row) * 8 + column];
          if (SameBits(sum, of_gpu) ||
              (std::isnan(sum) && std::isnan(of_gpu))) {
            continue;
          }
          if (different++ < 3) {
            std::fprintf(stderr, "%s %s: model %a, GPU %a\n", type.c_str(),
                         which, sum, of_gpu);
          }
        }
      }
    }
    Say("mma.model." + type + "." + which, different, got.size());
  }
  return good;
}

template <typename T, int kN>
bool AgainstWgmma(const std::string& type, bool half) {
  bool good = true;
  for (const char* which : kCases) {
    const Numbers numbers = Draw(which, kN, half, 2);
    std::vector<float> want, got;
    if (!Chains<T>(numbers, want)) return false;
    const OnDevice<T> a(RoundedAll<T>(numbers.a)), b(RoundedAll<T>(numbers.b));
    const OnDevice<float> c(numbers.c);
    const OnDevice<float> sums(want.size());
    // If the kernel has no code for this GPU, these NaNs stay and differ.
    (void)cudaMemset(sums.get(), 0xff, want.size() * sizeof(float));
    WgmmaChains<T, kN><<<kBlocks, 128>>>(a.get(), b.get(), c.get(), kSteps,
                                         sums.get());
    if (!Good(cudaGetLastError(), "wgmma") || !sums.Read(got, "wgmma")) {
      return false;
    }
    size_t different = 0;
    for (size_t i = 0; i < want.size(); ++i) {
      different += !SameBits(want[i], got[i]);
    }
    good = Same("mma.wgmma." + type + "." + std::to_string(kN) + "." + which,
                different, want.size()) &&
           good;
  }
  return good;
}

template <typename T>
bool AgainstWgmma(const std::string& type, bool half) {
  bool good = AgainstWgmma<T, 64>(type, half);
  good = AgainstWgmma<T, 72>(type, half) && good;
  good = AgainstWgmma<T, 128>(type, half) && good;
  good = AgainstWgmma<T, 192>(type, half) && good;
  return AgainstWgmma<T, 256>(type, half) && good;
}

// The last eight products are zero, once by two zeros and once by zero and the
// largest number.
template <typename T>
bool Zeros(const std::string& type, float huge) {
  Numbers numbers = Draw("normal", 8, true, 3);
  for (size_t i = 0; i < numbers.a.size(); ++i) {
    if (i % 16 >= 8) numbers.a[i] = 0.0f;
  }
  std::vector<float> plain, beside;
  for (const float other : {0.0f, huge}) {
    for (size_t i = 0; i < numbers.b.size(); ++i) {
      if (i % 16 >= 8) numbers.b[i] = i % 2 == 0 ? other : -other;
    }
    if (!Chains<T>(numbers, other == 0.0f ? plain : beside)) return false;
  }
  size_t different = 0;
  for (size_t i = 0; i < plain.size(); ++i) {
    different += !SameBits(plain[i], beside[i]);
  }
  return Same("mma.zeros." + type, different, plain.size());
}

// --- launches that begin early ------------------------------------------------

constexpr int kWords = 1 << 16;

// Writes `value` late.
__global__ void WriteLate(uint32_t* words, uint32_t value) {
  device::AllowNextKernel();
  device::WaitForPreviousKernels();
  const long long start = clock64();
  while (clock64() - start < 20000) {
  }
  words[blockIdx.x * blockDim.x + threadIdx.x] = value;
}
// Waits, and touches nothing of them.
__global__ void Between(uint32_t* others) {
  device::AllowNextKernel();
  device::WaitForPreviousKernels();
  if (threadIdx.x == 0 && blockIdx.x == 0) ++*others;
}
__global__ void CountStale(const uint32_t* words, uint32_t value,
                           unsigned* stale) {
  device::AllowNextKernel();
  device::WaitForPreviousKernels();
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  // (From a block far from the one that wrote it.)
  if (words[kWords - 1 - i] != value) atomicAdd(stale, 1u);
}

bool Overlap() {
  constexpr int kRounds = 2000;
  cudaStream_t stream;
  if (!Good(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking),
            "launch.overlap")) {
    return false;
  }
  const OnDevice<uint32_t> words(kWords), others(1);
  const OnDevice<unsigned> stale(1);
  (void)cudaMemset(stale.get(), 0, sizeof(unsigned));
  (void)cudaDeviceSynchronize();
  device::Launcher launcher;
  launcher.stream = stream;
  cudaError_t error = cudaSuccess;
  for (uint32_t round = 1; round <= kRounds && error == cudaSuccess; ++round) {
    const dim3 grid(kWords / 256), block(256);
    error = launcher.Run(WriteLate, grid, block, 0, words.get(), round);
    if (error == cudaSuccess) {
      error = launcher.Run(Between, dim3(4), block, 0, others.get());
    }
    if (error == cudaSuccess) {
      error = launcher.Run(CountStale, grid, block, 0, words.get(), round,
                           stale.get());
    }
  }
  if (error == cudaSuccess) error = cudaStreamSynchronize(stream);
  (void)cudaStreamDestroy(stream);
  std::vector<unsigned> found;
  if (!Good(error, "launch.overlap") || !stale.Read(found, "launch.overlap")) {
    return false;
  }
  return Same("launch.overlap", found[0], size_t{kRounds} * kWords);
}

int Main(int argc, char** argv) {
  const bool named = argc == 3 && std::strcmp(argv[1], "--device") == 0;
  if (argc != 1 && !named) {
    std::fprintf(stderr, "usage: gpu_probe [--device N]\n");
    return 1;
  }
  const int number = named ? std::atoi(argv[2]) : 0;
  int count = 0;
  if (cudaGetDeviceCount(&count) != cudaSuccess || count <= number ||
      cudaSetDevice(number) != cudaSuccess) {
    std::fprintf(stderr, "gpu_probe: no GPU %d\n", number);
    return 2;
  }
  cudaDeviceProp properties;
  if (!Good(cudaGetDeviceProperties(&properties, number), "device")) return 1;
  bool good = AgainstModel<__nv_bfloat16>("bf16", -126);
  good = AgainstModel<__half>("fp16", -14) && good;
  good = Zeros<__nv_bfloat16>("bf16", 3.38e38f) && good;
  good = Zeros<__half>("fp16", 65504.0f) && good;
  if (properties.major == 9) {
    good = Overlap() && good;
    good = AgainstWgmma<__nv_bfloat16>("bf16", false) && good;
    good = AgainstWgmma<__half>("fp16", true) && good;
  }
  return good ? 0 : 1;
}

}  // namespace
}  // namespace foretoken::gpu_tests

int main(int argc, char** argv) {
  return foretoken::gpu_tests::Main(argc, argv);
}
