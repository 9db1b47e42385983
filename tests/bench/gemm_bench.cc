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
#include <vector>

#include "benchmark/benchmark.h"
#include "common/base/check.h"
#include "common/base/huge_buffer.h"
#include "common/infer/cpu/cpu_isa.h"
#include "common/infer/cpu/ops.h"

#if FORETOKEN_HAVE_DNNL
#include "dnnl.hpp"
#endif

namespace foretoken {
namespace {

constexpr int64_t kK = 2048;
constexpr int64_t kColumns = 2048;
constexpr int64_t kMatrices = 8;  // 64 MiB in bf16

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

void BM_Packed(benchmark::State& state, CpuIsa isa, bool bf16) {
  const auto ops = SelectCpuOps(isa);
  if (!ops.ok()) return state.SkipWithError("not on this machine");
  const int64_t rows = state.range(0);
  const int64_t element = bf16 ? 2 : 4;
  const int64_t block_bytes = kK * kGemmColumns * element;
  const int64_t blocks = kColumns / kGemmColumns;
  // 0x3c3c is a small bf16, 0x3c3c3c3c a small float.
  const HugeBuffer weights = Filled(block_bytes * blocks * kMatrices, 0x3c);
  const int64_t stride = kK * element + 64;
  const HugeBuffer x = Filled(rows * stride, 0x3c);
  constexpr int64_t kRowTile = 256;
  std::vector<float> tile(kRowTile * kGemmColumns);
  int64_t matrix = 0;
  for (auto _ : state) {
    for (int64_t b = 0; b < blocks; ++b) {
      for (int64_t first = 0; first < rows; first += kRowTile) {
        GemmArgs args;
        args.x = x.data() + first * stride;
        args.x_stride = stride;
        args.weights = weights.data() + (matrix * blocks + b) * block_bytes;
        args.weight_bytes = block_bytes;
        args.rows = static_cast<int32_t>(std::min(kRowTile, rows - first));
        args.tile = tile.data();
        (bf16 ? (*ops)->gemm_bf16 : (*ops)->gemm_fp32)(args);
      }
    }
    matrix = (matrix + 1) % kMatrices;
    benchmark::DoNotOptimize(tile.data());
  }
  Count(state, rows);
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

BENCHMARK_CAPTURE(BM_Packed, avx512bf16_bf16, CpuIsa::kAvx512Bf16, true)
    ->Arg(1)
    ->Arg(8)
    ->Arg(16)
    ->Arg(64)
    ->Arg(512);
BENCHMARK_CAPTURE(BM_Packed, avx512_bf16, CpuIsa::kAvx512, true)
    ->Arg(1)
    ->Arg(8)
    ->Arg(64)
    ->Arg(512);
BENCHMARK_CAPTURE(BM_Packed, avx2_bf16, CpuIsa::kAvx2, true)
    ->Arg(1)
    ->Arg(8)
    ->Arg(64)
    ->Arg(512);
BENCHMARK_CAPTURE(BM_Packed, scalar_bf16, CpuIsa::kScalar, true)->Arg(1);
BENCHMARK_CAPTURE(BM_Packed, avx512_fp32, CpuIsa::kAvx512, false)
    ->Arg(1)
    ->Arg(8)
    ->Arg(64)
    ->Arg(512);
BENCHMARK_CAPTURE(BM_Packed, avx2_fp32, CpuIsa::kAvx2, false)
    ->Arg(1)
    ->Arg(8)
    ->Arg(64)
    ->Arg(512);

}  // namespace
}  // namespace foretoken

BENCHMARK_MAIN();
