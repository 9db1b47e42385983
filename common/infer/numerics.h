// The parts of a numerics fingerprint that every backend shares.
//
// Pure functions; thread-safe.
#ifndef FORETOKEN_COMMON_INFER_NUMERICS_H_
#define FORETOKEN_COMMON_INFER_NUMERICS_H_

#include <string>

#include "absl/strings/string_view.h"
#include "common/infer/model_config.h"

namespace foretoken {

// Every field of the config that arithmetic sees: floats by their bits.
std::string NumericConfig(const ModelConfig& config);

// 16 hex digits of the SHA-256.
std::string ShortDigest(absl::string_view text);

}  // namespace foretoken

#endif  // FORETOKEN_COMMON_INFER_NUMERICS_H_
