// Conversion of a model's matrices to another type while they are loaded.
//
// For draft models: the target decides every token, so that a draft model may
// compute in whatever is fastest. The encoder is that of `foretoken quantize`.
//
// Pure functions; thread-safe.
#ifndef FORETOKEN_COMMON_INFER_WEIGHT_CONVERSION_H_
#define FORETOKEN_COMMON_INFER_WEIGHT_CONVERSION_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "common/base/huge_buffer.h"
#include "common/base/thread_pool.h"
#include "common/base/types.h"
#include "common/infer/model_weights.h"
#include "common/infer/weight_types.h"

namespace foretoken {

// kAuto: Q4_0, unless nothing is gained by it (Resolve). No supported type is
// smaller; Q4_K has as many bytes in a file, but its scales are unpacked to
// eight bits and take more instructions.
enum class WeightConversion { kKeep, kAuto, kQ8_0, kQ4_0 };

inline constexpr const char* kWeightConversionNames[] = {"keep", "auto", "q8_0",
                                                         "q4_0"};

// The names, for flags.
std::vector<std::string> WeightConversionChoices();
// InvalidArgument lists the names.
absl::StatusOr<WeightConversion> ParseWeightConversion(absl::string_view text);

// Matrices of at most so many bytes in all stay in the processor's caches, more
// or less: a smaller type would not make a pass faster.
inline constexpr int64_t kCachedWeightBytes = int64_t{64} << 20;

// Resolves kAuto for a model whose matrices have `bytes` in all and stay
// quantised while they are multiplied (`quantised`): kQ4_0 or kKeep. The others
// mean themselves.
WeightConversion Resolve(WeightConversion conversion, int64_t bytes,
                         bool quantised);

// The type that a matrix is converted to, or its own. Rows that are not
// whole blocks stay as they are.
WeightType ConvertedType(WeightConversion conversion,
                         const WeightTensor& matrix);
// That of the embedding, of which a pass reads a row for each of its own: at
// most eight bits, since fewer would only save memory.
WeightType ConvertedEmbeddingType(WeightConversion conversion,
                                  const WeightTensor& embedding);

// Encodes rows [first, first + count) of `cols` elements; `read(row, values)`
// fills one and may be called from any thread of `pool`. InvalidArgument names
// the tensor where an element is not finite or too large for the type.
absl::Status EncodeRows(
    absl::string_view name, WeightType type, int64_t first, int64_t count,
    int64_t cols, ThreadPool& pool,
    absl::FunctionRef<void(int64_t, absl::Span<float>)> read, uint8_t* out);

// Converts the listed rows of `matrix`, or all if none are listed, into
// `memory`, which the result borrows. `name` is used in messages.
absl::StatusOr<WeightTensor> ConvertRows(absl::string_view name,
                                         const WeightTensor& matrix,
                                         WeightType type,
                                         absl::Span<const TokenId> rows,
                                         ThreadPool& pool, HugeBuffer& memory);

}  // namespace foretoken

#endif  // FORETOKEN_COMMON_INFER_WEIGHT_CONVERSION_H_
