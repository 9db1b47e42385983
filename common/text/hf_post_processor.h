// The post_processor of a tokenizer.json: the tokens around a prompt.
#ifndef FORETOKEN_COMMON_TEXT_HF_POST_PROCESSOR_H_
#define FORETOKEN_COMMON_TEXT_HF_POST_PROCESSOR_H_

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "common/base/json.h"
#include "common/base/types.h"

namespace foretoken {

// `field`: the value of "post_processor". Fills in the tokens before and after
// the prompt. InvalidArgument names the part of it that is not supported.
// Supported: nothing, ByteLevel (which adds no tokens), TemplateProcessing, and
// a Sequence of those with one template at most.
absl::Status ParsePostProcessor(const Json& field, int32_t vocab_size,
                                std::vector<TokenId>& prefix,
                                std::vector<TokenId>& suffix);

}  // namespace foretoken

#endif  // FORETOKEN_COMMON_TEXT_HF_POST_PROCESSOR_H_
