#include "services/orchestrator/core/admission/request_memory.h"

#include <algorithm>
#include <string>

#include "common/sampling/sampling_params.h"
#include "common/text/encoding_memory.h"
#include "common/text/stop_matcher.h"
#include "common/text/utf8.h"

namespace foretoken::orchestrator {
namespace {

// State of a request besides its prompt: thread, decode loop, drafting.
constexpr int64_t kStateBytes = 192 << 10;
// A text and, of every byte, an id.
constexpr int64_t kBytesPerTextByte = 1 + sizeof(TokenId);
// Copies of an id: in the request, for the verifier, in the result.
constexpr int64_t kIdCopies = 4;
// Ids of the output, in the decode loop and replayed to a verifier; more than
// this exceed every context.
constexpr int64_t kOutputIdCopies = 2;
constexpr int64_t kMaxOutputIds = 1 << 20;
// Copies of the lists of sampling parameters and stop ids: in the request, the
// session, and for every drafter.
constexpr int64_t kListCopies = 12;
// A stop string: in the request, in the matcher, and there a border for every
// prefix; and the objects that hold them.
constexpr int64_t kBytesPerStopByte = 2 + sizeof(size_t);
constexpr int64_t kBytesPerStop = 256;
// Copies of a constraint: in the request, in the session that may be replayed,
// in the one that is opened, and there as a message and as its bytes.
constexpr int64_t kConstraintCopies = 5;
// The automaton that drafts are checked with, and the expressions that it
// begins with.
constexpr int64_t kAutomatonBytes = 2 << 20;
// Unsent answers in memory, over their size serialized: ids and drafters take a
// byte or two there, a tree's node at least 7 for 16, and of log-probabilities
// each is a message of its own.
constexpr int64_t kUnsentFactor = 3;
constexpr int64_t kLogprobsFactor = 12;
// Ids of an answer: in a list that doubles, and serialized.
constexpr int64_t kTokenizeBytesPerTextByte = 1 + 4 * sizeof(TokenId);
// A malformed byte becomes U+FFFD, of three.
constexpr int64_t kReplacementBytes = 3;
// Ids of a message that are packed, a byte each: parsed, in a list that grows
// (parsed_bytes.h).
constexpr int64_t kParsedBytesPerWireByte = 12;

}  // namespace

MemoryParts DivideMemory(int64_t budget) {
  // The remainder of the division goes to the first part.
  const int64_t each = budget / 8 * 3;
  return {.receiving = budget - 2 * each, .encoding = each, .requests = each};
}

int64_t MaxWireBytes(int64_t max_prompt_bytes, int64_t max_constraint_bytes) {
  return max_prompt_bytes + max_prompt_bytes / 4 + max_constraint_bytes +
         (1 << 20);
}

int64_t GenerateBytes(const GenerationRequest& request) {
  const auto bytes = [](size_t count, size_t size) {
    return static_cast<int64_t>(count * size);
  };
  int64_t total = kStateBytes;
  total += bytes(request.text ? request.text->size() : 0, kBytesPerTextByte);
  total += kIdCopies * bytes(request.prompt.size(), sizeof(TokenId));
  // Clamped before it is multiplied: max_tokens may be any number.
  total += kOutputIdCopies * static_cast<int64_t>(sizeof(TokenId)) *
           std::clamp<int64_t>(request.max_tokens, 0, kMaxOutputIds);
  total +=
      kListCopies * (bytes(request.stop_token_ids.size(), sizeof(TokenId)) +
                     bytes(request.sampling.logit_bias.size(),
                           sizeof(request.sampling.logit_bias.front())));
  for (const std::string& stop : request.stop_strings) {
    total += kBytesPerStop + bytes(stop.size(), kBytesPerStopByte);
  }
  total += kConstraintCopies *
           (static_cast<int64_t>(request.constraint.bytes()) +
            bytes(request.constraint.choices.size(), sizeof(std::string)));
  if (!request.constraint.empty()) total += kAutomatonBytes;
  total += kUnsentBytes *
           (request.sampling.logprobs >= 0 ? kLogprobsFactor : kUnsentFactor);
  return total;
}

int64_t TokenizeBytes(int64_t text_bytes) {
  return kTokenizeBytesPerTextByte * text_bytes;
}

int64_t EncodingBytes(int64_t text_bytes) {
  return kEncodingBytesPerTextByte * text_bytes;
}

int64_t EncodingBytesOf(absl::string_view text) {
  auto bytes = static_cast<int64_t>(text.size());
  while (true) {
    text.remove_prefix(ValidUtf8Prefix(text));
    if (text.empty()) return EncodingBytes(bytes);
    text.remove_prefix(1);
    bytes += kReplacementBytes - 1;
  }
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

int64_t LargestRequestBytes(int64_t max_prompt_bytes,
                            int64_t max_constraint_bytes, bool with_tokenizer) {
  // Every field but the prompt at its limit.
  GenerationRequest request;
  request.max_tokens = kMaxOutputIds;
  request.sampling.logprobs = kMaxLogprobs;
  request.sampling.logit_bias.resize(kMaxTokenListSize);
  request.stop_token_ids.resize(kMaxTokenListSize);
  request.stop_strings.assign(StopMatcher::kMaxStrings,
                              std::string(StopMatcher::kMaxStringBytes, 's'));
  const int64_t handled =
      GenerateBytes(request) + kConstraintCopies * max_constraint_bytes +
      kAutomatonBytes + kBytesPerTextByte * max_prompt_bytes;
  const int64_t parsed =
      MaxWireBytes(max_prompt_bytes, max_constraint_bytes) +
      kParsedBytesPerWireByte * (max_prompt_bytes + max_prompt_bytes / 4);
  return std::max(
      {handled, parsed, with_tokenizer ? TokenizeBytes(max_prompt_bytes) : 0});
}

}  // namespace foretoken::orchestrator
