#include "common/text/fim_tokens.h"

#include "absl/container/flat_hash_map.h"
#include "absl/strings/string_view.h"

namespace foretoken {
namespace {

constexpr absl::string_view kEndOfText = "<|endoftext|>";

// Empty: the family has no such token.
struct Family {
  absl::string_view prefix, suffix, middle, pad, repository, file;
};

constexpr Family kFamilies[] = {
    {"<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>", "<|fim_pad|>",
     "<|repo_name|>", "<|file_sep|>"},
    {"<fim_prefix>", "<fim_suffix>", "<fim_middle>", "<fim_pad>", "<repo_name>",
     "<file_sep>"},
    {"<fim-prefix>", "<fim-suffix>", "<fim-middle>", "<fim-pad>", "", ""},
    {"<｜fim▁begin｜>", "<｜fim▁hole｜>", "<｜fim▁end｜>", "", "", ""},
};

using Ids = absl::flat_hash_map<absl::string_view, TokenId>;

// All of the names begin with a bracket, and few other tokens do.
Ids BracketedTokens(const Vocabulary& vocabulary) {
  Ids ids;
  for (TokenId id = 0; id < vocabulary.size(); ++id) {
    const absl::string_view content = vocabulary.content(id);
    if (!content.empty() && content.front() == '<') ids.emplace(content, id);
  }
  return ids;
}

TokenId Find(const Ids& ids, absl::string_view name) {
  const auto found = ids.find(name);
  return found == ids.end() ? -1 : found->second;
}

}  // namespace

std::vector<TokenId> FimTokens::ends() const {
  std::vector<TokenId> ends;
  for (const TokenId id :
       {prefix, suffix, middle, pad, repository, file, end_of_text}) {
    if (id >= 0) ends.push_back(id);
  }
  return ends;
}

FimTokens FindFimTokens(const Vocabulary& vocabulary, const FimTokens& named) {
  const Ids ids = BracketedTokens(vocabulary);
  FimTokens tokens;
  for (const Family& family : kFamilies) {
    tokens = {Find(ids, family.prefix), Find(ids, family.suffix),
              Find(ids, family.middle), Find(ids, family.pad),
              Find(ids, family.repository), Find(ids, family.file), -1};
    if (tokens.complete()) break;
    tokens = {};
  }
  tokens.end_of_text = Find(ids, kEndOfText);
  for (TokenId FimTokens::*const member :
       {&FimTokens::prefix, &FimTokens::suffix, &FimTokens::middle,
        &FimTokens::pad, &FimTokens::repository, &FimTokens::file}) {
    if (named.*member >= 0) tokens.*member = named.*member;
  }
  return tokens;
}

}  // namespace foretoken
