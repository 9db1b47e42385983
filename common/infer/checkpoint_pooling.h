// The pooling of an embedding model in a Hugging Face directory, as
// sentence-transformers writes it.
#ifndef FORETOKEN_COMMON_INFER_CHECKPOINT_POOLING_H_
#define FORETOKEN_COMMON_INFER_CHECKPOINT_POOLING_H_

#include <string>

#include "absl/status/statusor.h"
#include "common/base/json_fwd.h"
#include "common/base/pooling.h"

namespace foretoken {

// Below the model's directory; other models have none.
inline constexpr char kPoolingConfig[] = "1_Pooling/config.json";

// kMean or kLast; kNone for the first token's state, for others that are not
// served, and for several at once. InvalidArgument names `file`, the field and
// its value. `json` must be an object.
absl::StatusOr<Pooling> ParsePooling(const Json& json, const std::string& file);

}  // namespace foretoken

#endif  // FORETOKEN_COMMON_INFER_CHECKPOINT_POOLING_H_
