// The rotary fields of config.json, in both layouts: `rope_theta` and
// `rope_scaling`, or `rope_parameters`, which holds both.
#ifndef FORETOKEN_COMMON_INFER_MODEL_CONFIG_ROPE_H_
#define FORETOKEN_COMMON_INFER_MODEL_CONFIG_ROPE_H_

#include <string>

#include "absl/status/status.h"
#include "common/infer/json_fields.h"
#include "common/infer/model_config.h"

namespace foretoken {

// Sets rope_theta and rope_scaling of `config`. Two fields that contradict
// each other are InvalidArgument, kinds of scaling other than linear and
// llama3 Unimplemented. `file` is for messages.
absl::Status ReadRope(const JsonFields& fields, const std::string& file,
                      ModelConfig& config);

}  // namespace foretoken

#endif  // FORETOKEN_COMMON_INFER_MODEL_CONFIG_ROPE_H_
