// Fields of config.json that would make a model compute something that the
// engine does not: compressed weights, mixtures of experts, other attention,
// rotary embeddings, residual scales, or code of the checkpoint's own.
#ifndef FORETOKEN_COMMON_INFER_UNSUPPORTED_FIELDS_H_
#define FORETOKEN_COMMON_INFER_UNSUPPORTED_FIELDS_H_

#include "absl/status/status.h"
#include "common/infer/json_fields.h"

namespace foretoken {

// Unimplemented for the first such field that is not at the one value that
// changes nothing. Absent and null fields pass, and so do unknown ones.
absl::Status CheckUnsupportedFields(const JsonFields& fields);

}  // namespace foretoken

#endif  // FORETOKEN_COMMON_INFER_UNSUPPORTED_FIELDS_H_
