// The post_processor of a tokenizer.json: special tokens around a prompt.
#ifndef FORETOKEN_COMMON_TEXT_HF_POST_PROCESSOR_H_
#define FORETOKEN_COMMON_TEXT_HF_POST_PROCESSOR_H_

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "common/base/json_fwd.h"
#include "common/base/types.h"

namespace foretoken {

// `field`: the value of "post_processor". Sets the tokens before and after the
// prompt. InvalidArgument names the unsupported part. Supported: none,
// ByteLevel (adds no tokens), TemplateProcessing, and a Sequence of these with
// at most one template.
absl::Status ParsePostProcessor(const Json& field, int32_t vocab_size,
                                std::vector<TokenId>& prefix,
                                std::vector<TokenId>& suffix);

}  // namespace foretoken

#endif  // FORETOKEN_COMMON_TEXT_HF_POST_PROCESSOR_H_
