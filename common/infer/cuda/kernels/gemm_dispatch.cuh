// From an epilogue, a type and a tiling's index to the kernel that was compiled
// for them.
#ifndef FORETOKEN_COMMON_INFER_CUDA_KERNELS_GEMM_DISPATCH_CUH_
#define FORETOKEN_COMMON_INFER_CUDA_KERNELS_GEMM_DISPATCH_CUH_

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <cstddef>
#include <utility>

#include "common/infer/cuda/kernels/gemm.h"

namespace foretoken::device {

template <typename Tiles, typename T, GemmEpilogue kEpilogue, typename Use,
          size_t... kIndices>
cudaError_t WithGemmTile(int index, const Use& use,
                         std::index_sequence<kIndices...>) {
  cudaError_t error = cudaErrorInvalidValue;
  const auto with = [&]<size_t kIndex>() {
    if constexpr (Tiles::template Has<kIndex>(kEpilogue)) {
      if (index != static_cast<int>(kIndex)) return;
      error = use.template
              operator()<T, typename Tiles::template Tile<kIndex>, kEpilogue>();
    }
  };
  (with.template operator()<kIndices>(), ...);
  return error;
}

template <typename Tiles, GemmEpilogue kEpilogue, typename Use>
cudaError_t WithGemmType(DeviceType type, int index, const Use& use) {
  constexpr auto kAll = std::make_index_sequence<Tiles::kCount>();
  return type == DeviceType::kBFloat16
             ? WithGemmTile<Tiles, __nv_bfloat16, kEpilogue>(index, use, kAll)
             : WithGemmTile<Tiles, __half, kEpilogue>(index, use, kAll);
}

// Calls `use.template operator()<T, Tile, kEpilogue>()`. Tiles has kCount,
// Tile<index>, and Has<index>(epilogue): whether there is such a kernel; where
// there is none, cudaErrorInvalidValue.
template <typename Tiles, typename Use>
cudaError_t WithGemmKernel(GemmEpilogue epilogue, DeviceType type, int index,
                           const Use& use) {
  switch (epilogue) {
    case GemmEpilogue::kPartial:
      return WithGemmType<Tiles, GemmEpilogue::kPartial>(type, index, use);
    case GemmEpilogue::kSwiGlu:
      return WithGemmType<Tiles, GemmEpilogue::kSwiGlu>(type, index, use);
    case GemmEpilogue::kLogits:
      return WithGemmType<Tiles, GemmEpilogue::kLogits>(type, index, use);
  }
  return cudaErrorInvalidValue;
}

}  // namespace foretoken::device

#endif  // FORETOKEN_COMMON_INFER_CUDA_KERNELS_GEMM_DISPATCH_CUH_
