// The packed matrix product by rows, beside oneDNN's where that library is
// installed (for comparison only: the engine never links it). CPU time, so that
// other work on the machine counts little:
//
//   gemm_bench --benchmark_enable_random_interleaving=true
//
// K = 2048; the columns of several matrices in turn, so that weights come from
// memory and not from a cache.
#include <algorithm>
#include <cstdint>
#include <random>
#include <utility>
#include <vector>

#include "benchmark/benchmark.h"
#include "common/base/check.h"
#include "common/base/huge_buffer.h"
#include "common/base/thread_pool.h"
#include "common/infer/block_quants.h"
#include "common/infer/cpu/cpu_isa.h"
#include "common/infer/cpu/ops.h"
#include "common/infer/cpu/packed_matrix.h"
#include "common/infer/weight_types.h"

#if FORETOKEN_HAVE_DNNL
#include "dnnl.hpp"
#endif

namespace foretoken {
namespace {

constexpr int64_t kK = 2048;
constexpr int64_t kColumns = 2048;
constexpr int64_t kMatrices = 24;  // 57 MiB in four bits, 192 MiB in bf16

HugeBuffer Filled(int64_t bytes, uint8_t value) {
  auto buffer = HugeBuffer::Allocate(bytes);
  FORETOKEN_CHECK(buffer.ok());
  std::fill_n(buffer->data(), bytes, value);
  return *std::move(buffer);
}

void Count(benchmark::State& state, int64_t rows) {
  state.counters["GFLOP/s"] =
      benchmark::Counter(2e-9 * static_cast<double>(rows * kK * kColumns) *
                             static_cast<double>(state.iterations()),
                         benchmark::Counter::kIsRate);
}

// Weights of a quantised type are random blocks: they are packed once.
PackedMatrix RandomMatrix(WeightType type, WeightArena& arena) {
  const int64_t row_bytes = WeightTypeBytes(type, kK);
  std::mt19937 random(1);
  std::vector<uint8_t> blocks(kColumns * row_bytes);
  for (uint8_t& byte : blocks) byte = static_cast<uint8_t>(random());
  const int64_t block_bytes = WeightTypeFormat(type).block_bytes;
  for (size_t i = 0; i < blocks.size(); i += block_bytes) {
    SetUniformScales(type, 0.05f, blocks.data() + i);
  }
  ThreadPool pool(1);
  auto matrix = PackedMatrix::PackStored(
      kColumns, kK, pool, arena,
      [&](int64_t column) -> PackedMatrix::StoredColumn {
        return {type, blocks.data() + column * row_bytes};
      });
  FORETOKEN_CHECK(matrix.ok());
  return *std::move(matrix);
}

PackedMatrix FloatMatrix(MatrixType type, WeightArena& arena) {
  ThreadPool pool(1);
  auto matrix = PackedMatrix::Pack(
      type, kColumns, kK, pool, arena,
      [](int64_t, float* out) { std::fill_n(out, kK, 0.01f); });
  FORETOKEN_CHECK(matrix.ok());
  return *std::move(matrix);
}

void BM_Packed(benchmark::State& state, CpuIsa isa, WeightType type) {
  const auto ops = SelectCpuOps(isa);
  if (!ops.ok()) return state.SkipWithError("not on this machine");
  const int64_t rows = state.range(0);
  WeightArena arena;
  std::vector<PackedMatrix> matrices;
  for (int64_t i = 0; i < kMatrices; ++i) {
    if (type == WeightType::kFloat32) {
      matrices.push_back(FloatMatrix(MatrixType::kFloat32, arena));
    } else if (type == WeightType::kBFloat16) {
      matrices.push_back(FloatMatrix(MatrixType::kBFloat16, arena));
    } else {
      matrices.push_back(RandomMatrix(type, arena));
    }
  }
  const ActivationType input = matrices[0].input();
  const int64_t stride = ActivationBytes(input, kK) + 64;
  // Small numbers in every type: 0x3c3c is a bf16, 0x3c3c3c3c a float.
  const HugeBuffer x = Filled(rows * stride, 0x3c);
  constexpr int64_t kRowTile = 256;
  std::vector<float> tile(kRowTile * kGemmColumns);
  size_t next = 0;
  for (auto _ : state) {
    const PackedMatrix& matrix = matrices[next];
    for (int64_t b = 0; b < matrix.blocks(); ++b) {
      for (int64_t first = 0; first < rows; first += kRowTile) {
        GemmArgs args;
        args.x = x.data() + first * stride;
        args.x_stride = stride;
        args.weights = matrix.block(b);
        args.weight_bytes = matrix.block_bytes(b);
        args.rows = static_cast<int32_t>(std::min(kRowTile, rows - first));
        args.tile = tile.data();
        (*ops)->gemm[static_cast<int>(matrix.type(b))](args);
      }
    }
    next = (next + 1) % matrices.size();
    benchmark::DoNotOptimize(tile.data());
  }
  Count(state, rows);
  state.counters["GB/s"] =
      benchmark::Counter(1e-9 * static_cast<double>(matrices[0].bytes()) *
                             static_cast<double>(state.iterations()),
                         benchmark::Counter::kIsRate);
}

#if FORETOKEN_HAVE_DNNL
void BM_OneDnn(benchmark::State& state, bool bf16) {
  using dnnl::memory;
  const int64_t rows = state.range(0);
  const auto type = bf16 ? memory::data_type::bf16 : memory::data_type::f32;
  const dnnl::engine engine(dnnl::engine::kind::cpu, 0);
  dnnl::stream stream(engine);
  const memory::desc x_desc({rows, kK}, type, memory::format_tag::ab);
  const memory::desc any({kK, kColumns}, type, memory::format_tag::any);
  const memory::desc out({rows, kColumns}, memory::data_type::f32,
                         memory::format_tag::ab);
  const dnnl::matmul::primitive_desc description(
      dnnl::matmul::desc(x_desc, any, out), engine);
  const dnnl::matmul matmul(description);
  std::vector<memory> weights;
  for (int64_t i = 0; i < kMatrices; ++i) {
    weights.emplace_back(description.weights_desc(), engine);
    std::fill_n(static_cast<uint8_t*>(weights.back().get_data_handle()),
                description.weights_desc().get_size(), 0x3c);
  }
  memory x(x_desc, engine);
  std::fill_n(static_cast<uint8_t*>(x.get_data_handle()), x_desc.get_size(),
              0x3c);
  memory result(out, engine);
  size_t matrix = 0;
  for (auto _ : state) {
    matmul.execute(stream, {{DNNL_ARG_SRC, x},
                            {DNNL_ARG_WEIGHTS, weights[matrix]},
                            {DNNL_ARG_DST, result}});
    stream.wait();
    matrix = (matrix + 1) % weights.size();
  }
  Count(state, rows);
}
BENCHMARK_CAPTURE(BM_OneDnn, bf16, true)->Arg(1)->Arg(8)->Arg(64)->Arg(512);
BENCHMARK_CAPTURE(BM_OneDnn, fp32, false)->Arg(1)->Arg(8)->Arg(64)->Arg(512);
#endif

void Rows(benchmark::internal::Benchmark* bench) {
  for (const int64_t rows : {1, 2, 3, 4, 5, 6, 8, 16, 64}) bench->Arg(rows);
}
BENCHMARK_CAPTURE(BM_Packed, avx512bf16_bf16, CpuIsa::kAvx512Bf16,
                  WeightType::kBFloat16)
    ->Arg(1)
    ->Arg(8)
    ->Arg(16)
    ->Arg(64)
    ->Arg(512);
BENCHMARK_CAPTURE(BM_Packed, avx512_bf16, CpuIsa::kAvx512,
                  WeightType::kBFloat16)
    ->Arg(1)
    ->Arg(8)
    ->Arg(64)
    ->Arg(512);
BENCHMARK_CAPTURE(BM_Packed, avx2_bf16, CpuIsa::kAvx2, WeightType::kBFloat16)
    ->Apply(Rows)
    ->Arg(512);
BENCHMARK_CAPTURE(BM_Packed, scalar_bf16, CpuIsa::kScalar,
                  WeightType::kBFloat16)
    ->Arg(1);
BENCHMARK_CAPTURE(BM_Packed, avx512_fp32, CpuIsa::kAvx512, WeightType::kFloat32)
    ->Arg(1)
    ->Arg(8)
    ->Arg(64)
    ->Arg(512);
BENCHMARK_CAPTURE(BM_Packed, avx2_fp32, CpuIsa::kAvx2, WeightType::kFloat32)
    ->Arg(1)
    ->Arg(8)
    ->Arg(64)
    ->Arg(512);

BENCHMARK_CAPTURE(BM_Packed, vnni_q8_0, CpuIsa::kAvx512Vnni, WeightType::kQ8_0)
    ->Apply(Rows);
BENCHMARK_CAPTURE(BM_Packed, vnni_q4_0, CpuIsa::kAvx512Vnni, WeightType::kQ4_0)
    ->Apply(Rows);
BENCHMARK_CAPTURE(BM_Packed, vnni_q4_1, CpuIsa::kAvx512Vnni, WeightType::kQ4_1)
    ->Apply(Rows);
BENCHMARK_CAPTURE(BM_Packed, vnni_q5_0, CpuIsa::kAvx512Vnni, WeightType::kQ5_0)
    ->Apply(Rows);
BENCHMARK_CAPTURE(BM_Packed, vnni_q5_1, CpuIsa::kAvx512Vnni, WeightType::kQ5_1)
    ->Apply(Rows);
BENCHMARK_CAPTURE(BM_Packed, vnni_q4_k, CpuIsa::kAvx512Vnni, WeightType::kQ4_K)
    ->Apply(Rows);
BENCHMARK_CAPTURE(BM_Packed, vnni_q5_k, CpuIsa::kAvx512Vnni, WeightType::kQ5_K)
    ->Apply(Rows);
BENCHMARK_CAPTURE(BM_Packed, vnni_q6_k, CpuIsa::kAvx512Vnni, WeightType::kQ6_K)
    ->Apply(Rows);
BENCHMARK_CAPTURE(BM_Packed, avxvnni_q8_0, CpuIsa::kAvxVnni, WeightType::kQ8_0)
    ->Apply(Rows);
BENCHMARK_CAPTURE(BM_Packed, avxvnni_q4_0, CpuIsa::kAvxVnni, WeightType::kQ4_0)
    ->Apply(Rows);
BENCHMARK_CAPTURE(BM_Packed, avxvnni_q4_k, CpuIsa::kAvxVnni, WeightType::kQ4_K)
    ->Apply(Rows);
BENCHMARK_CAPTURE(BM_Packed, avxvnni_q6_k, CpuIsa::kAvxVnni, WeightType::kQ6_K)
    ->Apply(Rows);
BENCHMARK_CAPTURE(BM_Packed, avx2_q8_0, CpuIsa::kAvx2, WeightType::kQ8_0)
    ->Apply(Rows);
BENCHMARK_CAPTURE(BM_Packed, avx2_q4_0, CpuIsa::kAvx2, WeightType::kQ4_0)
    ->Apply(Rows);
BENCHMARK_CAPTURE(BM_Packed, avx2_q4_k, CpuIsa::kAvx2, WeightType::kQ4_K)
    ->Apply(Rows);
BENCHMARK_CAPTURE(BM_Packed, avx2_q6_k, CpuIsa::kAvx2, WeightType::kQ6_K)
    ->Apply(Rows);

}  // namespace
}  // namespace foretoken

BENCHMARK_MAIN();
