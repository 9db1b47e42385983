// exp and log with every bit defined: the same result on every machine,
// compiler and device.
//
// libm's results differ between versions and from CUDA's, and a difference in
// the last bit would now and then change a sampled token. These functions use
// IEEE single-precision additions, multiplications and divisions in one fixed
// order, never fused. The error stays below 4 units in the last place
// (fixed_math_test.cc).
//
// Plain functions in a header, so that device code can include them.
// Thread-safe.
#ifndef FORETOKEN_COMMON_SAMPLING_FIXED_MATH_H_
#define FORETOKEN_COMMON_SAMPLING_FIXED_MATH_H_

#include <cstdint>
#include <cstring>

#if defined(__CUDACC__)
#define FORETOKEN_HOST_DEVICE __host__ __device__
#else
#define FORETOKEN_HOST_DEVICE
#endif

namespace foretoken {
namespace internal {

// Each is rounded once. Host code is compiled with -ffp-contract=off; device
// code uses the unfused intrinsics.
FORETOKEN_HOST_DEVICE inline float Add(float a, float b) {
#if defined(__CUDA_ARCH__)
  return __fadd_rn(a, b);
#else
  return a + b;
#endif
}

FORETOKEN_HOST_DEVICE inline float Mul(float a, float b) {
#if defined(__CUDA_ARCH__)
  return __fmul_rn(a, b);
#else
  return a * b;
#endif
}

FORETOKEN_HOST_DEVICE inline float Div(float a, float b) {
#if defined(__CUDA_ARCH__)
  return __fdiv_rn(a, b);
#else
  return a / b;
#endif
}

FORETOKEN_HOST_DEVICE inline uint32_t FloatBits(float x) {
  uint32_t bits;
  std::memcpy(&bits, &x, sizeof bits);
  return bits;
}

FORETOKEN_HOST_DEVICE inline float FloatFromBits(uint32_t bits) {
  float x;
  std::memcpy(&x, &bits, sizeof x);
  return x;
}

// 2 atanh(s) = log((1 + s) / (1 - s)), for |s| <= 0.172.
FORETOKEN_HOST_DEVICE inline float TwiceAtanh(float s) {
  const float s2 = Mul(s, s);
  float p = 0.11111111f;  // 1/9; the next term is below 2^-28
  p = Add(Mul(p, s2), 0.14285715f);
  p = Add(Mul(p, s2), 0.2f);
  p = Add(Mul(p, s2), 0.33333334f);
  // s + s^3 p: adding the large term last keeps the rounding of s itself out of
  // the sum.
  const float half = Add(s, Mul(Mul(s, s2), p));
  return Add(half, half);
}

}  // namespace internal

// Natural logarithm of a positive, normal, finite x.
FORETOKEN_HOST_DEVICE inline float FixedLog(float x) {
  const uint32_t bits = internal::FloatBits(x);
  int32_t exponent = static_cast<int32_t>(bits >> 23) - 127;
  uint32_t mantissa = (bits & 0x007fffffu) | 0x3f800000u;
  if (mantissa > 0x3fb504f3u) {  // above sqrt(2): take half of it
    mantissa -= 0x00800000u;
    exponent += 1;
  }
  const float m = internal::FloatFromBits(mantissa);
  const float log_m = internal::TwiceAtanh(
      internal::Div(internal::Add(m, -1.0f), internal::Add(m, 1.0f)));
  const float e = static_cast<float>(exponent);
  // ln 2 in two parts; e times the first (9 significant bits) is exact.
  const float low = internal::Mul(e, -2.12194440e-4f);
  return internal::Add(internal::Mul(e, 0.693359375f),
                       internal::Add(low, log_m));
}

namespace internal {

// e^x for -87 <= x <= 0, without a branch: loops over it vectorise.
FORETOKEN_HOST_DEVICE inline float ExpInRange(float x) {
  // Adding 1.5 * 2^23 rounds to the nearest integer.
  const float shifted = Add(Mul(x, 1.44269504f), 12582912.0f);
  const float n = Add(shifted, -12582912.0f);
  float r = Add(x, Mul(n, -0.693359375f));
  r = Add(r, Mul(n, 2.12194440e-4f));
  float p = 1.3888889e-3f;  // 1/6!; |r| <= 0.347, the next term is below 2^-22
  p = Add(Mul(p, r), 8.3333333e-3f);
  p = Add(Mul(p, r), 4.1666668e-2f);
  p = Add(Mul(p, r), 1.6666667e-1f);
  p = Add(Mul(p, r), 0.5f);
  const float e_r = Add(1.0f, Add(r, Mul(Mul(r, r), p)));
  const int32_t exponent = static_cast<int32_t>(n) + 127;
  return Mul(e_r, FloatFromBits(static_cast<uint32_t>(exponent) << 23));
}

}  // namespace internal

// e^x for x <= 0; 0 below -87, where the result would leave the normal range.
FORETOKEN_HOST_DEVICE inline float FixedExp(float x) {
  return x >= -87.0f ? internal::ExpInRange(x) : 0.0f;
}

// e^x for x <= 0 as a whole number of 2^-40. Sums of such weights (up to 2^23
// of them) are exact, so they are the same in every order.
inline constexpr float kWeightOne = 1099511627776.0f;  // 2^40
FORETOKEN_HOST_DEVICE inline uint64_t FixedWeight(float x) {
  return static_cast<uint64_t>(internal::Mul(FixedExp(x), kWeightOne));
}

}  // namespace foretoken

#endif  // FORETOKEN_COMMON_SAMPLING_FIXED_MATH_H_
