#include "common/text/vocabulary.h"

#include "absl/strings/match.h"
#include "common/base/bytes.h"
#include "common/base/check.h"

namespace foretoken {
namespace {

void UpdateWithInteger(Sha256& hash, uint64_t value) {
  std::string bytes;
  AppendLittleEndian(value, bytes);
  hash.Update(bytes);
}

}  // namespace

bool Vocabulary::Add(TokenId id, absl::string_view content,
                     absl::string_view bytes, TokenKind kind) {
  FORETOKEN_CHECK(id >= 0 && id < kMaxSize && kind != TokenKind::kAbsent);
  if (id >= size()) tokens_.resize(id + 1);
  Token& token = tokens_[id];
  if (token.kind != TokenKind::kAbsent) return false;
  token = {std::string(content), std::string(bytes), kind, false};
  return true;
}

Sha256Digest Vocabulary::Fingerprint() const {
  Sha256 hash;
  UpdateWithInteger(hash, tokens_.size());
  // Tokens that look special count as special, by the rule of llama.cpp's
  // converter (does_token_look_special): a model's GGUF file and its
  // tokenizer.json then have the same fingerprint.
  const auto looks_special = [](absl::string_view content) {
    const auto is_between = [content](absl::string_view begin,
                                      absl::string_view end) {
      return absl::StartsWith(content, begin) && absl::EndsWith(content, end);
    };
    return is_between("<|", "|>") || is_between("<｜", "｜>") ||
           is_between("<unused", ">") || content == "<pad>" ||
           content == "<mask>" || content == "<2mass>" || content == "[@BOS@]";
  };
  // Lengths are hashed too; otherwise different vocabularies could yield the
  // same bytes.
  for (const Token& token : tokens_) {
    const TokenKind kind =
        token.kind == TokenKind::kText && looks_special(token.content)
            ? TokenKind::kSpecial
            : token.kind;
    UpdateWithInteger(hash, static_cast<uint64_t>(kind));
    UpdateWithInteger(hash, token.content.size());
    hash.Update(absl::string_view(token.content));
  }
  return hash.Finish();
}

}  // namespace foretoken
