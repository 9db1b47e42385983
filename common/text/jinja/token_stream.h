// TokenStream: the tokens of a template, and the place in them where a parser
// is.
//
// Owned by one thread.
#ifndef FORETOKEN_COMMON_TEXT_JINJA_TOKEN_STREAM_H_
#define FORETOKEN_COMMON_TEXT_JINJA_TOKEN_STREAM_H_

#include <algorithm>
#include <initializer_list>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "common/text/jinja/lexer.h"

namespace foretoken::jinja {

class TokenStream {
 public:
  using Names = std::initializer_list<absl::string_view>;

  // The last token is kEnd.
  explicit TokenStream(std::vector<Token> tokens)
      : tokens_(std::move(tokens)) {}

  const Token& current() const { return tokens_[at_]; }
  // The last token, kEnd, is followed by itself.
  const Token& next() const {
    return tokens_[std::min(at_ + 1, tokens_.size() - 1)];
  }
  void Advance() {
    if (at_ + 1 < tokens_.size()) ++at_;
  }
  bool Is(Token::Kind kind) const { return current().kind == kind; }
  static bool IsOp(const Token& token, absl::string_view op) {
    return token.kind == Token::Kind::kOperator && token.text == op;
  }
  static bool IsName(const Token& token, absl::string_view name) {
    return token.kind == Token::Kind::kName && token.text == name;
  }
  bool IsOp(absl::string_view op) const { return IsOp(current(), op); }
  bool IsName(absl::string_view name) const { return IsName(current(), name); }
  bool IsName(Names names) const {
    return std::any_of(names.begin(), names.end(),
                       [&](absl::string_view name) { return IsName(name); });
  }
  bool SkipOp(absl::string_view op) {
    if (!IsOp(op)) return false;
    Advance();
    return true;
  }
  bool SkipName(absl::string_view name) {
    if (!IsName(name)) return false;
    Advance();
    return true;
  }

  absl::Status Fail(absl::string_view what) const {
    return absl::InvalidArgumentError(
        absl::StrCat("line ", current().line, ": ", what));
  }
  absl::Status Unexpected(absl::string_view want) const {
    const Token& token = current();
    absl::string_view seen = token.text;
    if (token.kind == Token::Kind::kEnd) seen = "the end of the template";
    if (token.kind == Token::Kind::kTagEnd) seen = "%}";
    if (token.kind == Token::Kind::kPrintEnd) seen = "}}";
    return Fail(absl::StrCat("unexpected ", seen, ", want ", want));
  }
  absl::Status ExpectOp(absl::string_view op) {
    return SkipOp(op) ? absl::OkStatus() : Unexpected(op);
  }
  absl::Status ExpectName(absl::string_view name) {
    return SkipName(name) ? absl::OkStatus() : Unexpected(name);
  }
  absl::Status Expect(Token::Kind kind, absl::string_view what) {
    if (!Is(kind)) return Unexpected(what);
    Advance();
    return absl::OkStatus();
  }
  absl::StatusOr<std::string> ExpectAnyName() {
    if (!Is(Token::Kind::kName)) return Unexpected("a name");
    std::string name = current().text;
    Advance();
    return name;
  }

 private:
  const std::vector<Token> tokens_;
  size_t at_ = 0;
};

}  // namespace foretoken::jinja

#endif  // FORETOKEN_COMMON_TEXT_JINJA_TOKEN_STREAM_H_
