// TokenTexts: tokens as the API shows them. Thread-safe.
#ifndef FORETOKEN_SERVICES_GATEWAY_CORE_TOKEN_TEXTS_H_
#define FORETOKEN_SERVICES_GATEWAY_CORE_TOKEN_TEXTS_H_

#include <string>

#include "absl/strings/string_view.h"
#include "common/base/types.h"
#include "common/text/tokenizer.h"

namespace foretoken::gateway {

class TokenTexts {
 public:
  // `tokenizer` may be null; it must outlive this object.
  explicit TokenTexts(const Tokenizer* tokenizer) : tokenizer_(tokenizer) {}

  // The token's bytes; of a special token its name. May be no UTF-8. Without a
  // tokenizer "token_id:17".
  std::string Of(TokenId token) const;
  // The same as text: what is no UTF-8 as "bytes:\xe6\x9d", as in OpenAI's
  // completions.
  std::string Spelled(TokenId token) const;

 private:
  const Tokenizer* const tokenizer_;
};

// Number of characters, as Python counts them; a byte that is not UTF-8 counts
// as one.
int64_t CountCharacters(absl::string_view text);

}  // namespace foretoken::gateway

#endif  // FORETOKEN_SERVICES_GATEWAY_CORE_TOKEN_TEXTS_H_
