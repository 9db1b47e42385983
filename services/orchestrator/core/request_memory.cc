#include "services/orchestrator/core/request_memory.h"

namespace foretoken::orchestrator {
namespace {

// State of a request beside its prompt: thread, decode loop, drafting.
constexpr int64_t kStateBytes = 192 << 10;
// A text and, of every byte, an id.
constexpr int64_t kBytesPerTextByte = 1 + sizeof(TokenId);
// Copies of an id: in the request, for the verifier, in the result.
constexpr int64_t kIdCopies = 4;
// Ids of an answer: in a list that doubles, and serialized.
constexpr int64_t kTokenizeBytesPerTextByte = 1 + 4 * sizeof(TokenId);
// Byte pair encoding of a text without any boundary: symbols, links and a heap
// of candidates for every byte.
constexpr int64_t kEncodingBytesPerTextByte = 64;
// A malformed byte becomes U+FFFD, of three.
constexpr int64_t kReplacementBytes = 3;

}  // namespace

MemoryParts DivideMemory(int64_t budget) {
  return {.receiving = budget / 4,
          .encoding = budget / 8 * 3,
          .requests = budget / 8 * 3};
}

int64_t MaxWireBytes(int64_t max_prompt_bytes) {
  return max_prompt_bytes + max_prompt_bytes / 4 + (1 << 20);
}

int64_t GenerateBytes(const GenerationRequest& request) {
  const auto ids = static_cast<int64_t>(request.prompt.size());
  const auto text =
      static_cast<int64_t>(request.text ? request.text->size() : 0);
  return kStateBytes + kUnsentBytes + kBytesPerTextByte * text +
         kIdCopies * static_cast<int64_t>(sizeof(TokenId)) * ids;
}

int64_t TokenizeBytes(int64_t text_bytes) {
  return kTokenizeBytesPerTextByte * text_bytes;
}

int64_t EncodingBytes(int64_t text_bytes) {
  return kEncodingBytesPerTextByte * text_bytes;
}

int64_t DetokenizeBytes(absl::Span<const TokenId> token_ids,
                        const Tokenizer* tokenizer) {
  int64_t text = 0;
  if (tokenizer != nullptr) {
    for (const TokenId id : token_ids) {
      text += static_cast<int64_t>(tokenizer->TokenBytes(id).size());
    }
  }
  // The list may have doubled; the text has, and is serialized once more.
  return static_cast<int64_t>(2 * token_ids.size() * sizeof(TokenId)) +
         kReplacementBytes * 2 * text;
}

}  // namespace foretoken::orchestrator
