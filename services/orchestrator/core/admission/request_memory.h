// The memory of requests: what each costs, and how a budget is divided.
//
// Three parts that cannot starve each other: what gRPC receives, texts while
// they are encoded, which takes many times their size but ends soon, and
// everything else. The constants are upper bounds. RequestMemoryTest measures
// those of encoding and decoding a text; the others are sums of the copies that
// the code makes, and the state of a request is an estimate.
#ifndef FORETOKEN_SERVICES_ORCHESTRATOR_CORE_ADMISSION_REQUEST_MEMORY_H_
#define FORETOKEN_SERVICES_ORCHESTRATOR_CORE_ADMISSION_REQUEST_MEMORY_H_

#include <cstdint>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "common/base/types.h"
#include "common/generation/generation.h"
#include "common/text/tokenizer.h"

namespace foretoken::orchestrator {

struct MemoryParts {
  int64_t receiving = 0;
  int64_t encoding = 0;
  int64_t requests = 0;
};
MemoryParts DivideMemory(int64_t budget);

// Largest message that can be a valid request: a number may take five bytes,
// and other fields than the prompt and the constraint are small.
int64_t MaxWireBytes(int64_t max_prompt_bytes, int64_t max_constraint_bytes);

// A request from its arrival to its end, with the answers that wait for a slow
// reader; without the engine's and the drafters' state, which have bounds of
// their own.
int64_t GenerateBytes(const GenerationRequest& request);
// Answers that may wait for a slow reader, serialized.
inline constexpr int64_t kUnsentBytes = 64 << 10;

// A constraint while it is compiled, an upper bound; the grammar is counted by
// the cache that keeps it.
inline constexpr int64_t kCompileBytes = int64_t{64} << 20;

// A text and its ids, with the answer that holds them.
int64_t TokenizeBytes(int64_t text_bytes);
// Besides those, while the text is encoded. Holds for tokenizers whose normal
// form of a text is not longer than the text, but for its spaces.
int64_t EncodingBytes(int64_t text_bytes);
// The same, of a text that may be malformed.
int64_t EncodingBytesOf(absl::string_view text);
// Ids and their text, with the answer that holds it.
int64_t DetokenizeBytes(absl::Span<const TokenId> token_ids,
                        const Tokenizer* tokenizer);

// Bytes of the largest valid request, from its message on.
// Detokenize, whose texts depend on the vocabulary, is left out.
int64_t LargestRequestBytes(int64_t max_prompt_bytes,
                            int64_t max_constraint_bytes, bool with_tokenizer);

}  // namespace foretoken::orchestrator

#endif  // FORETOKEN_SERVICES_ORCHESTRATOR_CORE_ADMISSION_REQUEST_MEMORY_H_
