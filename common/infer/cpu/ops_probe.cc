#include "common/infer/cpu/ops_probe.h"

#include <algorithm>
#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "common/base/digest.h"
#include "common/infer/rotary.h"

namespace foretoken {
namespace {

constexpr int kSize = 128;

// Numbers in [-2, 2) by a linear congruential generator.
std::vector<float> Numbers(int64_t count, uint32_t seed) {
  std::vector<float> out(count);
  for (float& x : out) {
    // Numerical Recipes' constants; the generator must be the same on every
    // machine.
    seed = seed * 1664525u + 1013904223u;
    x = static_cast<float>(seed >> 8) / static_cast<float>(1 << 22) - 2.0f;
  }
  return out;
}

void Hash(Sha256& hash, const std::vector<float>& values) {
  hash.Update(
      absl::MakeConstSpan(reinterpret_cast<const uint8_t*>(values.data()),
                          values.size() * sizeof(float)));
}

std::vector<uint16_t> Bf16(const CpuOps& ops, const std::vector<float>& x) {
  std::vector<uint16_t> out(x.size());
  ops.to_bf16(x.data(), static_cast<int>(x.size()), out.data());
  return out;
}

void ProbeGemm(const CpuOps& ops, bool bf16_products, Sha256& hash) {
  constexpr int kRows = 2;
  const std::vector<float> x = Numbers(kRows * kSize, 1);
  const std::vector<float> w = Numbers(kSize * kGemmColumns, 2);
  const std::vector<uint16_t> x16 = Bf16(ops, x);
  const std::vector<uint16_t> w16 = Bf16(ops, w);
  // Copies with the alignment and the room after the end that kernels expect.
  std::vector<float> tile(kRows * kGemmColumns);
  std::vector<uint8_t> memory(w.size() * sizeof(float) + 64);
  uint8_t* aligned =
      memory.data() +
      (64 - reinterpret_cast<uintptr_t>(memory.data()) % 64) % 64;
  GemmArgs args;
  args.rows = kRows;
  args.tile = tile.data();
  args.weights = aligned;
  args.x = x.data();
  args.x_stride = kSize * 4;
  args.weight_bytes = static_cast<int64_t>(w.size()) * 4;
  std::copy_n(reinterpret_cast<const uint8_t*>(w.data()), args.weight_bytes,
              aligned);
  ops.gemm[static_cast<int>(MatrixType::kFloat32)](args);
  Hash(hash, tile);
  if (!bf16_products) return;
  args.x = x16.data();
  args.x_stride = kSize * 2;
  args.weight_bytes = static_cast<int64_t>(w16.size()) * 2;
  std::copy_n(reinterpret_cast<const uint8_t*>(w16.data()), args.weight_bytes,
              aligned);
  ops.gemm[static_cast<int>(MatrixType::kBFloat16)](args);
  Hash(hash, tile);
}

void ProbeAttention(const CpuOps& ops, Sha256& hash) {
  const std::vector<float> keys = Numbers(kSize * kAttendKeys, 3);
  const std::vector<float> values = Numbers(kAttendKeys * kSize, 4);
  const std::vector<float> query = Numbers(kSize, 5);
  std::vector<float> state(2 + kSize, 0.0f);
  // Not -inf: hashed bits should come from ordinary arithmetic.
  state[0] = -1e30f;
  const float* queries[] = {query.data()};
  float* states[] = {state.data()};
  // A partly filled block, the case with a remainder.
  const int32_t counts[] = {kAttendKeys - 3};
  AttendArgs args;
  args.keys = keys.data();
  args.values = values.data();
  args.head_dim = kSize;
  args.n = kSize;
  args.queries = 1;
  args.query = queries;
  args.key_count = counts;
  args.state = states;
  ops.attend_fp32(args);
  Hash(hash, state);
}

}  // namespace

std::string ProbeOps(const CpuOps& ops, const ModelConfig& config,
                     bool bf16_products) {
  // Everything that can differ between two builds of the same table: products,
  // exponentials, sums, and libm.
  Sha256 hash;
  ProbeGemm(ops, bf16_products, hash);
  ProbeAttention(ops, hash);
  const std::vector<float> a = Numbers(kSize, 6);
  const std::vector<float> b = Numbers(kSize, 7);
  std::vector<float> out(kSize);
  ops.rms_norm(a.data(), b.data(), kSize, kSize, 1e-5f, out.data());
  Hash(hash, out);
  ops.swiglu(a.data(), b.data(), kSize, out.data());
  Hash(hash, out);
  const Rotary rotary(config);
  // Frequencies and angles come from libm, which may differ between machines:
  // all frequencies, and angles at positions spread over a long context.
  std::vector<float> angles(2 * rotary.half());
  for (int i = 0; i < rotary.half(); ++i) {
    const double frequency = rotary.frequency(i);
    hash.Update(
        {reinterpret_cast<const uint8_t*>(&frequency), sizeof(frequency)});
  }
  // A prime step, so that positions of all residues occur.
  for (int64_t position = 0; position < 1 << 17; position += 61) {
    rotary.Angles(position, angles.data(), angles.data() + rotary.half());
    Hash(hash, angles);
  }
  // 64 bits distinguish builds; they are no defence against an attacker.
  return HexDigest(hash.Finish()).substr(0, 16);
}

}  // namespace foretoken
