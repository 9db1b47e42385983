#include "common/grammar/thinking.h"

#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "common/base/status_macros.h"
#include "common/grammar/byte_set.h"
#include "common/grammar/regex_syntax.h"
#include "common/grammar/token_trie.h"
#include "common/text/utf8.h"

namespace foretoken::grammar {
namespace {

Expr Space(Regexes& regexes) {
  ByteSet spaces;
  for (const char c : {' ', '\t', '\n', '\r'}) {
    spaces.Add(static_cast<uint8_t>(c));
  }
  return regexes.Bytes(spaces);
}

Expr Spaces(Regexes& regexes) {
  return regexes.Repeat(Space(regexes), 0, kMaxThinkingSpaces);
}

Expr TagLiteral(const Thinking::Tag& tag, Regexes& regexes) {
  return regexes.Literal(
      tag.is_control ? TokenVocabulary::ControlBytes(tag.text) : tag.text);
}

// All up to the end of the closing tag. Also where that is a special token, its
// spelling does not stand in the thinking: the reader sees no difference.
Expr Thoughts(const Thinking& thinking, Regexes& regexes) {
  // The shortest text up to the tag: the complement excludes the tag inside.
  const Expr text = regexes.And(
      {regexes.Star(AnyCodePoint(TextForm::kUtf8, regexes)),
       regexes.Not(regexes.Concat({Regexes::kAnything,
                                   regexes.Literal(thinking.close.text),
                                   Regexes::kAnything}))});
  const Expr closed = regexes.Concat(text, TagLiteral(thinking.close, regexes));
  if (thinking.opened) return closed;
  return regexes.Concat(TagLiteral(thinking.open, regexes), closed);
}

Expr ThoughtsAndSpace(const Thinking& thinking, ThinkingSpace space,
                      Regexes& regexes) {
  const Expr thoughts = Thoughts(thinking, regexes);
  return space == ThinkingSpace::kAllowed
             ? regexes.Concat(thoughts, Spaces(regexes))
             : thoughts;
}

absl::Status CheckTag(absl::string_view name, absl::string_view text) {
  // A first byte that does not come again makes the tag's end unambiguous for a
  // reader that works byte by byte.
  if (!text.empty() && text.size() <= Thinking::kMaxTagBytes &&
      IsValidUtf8(text) && text.find(text[0], 1) == absl::string_view::npos) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      absl::StrCat("thinking: ", name, ": want 1..", Thinking::kMaxTagBytes,
                   " bytes of UTF-8, the first of them once"));
}

}  // namespace

absl::Status CheckThinking(const Thinking& thinking) {
  if (!thinking.opened) {
    FORETOKEN_RETURN_IF_ERROR(CheckTag("open", thinking.open.text));
  }
  return CheckTag("close", thinking.close.text);
}

Expr NotThinking(const Thinking& thinking, Regexes& regexes) {
  return regexes.Not(regexes.Concat({regexes.Star(Space(regexes)),
                                     regexes.Literal(thinking.open.text),
                                     Regexes::kAnything}));
}

Expr NeverThinking(const Thinking& thinking, Regexes& regexes) {
  std::vector<Expr> beginnings;
  // Every proper beginning of the tag: a text that ends in it could still
  // become thinking.
  for (size_t size = 1; size < thinking.open.text.size(); ++size) {
    beginnings.push_back(
        regexes.Literal(absl::string_view(thinking.open.text).substr(0, size)));
  }
  return regexes.And(NotThinking(thinking, regexes),
                     regexes.Not(regexes.Concat(regexes.Star(Space(regexes)),
                                                regexes.Or(beginnings))));
}

Symbol AddThinkingBefore(const Thinking& thinking, Symbol text,
                         ThinkingSpace space, GrammarBuilder& builder) {
  const Symbol thought = builder.Sequence(
      {builder.Terminal(ThoughtsAndSpace(thinking, space, builder.regexes())),
       text});
  // A model may leave the thinking out, unless its prompt has begun it.
  return thinking.opened ? thought : builder.Choice({thought, text});
}

Symbol AddThinkingBeforeTerminal(const Thinking& thinking, Expr text,
                                 ThinkingSpace space, GrammarBuilder& builder) {
  Regexes& regexes = builder.regexes();
  Expr after = text;
  if (space == ThinkingSpace::kAllowed) {
    // Space belongs to the thinking, so a text cannot be read in two ways.
    after = regexes.And(
        text, regexes.Not(regexes.Concat(Space(regexes), Regexes::kAnything)));
  }
  const Symbol thought = builder.Sequence(
      {builder.Terminal(ThoughtsAndSpace(thinking, space, regexes)),
       builder.Terminal(after)});
  if (thinking.opened) return thought;
  const Expr alone = regexes.And(text, NotThinking(thinking, regexes));
  return builder.Choice({thought, builder.Terminal(alone)});
}

}  // namespace foretoken::grammar
