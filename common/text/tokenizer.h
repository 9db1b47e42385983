// Tokenizer: text to token ids and back, identical to the model's own.
//
// Formats: Hugging Face tokenizer.json (gzip or plain; BPE, byte-level or with
// byte fallback), SentencePiece tokenizer.model (BPE), and the vocabulary of a
// GGUF file. Thread-safe after Load: every method is const.
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
#include "common/text/fim_tokens.h"
#include "common/text/prompt_span.h"
#include "common/text/vocabulary.h"

namespace foretoken {

class Tokenizer {
 public:
  virtual ~Tokenizer() = default;
  Tokenizer(const Tokenizer&) = delete;
  Tokenizer& operator=(const Tokenizer&) = delete;

  // `path`: a model directory (tokenizer.json[.gz] takes precedence over
  // tokenizer.model; its tokenizer_config.json names BOS and EOS), one of these
  // files, gzip or plain, or a GGUF file. NotFound for a missing file and for a
  // GGUF file without a vocabulary. Unsupported features are refused with file,
  // field and value.
  static absl::StatusOr<std::unique_ptr<Tokenizer>> Load(
      const std::string& path);
  // As Load, but loads a path once for all callers of the process that still
  // hold its tokenizer.
  static absl::StatusOr<std::shared_ptr<const Tokenizer>> LoadShared(
      const std::string& path);

  // Returns the ids of `text`, without BOS or template tokens. Added and
  // special tokens in the text are recognised if the format does so
  // (tokenizer.json, GGUF), and are plain text if not (tokenizer.model).
  // Malformed UTF-8 is accepted: SentencePiece turns each malformed byte into
  // U+FFFD; tokenizer.json, whose own library accepts valid UTF-8 only, encodes
  // it byte by byte if the vocabulary has bytes. 5 MB/s or more per thread;
  // never quadratic.
  virtual std::vector<TokenId> Encode(absl::string_view text) const = 0;

  // Encodes the joined text of the spans, but finds control tokens (see
  // IsControlToken) in the template's spans only, also where Encode does not
  // look for them. Without such a token in a text of the request the ids are
  // those of the joined text. Nothing is added: a chat template writes BOS
  // itself. The default is for vocabularies without control tokens.
  virtual std::vector<TokenId> EncodeSpans(
      absl::Span<const PromptSpan> spans) const;

  // As Encode, with BOS (and any other prompt tokens that the model's files
  // name) added. A tokenizer.model asks for BOS unless a tokenizer_config.json
  // beside it says add_bos_token: false.
  std::vector<TokenId> EncodePrompt(absl::string_view text) const;

  // Returns the text of `ids` as the original library does: special tokens are
  // omitted. InvalidArgument for ids outside the vocabulary.
  absl::StatusOr<std::string> Decode(absl::Span<const TokenId> ids) const;

  // Bytes that a token contributes in the middle of a text; the incremental
  // detokenizer joins them. Empty for special tokens and for ids that the
  // vocabulary lacks.
  absl::string_view TokenBytes(TokenId id) const {
    return vocabulary_.bytes(id);
  }
  bool IsSpecial(TokenId id) const {
    return vocabulary_.kind(id) == TokenKind::kSpecial ||
           (vocabulary_.kind(id) == TokenKind::kUnknown &&
            TokenBytes(id).empty());
  }
  // Whether decoding drops leading spaces of the text (SentencePiece's dummy
  // prefix); decode_rules() says which.
  bool StripsLeadingSpace() const {
    return rules_.leading_space != DecodeRules::LeadingSpace::kKeep;
  }
  const DecodeRules& decode_rules() const { return rules_; }
  const Vocabulary& vocabulary() const { return vocabulary_; }

  int32_t vocab_size() const { return vocabulary_.size(); }  // highest id + 1
  TokenId bos_token() const { return bos_token_; }           // -1: none
  TokenId eos_token() const { return eos_token_; }           // -1: none
  // Added by EncodePrompt in front: BOS, or nothing.
  const std::vector<TokenId>& prompt_prefix() const { return prompt_prefix_; }
  const FimTokens& fim_tokens() const { return fim_tokens_; }
  // The model's chat template (Jinja), as its files have it; empty: none.
  const std::string& chat_template() const { return chat_template_; }

  // SHA-256 of the vocabulary in canonical form (id, bytes, kind): equal for
  // equal vocabularies, whatever file they came from. Ties datastores, priors
  // and draft models to a target.
  const Sha256Digest& fingerprint() const { return fingerprint_; }
  // The same 32 bytes, as messages carry them.
  std::string fingerprint_bytes() const {
    return {fingerprint_.begin(), fingerprint_.end()};
  }

 protected:
  // Set once by the loader of each format.
  struct Parts {
    Vocabulary vocabulary;
    DecodeRules rules;
    TokenId bos_token = -1;
    TokenId eos_token = -1;
    std::vector<TokenId> prompt_prefix;  // added by EncodePrompt
    std::vector<TokenId> prompt_suffix;
    std::string chat_template;
    FimTokens fim;  // that the files name by id
  };
  explicit Tokenizer(Parts parts);

 private:
  const Vocabulary vocabulary_;
  const DecodeRules rules_;
  const TokenId bos_token_;
  const TokenId eos_token_;
  const std::vector<TokenId> prompt_prefix_;
  const std::vector<TokenId> prompt_suffix_;
  const std::string chat_template_;
  const FimTokens fim_tokens_;
  const Sha256Digest fingerprint_;
};

}  // namespace foretoken

#endif  // FORETOKEN_COMMON_TEXT_TOKENIZER_H_
