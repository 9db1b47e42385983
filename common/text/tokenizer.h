// Tokenizer: text to token ids and back, equal to the model's own.
//
// Formats: Hugging Face tokenizer.json (gzip or plain; BPE, byte-level or with
// byte fallback) and SentencePiece tokenizer.model (BPE).
// Thread-safe after Load: every method is const.
#ifndef FORETOKEN_COMMON_TEXT_TOKENIZER_H_
#define FORETOKEN_COMMON_TEXT_TOKENIZER_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "common/base/digest.h"
#include "common/base/types.h"

namespace foretoken {

class Tokenizer {
 public:
  virtual ~Tokenizer() = default;

  // `path`: a model directory (tokenizer.json before tokenizer.model), or one
  // of the files, gzip or plain. Unsupported parts are refused by file, field
  // and value.
  static absl::StatusOr<std::unique_ptr<Tokenizer>> Load(
      const std::string& path);

  // Ids of `text`, without BOS or any template token. Added and special tokens
  // that stand in the text are recognised where the format does so
  // (tokenizer.json), and are plain text where it does not (tokenizer.model).
  // Invalid UTF-8 is encoded byte by byte where the vocabulary can, never
  // refused. 5 MB/s or more a thread.
  virtual std::vector<TokenId> Encode(absl::string_view text) const = 0;

  // As Encode, with the BOS token (and whatever else the model's files put
  // around a prompt) in front, if they ask for one.
  virtual std::vector<TokenId> EncodePrompt(absl::string_view text) const = 0;

  // The text of `ids` as the original library gives it: special tokens are
  // left out. Ids outside the vocabulary are InvalidArgument.
  virtual absl::StatusOr<std::string> Decode(
      absl::Span<const TokenId> ids) const = 0;

  // The bytes that one token adds in the middle of a text: what the
  // incremental detokenizer joins. Empty for special tokens and ids that the
  // vocabulary leaves out.
  virtual absl::string_view TokenBytes(TokenId id) const = 0;
  virtual bool IsSpecial(TokenId id) const = 0;
  // True where decoding drops one leading space of the whole text
  // (SentencePiece's dummy prefix).
  virtual bool StripsLeadingSpace() const = 0;

  virtual int32_t vocab_size() const = 0;  // highest id + 1
  virtual TokenId bos_token() const = 0;   // -1: none
  virtual TokenId eos_token() const = 0;   // -1: none

  // SHA-256 over the vocabulary in canonical form (id, bytes, kind), equal for
  // equal vocabularies whatever file they came from. Datastores, priors and
  // draft models are tied to a target by it.
  virtual const Sha256Digest& fingerprint() const = 0;
};

}  // namespace foretoken

#endif  // FORETOKEN_COMMON_TEXT_TOKENIZER_H_
