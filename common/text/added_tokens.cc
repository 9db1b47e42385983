#include "common/text/added_tokens.h"

#include <unicode/uchar.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/json.h"
#include "common/base/status_macros.h"
#include "common/text/json_fields.h"
#include "common/text/utf8.h"
#include "common/text/vocabulary.h"

namespace foretoken {
namespace {

// Bounds the cost of PrefixTrie::Longest at every position of a text.
constexpr size_t kMaxContentBytes = 1024;

// \w and \s as defined by Unicode Technical Standard 18, annex C.
bool IsWordCharacter(uint32_t code_point) {
  const UChar32 c = static_cast<UChar32>(code_point);
  return u_hasBinaryProperty(c, UCHAR_ALPHABETIC) ||
         u_hasBinaryProperty(c, UCHAR_JOIN_CONTROL) ||
         (U_GET_GC_MASK(c) & (U_GC_M_MASK | U_GC_ND_MASK | U_GC_PC_MASK)) != 0;
}

bool IsWhiteSpace(uint32_t code_point) {
  return u_hasBinaryProperty(static_cast<UChar32>(code_point),
                             UCHAR_WHITE_SPACE);
}

// The character that ends at `end`, a character boundary above 0.
Utf8Step CharacterBefore(absl::string_view text, size_t end) {
  size_t begin = end - 1;
  while (begin > 0 && (static_cast<uint8_t>(text[begin]) & 0xC0) == 0x80) {
    --begin;
  }
  return NextUtf8(text.substr(begin, end - begin));
}

// The test for single_word: no word character on either side.
bool StandsAlone(absl::string_view text, size_t begin, size_t end) {
  if (begin > 0 && IsWordCharacter(CharacterBefore(text, begin).code_point)) {
    return false;
  }
  return end == text.size() ||
         !IsWordCharacter(NextUtf8(text.substr(end)).code_point);
}

absl::StatusOr<AddedToken> ParseAddedToken(const Json& entry,
                                           const std::string& where) {
  AddedToken token;
  FORETOKEN_ASSIGN_OR_RETURN(token.content,
                             StringMember(entry, where, "content"));
  if (token.content.empty() || token.content.size() > kMaxContentBytes) {
    return BadField(absl::StrCat(where, ".content"), token.content,
                    absl::StrCat("1..", kMaxContentBytes, " bytes"));
  }
  FORETOKEN_ASSIGN_OR_RETURN(const Json id, Member(entry, where, "id"));
  if (!id.is_number_integer() || id < 0 || id >= Vocabulary::kMaxSize) {
    return BadField(absl::StrCat(where, ".id"), id,
                    absl::StrCat("0..", Vocabulary::kMaxSize - 1));
  }
  token.id = id.get<TokenId>();
  FORETOKEN_ASSIGN_OR_RETURN(token.special,
                             BoolMember(entry, where, "special", false));
  // The tokenizers library defaults `normalized` to the opposite of `special`.
  FORETOKEN_ASSIGN_OR_RETURN(
      token.normalized, BoolMember(entry, where, "normalized", !token.special));
  FORETOKEN_ASSIGN_OR_RETURN(token.single_word,
                             BoolMember(entry, where, "single_word", false));
  FORETOKEN_ASSIGN_OR_RETURN(token.lstrip,
                             BoolMember(entry, where, "lstrip", false));
  FORETOKEN_ASSIGN_OR_RETURN(token.rstrip,
                             BoolMember(entry, where, "rstrip", false));
  return token;
}

}  // namespace

absl::StatusOr<std::vector<AddedToken>> ParseAddedTokens(const Json& field) {
  std::vector<AddedToken> tokens;
  if (field.is_null()) return tokens;
  if (!field.is_array()) return BadField("added_tokens", field, "a list");
  for (size_t i = 0; i < field.size(); ++i) {
    FORETOKEN_ASSIGN_OR_RETURN(
        AddedToken token,
        ParseAddedToken(field[i], absl::StrCat("added_tokens[", i, "]")));
    tokens.push_back(std::move(token));
  }
  return tokens;
}

void AddedTokenMatcher::Add(const AddedToken& token,
                            absl::string_view pattern) {
  trie_.Add(pattern, static_cast<int32_t>(tokens_.size()));
  tokens_.push_back(token);
}

void AddedTokenMatcher::Split(absl::string_view text, Sink sink) const {
  Split(
      text, [](const AddedToken&, size_t, size_t) { return true; }, sink);
}

void AddedTokenMatcher::Split(absl::string_view text, Allowed allowed,
                              Sink sink) const {
  size_t done = 0;  // text before this was passed to `sink`
  for (size_t at = 0; at < text.size();) {
    // Byte by byte is safe: a match of valid UTF-8 begins at a character.
    const PrefixTrie::Match match = trie_.Longest(text.substr(at));
    if (match.length == 0) {
      ++at;
      continue;
    }
    const AddedToken& token = tokens_[match.value];
    size_t begin = at;
    size_t end = at + match.length;
    // A request's spelling of a control token: text, of which a later byte may
    // begin another token.
    if (!allowed(token, begin, end)) {
      ++at;
      continue;
    }
    at = end;  // stripped spaces do not move the start of the next match
    if (token.single_word && !StandsAlone(text, begin, end)) continue;
    // lstrip and rstrip extend the token over white space that no earlier token
    // has taken.
    while (token.lstrip && begin > done) {
      const Utf8Step before = CharacterBefore(text, begin);
      if (!IsWhiteSpace(before.code_point)) break;
      begin -= before.length;
    }
    while (token.rstrip && end < text.size()) {
      const Utf8Step after = NextUtf8(text.substr(end));
      if (!IsWhiteSpace(after.code_point)) break;
      end += after.length;
    }
    if (begin > done) sink(-1, text.substr(done, begin - done));
    sink(token.id, text.substr(begin, end - begin));
    done = end;
  }
  if (done < text.size()) sink(-1, text.substr(done));
}

}  // namespace foretoken
