// JSON schemas of any kind (after a 'k': with thinking before their text),
// regular expressions (after an 'r'), grammars (after a 'g') and structural
// tags (after a 't') must compile within their limits or be refused, and
// whatever compiles has masks that agree with its steps: a token is allowed
// exactly if the automaton survives its bytes.
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "common/base/check.h"
#include "common/grammar/automaton.h"
#include "common/grammar/compile.h"
#include "common/grammar/token_masks.h"
#include "common/grammar/token_trie.h"

namespace {

using foretoken::TokenId;
using foretoken::TokenKind;
using foretoken::Vocabulary;
namespace grammar = foretoken::grammar;

// All single bytes, and tokens that cross the borders of JSON's parts and of
// tags.
std::shared_ptr<const grammar::TokenVocabulary> MakeVocabulary() {
  auto vocabulary = std::make_shared<Vocabulary>();
  TokenId id = 0;
  const auto add = [&](const std::string& bytes, TokenKind kind) {
    FORETOKEN_CHECK(vocabulary->Add(id++, bytes, bytes, kind));
  };
  for (int byte = 0; byte < 256; ++byte) {
    add(std::string(1, static_cast<char>(byte)), TokenKind::kText);
  }
  for (const char* text :
       {"{\"",   "\": ", "\": \"", "\", \"",   "\"}",      "}, {",
        "[1, 2", ", ",   "true",   "null",     "12",       "-0.5",
        "e1",    "name", "\\u00",  "\xC3\xA9", "\xE2\x82", "a b c",
        "    ",  "]]}",  "\"\"",   "<think",   "</thi",    "nk>\n"}) {
    add(text, TokenKind::kText);
  }
  // Subtrees that a walk may pass as a whole.
  for (const char* first : {"n", "0", " ", "\xC3\xA9"}) {
    for (const char* second :
         {"a", "f", "z", "Q", "7", "-", "/", "\xC3", "\xE2\x82\xAC", "\""}) {
      for (const char* third : {"b", "9", ".", "\xC3\xA9"}) {
        add(absl::StrCat(first, second, third), TokenKind::kText);
      }
    }
  }
  add("<|end|>", TokenKind::kSpecial);
  return std::make_shared<const grammar::TokenVocabulary>(
      std::move(vocabulary));
}

// The constraint that the first byte names; without its letter, a schema.
foretoken::Constraint ConstraintOf(absl::string_view text) {
  foretoken::Constraint constraint;
  using Kind = foretoken::Constraint::Kind;
  constraint.kind = Kind::kJsonSchema;
  bool named = true;
  switch (text[0]) {
    case 'r':
      constraint.kind = Kind::kRegex;
      break;
    case 'g':
      constraint.kind = Kind::kGrammar;
      break;
    case 't':
      constraint.kind = Kind::kStructuralTag;
      break;
    case 'k':
      constraint.thinking.open.text = "<think>";
      constraint.thinking.close.text = "</think>";
      break;
    default:
      named = false;
  }
  constraint.source = std::string(text.substr(named ? 1 : 0));
  return constraint;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const auto& vocabulary = *new auto(MakeVocabulary());
  if (size < 2) return 0;
  // The last byte decides which tokens the text is made of.
  uint32_t choice = data[size - 1];
  const foretoken::Constraint constraint =
      ConstraintOf({reinterpret_cast<const char*>(data), size - 1});
  grammar::CompileLimits limits;
  limits.grammar.regex_bytes = 4 << 20;
  limits.grammar.rules = 20'000;
  const auto compiled = grammar::Compile(constraint, limits);
  if (!compiled.ok()) return 0;
  grammar::Automaton automaton(*compiled);
  grammar::TokenMasks masks(automaton, vocabulary);
  grammar::Automaton::State state = automaton.start();
  for (int step = 0; step < 12; ++step) {
    const auto mask = masks.Mask(state);
    if (!mask.ok()) return 0;
    std::vector<TokenId> allowed;
    for (TokenId token = 0; token < vocabulary->size(); ++token) {
      const absl::string_view bytes = vocabulary->bytes(token);
      const bool survives = !bytes.empty() && automaton.Step(state, bytes) !=
                                                  grammar::Automaton::kDead;
      if (!automaton.status().ok()) return 0;
      FORETOKEN_CHECK(grammar::HasToken(**mask, token) == survives);
      if (survives) allowed.push_back(token);
    }
    // Every byte is a token: a text that cannot go on has ended.
    FORETOKEN_CHECK(!allowed.empty() || automaton.Accepts(state));
    if (allowed.empty()) return 0;
    choice = choice * 1664525 + 1013904223;
    state = automaton.Step(
        state, vocabulary->bytes(allowed[(choice >> 8) % allowed.size()]));
  }
  return 0;
}
