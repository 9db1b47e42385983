// One output of a matrix unit's instruction with 16 products, as Hopper's
// compute it by "MMA-Sim" (arXiv 2511.10909): products exact, cut to a common
// quantum of 2^-25 of the largest exponent, added exactly, cut to fp32.
#ifndef FORETOKEN_TESTS_SUPPORT_CUDA_ON_CPU_TENSOR_CORE_H_
#define FORETOKEN_TESTS_SUPPORT_CUDA_ON_CPU_TENSOR_CORE_H_

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>

namespace foretoken::cuda_on_cpu {

inline constexpr int kTensorCoreBits = 25;  // below the largest exponent
inline constexpr int kLeastExponentOfFloat16 = -14;
inline constexpr int kLeastExponentOfBFloat16 = -126;  // and of fp32

// The exponent that a number is stored with; it is not zero.
inline int StoredExponent(float x, int least) {
  return std::max(std::ilogb(x), least);
}

// Towards zero.
inline float CutToFloat(double x) {
  const float nearest = static_cast<float>(x);
  if (std::isinf(nearest) || std::abs(nearest) <= std::abs(x)) return nearest;
  return std::nextafter(nearest, 0.0f);
}

// c + sum of a[i] * b[i], i < 16; `least`: of the stored exponents of a and b.
inline float TensorCoreSum(const float* a, const float* b, float c, int least) {
  constexpr int kProducts = 16;
  double products[kProducts + 1];
  int largest = std::numeric_limits<int>::min();
  double special = 0.0;
  for (int i = 0; i < kProducts; ++i) {
    products[i] = static_cast<double>(a[i]) * b[i];
    special += products[i];
    if (products[i] == 0.0 || !std::isfinite(products[i])) continue;
    largest = std::max(
        largest, StoredExponent(a[i], least) + StoredExponent(b[i], least));
  }
  products[kProducts] = c;
  special += c;
  if (!std::isfinite(special)) {
    constexpr uint32_t kNan = 0x7fffffff;
    float nan;
    std::memcpy(&nan, &kNan, sizeof(nan));
    return std::isnan(special) ? nan : static_cast<float>(special);
  }
  if (c != 0.0f) {
    largest = std::max(largest, StoredExponent(c, kLeastExponentOfBFloat16));
  }
  if (largest == std::numeric_limits<int>::min()) return 0.0f;
  int64_t sum = 0;
  for (const double product : products) {
    sum += static_cast<int64_t>(
        std::trunc(std::ldexp(product, kTensorCoreBits - largest)));
  }
  return CutToFloat(
      std::ldexp(static_cast<double>(sum), largest - kTensorCoreBits));
}

}  // namespace foretoken::cuda_on_cpu

#endif  // FORETOKEN_TESTS_SUPPORT_CUDA_ON_CPU_TENSOR_CORE_H_
