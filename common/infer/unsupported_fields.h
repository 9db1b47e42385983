// Fields of config.json that make a model compute something that the engine
// does not: compressed weights, mixtures of experts, other attention, rotary
// embeddings, residual scales, or code that ships with the checkpoint.
#ifndef FORETOKEN_COMMON_INFER_UNSUPPORTED_FIELDS_H_
#define FORETOKEN_COMMON_INFER_UNSUPPORTED_FIELDS_H_

#include "absl/status/status.h"
#include "common/infer/json_fields.h"

namespace foretoken {

// Unimplemented for the first such field without its one harmless value.
// Absent, null and unknown fields pass.
absl::Status CheckUnsupportedFields(const JsonFields& fields);

}  // namespace foretoken

#endif  // FORETOKEN_COMMON_INFER_UNSUPPORTED_FIELDS_H_
