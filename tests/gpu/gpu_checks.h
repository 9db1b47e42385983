// The checks of gpu_tests. Each notes its failures in the context.
#ifndef FORETOKEN_TESTS_GPU_GPU_CHECKS_H_
#define FORETOKEN_TESTS_GPU_GPU_CHECKS_H_

#include "tests/gpu/gpu_harness.h"

namespace foretoken::gpu_tests {

// Against the fp32 CPU engine: at most 3e-2 of the largest logit, for every
// option of a model, in bf16 and fp16.
void CheckLogits(Context& context);
// Bitwise: 1 to 320 rows, in every tile of rows, against one at a time.
void CheckRowCounts(Context& context);
void CheckTreesAndMates(Context& context);
void CheckChunks(Context& context);
// Bitwise: CUDA graphs and overlapping kernels on and off.
void CheckGraphs(Context& context);
// Bitwise: rows before a token whose values are near fp16's largest, which
// shares their tiles, in bf16 and fp16.
void CheckHugeValues(Context& context);
// KV moved ahead by the walk or by Commit, whole paths and parts: the same.
void CheckCommits(Context& context);
// Against the CPU's sampler on the same logits.
void CheckSampler(Context& context);
// 20,000 tokens, greedy and seeded, many sessions in one pass.
void CheckSpeculative(Context& context);
void CheckMemory(Context& context);

}  // namespace foretoken::gpu_tests

#endif  // FORETOKEN_TESTS_GPU_GPU_CHECKS_H_
