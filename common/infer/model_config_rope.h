// The rotary fields of config.json in both layouts: `rope_theta` and
// `rope_scaling`, or `rope_parameters`, which contains both.
#ifndef FORETOKEN_COMMON_INFER_MODEL_CONFIG_ROPE_H_
#define FORETOKEN_COMMON_INFER_MODEL_CONFIG_ROPE_H_

#include <string>

#include "absl/status/status.h"
#include "common/infer/json_fields.h"
#include "common/infer/model_config.h"

namespace foretoken {

// Sets rope_theta and rope_scaling of `config`. Contradictory fields are
// InvalidArgument, kinds of scaling other than linear and llama3 Unimplemented.
// `file` is used in messages.
absl::Status ReadRope(const JsonFields& fields, const std::string& file,
                      ModelConfig& config);

}  // namespace foretoken

#endif  // FORETOKEN_COMMON_INFER_MODEL_CONFIG_ROPE_H_
