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
#include "common/text/detokenizer.h"
#include "common/text/vocabulary.h"

namespace foretoken {

class Tokenizer {
 public:
  virtual ~Tokenizer() = default;
  Tokenizer(const Tokenizer&) = delete;
  Tokenizer& operator=(const Tokenizer&) = delete;

  // `path`: a model directory (tokenizer.json[.gz] before tokenizer.model; its
  // tokenizer_config.json names BOS and EOS), or one of the files, gzip or
  // plain. Unsupported parts are refused by file, field and value.
  static absl::StatusOr<std::unique_ptr<Tokenizer>> Load(
      const std::string& path);
  // As Load, but loads a path once for all callers of the process that still
  // hold its tokenizer.
  static absl::StatusOr<std::shared_ptr<const Tokenizer>> LoadShared(
      const std::string& path);

  // Ids of `text`, without BOS or any template token. Added and special tokens
  // that stand in the text are recognised where the format does so
  // (tokenizer.json), and are plain text where it does not (tokenizer.model).
  // Malformed UTF-8 is never refused: SentencePiece makes each such byte a
  // U+FFFD; tokenizer.json, whose library takes none, encodes it byte by byte
  // where the vocabulary can. 5 MB/s or more a thread; never quadratic.
  virtual std::vector<TokenId> Encode(absl::string_view text) const = 0;

  // As Encode, with the BOS token (and whatever else the model's files put
  // around a prompt) in front, if they ask for one. A tokenizer.model asks for
  // BOS unless a tokenizer_config.json beside it says add_bos_token: false.
  std::vector<TokenId> EncodePrompt(absl::string_view text) const;

  // The text of `ids` as the original library gives it: special tokens are
  // left out. Ids outside the vocabulary are InvalidArgument.
  absl::StatusOr<std::string> Decode(absl::Span<const TokenId> ids) const;

  // The bytes that one token adds in the middle of a text: what the
  // incremental detokenizer joins. Empty for special tokens and ids that the
  // vocabulary leaves out.
  absl::string_view TokenBytes(TokenId id) const {
    return vocabulary_.bytes(id);
  }
  bool IsSpecial(TokenId id) const {
    return vocabulary_.kind(id) == TokenKind::kSpecial ||
           (vocabulary_.kind(id) == TokenKind::kUnknown &&
            TokenBytes(id).empty());
  }
  // True where decoding drops leading space of the whole text (SentencePiece's
  // dummy prefix); decode_rules() says which.
  bool StripsLeadingSpace() const {
    return rules_.leading_space != DecodeRules::LeadingSpace::kKeep;
  }
  const DecodeRules& decode_rules() const { return rules_; }
  const Vocabulary& vocabulary() const { return vocabulary_; }

  int32_t vocab_size() const { return vocabulary_.size(); }  // highest id + 1
  TokenId bos_token() const { return bos_token_; }           // -1: none
  TokenId eos_token() const { return eos_token_; }           // -1: none

  // SHA-256 over the vocabulary in canonical form (id, bytes, kind), equal for
  // equal vocabularies whatever file they came from. Datastores, priors and
  // draft models are tied to a target by it.
  const Sha256Digest& fingerprint() const { return fingerprint_; }
  // The same 32 bytes, as messages carry them.
  std::string fingerprint_bytes() const {
    return {fingerprint_.begin(), fingerprint_.end()};
  }

 protected:
  // What every format fills in once.
  struct Parts {
    Vocabulary vocabulary;
    DecodeRules rules;
    TokenId bos_token = -1;
    TokenId eos_token = -1;
    std::vector<TokenId> prompt_prefix;  // EncodePrompt puts them around
    std::vector<TokenId> prompt_suffix;
  };
  explicit Tokenizer(Parts parts);

 private:
  const Vocabulary vocabulary_;
  const DecodeRules rules_;
  const TokenId bos_token_;
  const TokenId eos_token_;
  const std::vector<TokenId> prompt_prefix_;
  const std::vector<TokenId> prompt_suffix_;
  const Sha256Digest fingerprint_;
};

}  // namespace foretoken

#endif  // FORETOKEN_COMMON_TEXT_TOKENIZER_H_
