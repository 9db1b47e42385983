// Parts of a numerics fingerprint that all backends share.
//
// Pure functions; thread-safe.
#ifndef FORETOKEN_COMMON_INFER_NUMERICS_H_
#define FORETOKEN_COMMON_INFER_NUMERICS_H_

#include <string>

#include "absl/strings/string_view.h"
#include "common/infer/model_config.h"

namespace foretoken {

// Text with every field of the config that affects the arithmetic, floats bit
// for bit.
std::string NumericConfig(const ModelConfig& config);

// The first 16 hex digits of the SHA-256.
std::string ShortDigest(absl::string_view text);

}  // namespace foretoken

#endif  // FORETOKEN_COMMON_INFER_NUMERICS_H_
