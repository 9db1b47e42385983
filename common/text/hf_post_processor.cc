#include "common/text/hf_post_processor.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "common/base/json.h"
#include "common/base/status_macros.h"
#include "common/text/json_fields.h"

namespace foretoken {
namespace {

absl::Status AppendSpecialToken(const Json& field, const std::string& where,
                                const Json& special_tokens, int32_t vocab_size,
                                std::vector<TokenId>& out) {
  FORETOKEN_ASSIGN_OR_RETURN(const std::string name,
                             StringMember(field, where, "id"));
  const std::string inner = absl::StrCat("special_tokens[\"", name, "\"]");
  FORETOKEN_ASSIGN_OR_RETURN(
      const Json entry, Member(special_tokens, "special_tokens", name.c_str()));
  FORETOKEN_ASSIGN_OR_RETURN(const Json ids, Member(entry, inner, "ids"));
  if (!ids.is_array()) return BadField(inner + ".ids", ids, "a list");
  for (const Json& id : ids) {
    if (!id.is_number_integer() || id < 0 || id >= vocab_size) {
      return BadField(inner + ".ids", ids,
                      absl::StrCat("ids 0..", vocab_size - 1));
    }
    out.push_back(id.get<TokenId>());
  }
  return absl::OkStatus();
}

absl::Status ParseTemplate(const Json& field, const std::string& where,
                           int32_t vocab_size, std::vector<TokenId>& prefix,
                           std::vector<TokenId>& suffix) {
  FORETOKEN_ASSIGN_OR_RETURN(const Json single, Member(field, where, "single"));
  FORETOKEN_ASSIGN_OR_RETURN(const Json special_tokens,
                             Member(field, where, "special_tokens"));
  const std::string inner = absl::StrCat(where, ".single");
  if (!single.is_array()) return BadField(inner, single, "a list");
  bool seen_text = false;
  for (size_t i = 0; i < single.size(); ++i) {
    const std::string at = absl::StrCat(inner, "[", i, "]");
    // Each step is {"Sequence": ...} or {"SpecialToken": ...}.
    FORETOKEN_ASSIGN_OR_RETURN(const Json sequence,
                               Member(single[i], at, "Sequence"));
    FORETOKEN_ASSIGN_OR_RETURN(const Json special,
                               Member(single[i], at, "SpecialToken"));
    // The one Sequence is the prompt; special tokens before it are the prefix,
    // those after it the suffix.
    if (!sequence.is_null() && !seen_text) {
      seen_text = true;
    } else if (!special.is_null()) {
      FORETOKEN_RETURN_IF_ERROR(
          Annotate(AppendSpecialToken(special, "SpecialToken", special_tokens,
                                      vocab_size, seen_text ? suffix : prefix),
                   at));
    } else {
      return BadField(at, single[i], "one Sequence and SpecialTokens");
    }
  }
  if (!seen_text) return BadField(inner, single, "a Sequence in it");
  return absl::OkStatus();
}

absl::Status ParseAt(const Json& field, const std::string& where, bool nested,
                     int32_t vocab_size, std::vector<TokenId>& prefix,
                     std::vector<TokenId>& suffix) {
  if (field.is_null()) return absl::OkStatus();
  FORETOKEN_ASSIGN_OR_RETURN(const std::string type,
                             StringMember(field, where, "type"));
  if (type == "ByteLevel") return absl::OkStatus();  // offsets only, no tokens
  // A second template is refused: its tokens would go around those of the
  // first.
  if (type == "TemplateProcessing" && prefix.empty() && suffix.empty()) {
    return ParseTemplate(field, where, vocab_size, prefix, suffix);
  }
  if (type == "Sequence" && !nested) {
    FORETOKEN_ASSIGN_OR_RETURN(const Json parts,
                               Member(field, where, "processors"));
    const std::string inner = absl::StrCat(where, ".processors");
    if (!parts.is_array()) return BadField(inner, parts, "a list");
    for (size_t i = 0; i < parts.size(); ++i) {
      FORETOKEN_RETURN_IF_ERROR(ParseAt(parts[i],
                                        absl::StrCat(inner, "[", i, "]"), true,
                                        vocab_size, prefix, suffix));
    }
    return absl::OkStatus();
  }
  return BadField(absl::StrCat(where, ".type"), type,
                  "ByteLevel, one TemplateProcessing, or one Sequence of them; "
                  "others are not supported");
}

}  // namespace

absl::Status ParsePostProcessor(const Json& field, int32_t vocab_size,
                                std::vector<TokenId>& prefix,
                                std::vector<TokenId>& suffix) {
  return ParseAt(field, "post_processor", false, vocab_size, prefix, suffix);
}

}  // namespace foretoken
