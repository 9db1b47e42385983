#include "common/grammar/token_trie.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/text/tokenizer.h"
#include "common/text/utf8.h"

namespace foretoken::grammar {
namespace {

constexpr size_t kMaxTokenBytes = 4096;
// Longer slices let more tokens pass without a walk; strings with a bound need
// the shorter ones as they end.
constexpr int kSlices[] = {TokenVocabulary::kMostCharacters, 16, 6};

// The number of characters of a token that has only plain ones; 0 otherwise.
int PlainLength(absl::string_view bytes) {
  int characters = 0;
  while (!bytes.empty()) {
    const Utf8Step step = NextUtf8(bytes);
    if (step.kind != Utf8Step::kCharacter || step.code_point < 0x20 ||
        step.code_point == 0x7F || step.code_point == '"' ||
        step.code_point == '\\') {
      return 0;
    }
    bytes.remove_prefix(step.length);
    ++characters;
  }
  return characters;
}

}  // namespace

static_assert(sizeof(TokenTrie::Node) + sizeof(CharacterGroups) +
                  sizeof(int32_t) ==
              24);  // as the header says

TokenTrie::TokenTrie(absl::Span<const Entry> tokens) {
  // The nodes of the token before, from its first byte on; `skip` is known
  // once a node has no more children.
  std::vector<int32_t> path;
  absl::string_view before;
  // Tokens come sorted, so a token shares its beginning with the one before.
  for (const auto& [bytes, token, groups] : tokens) {
    const size_t shared =
        std::mismatch(before.begin(), before.end(), bytes.begin(), bytes.end())
            .first -
        before.begin();
    while (path.size() > shared) {
      nodes_[path.back()].skip = static_cast<int32_t>(nodes_.size());
      path.pop_back();
    }
    for (size_t i = shared; i < bytes.size(); ++i) {
      path.push_back(static_cast<int32_t>(nodes_.size()));
      nodes_.push_back({.depth = static_cast<uint16_t>(i),
                        .byte = static_cast<uint8_t>(bytes[i])});
      first_token_.push_back(static_cast<int32_t>(tokens_.size()));
    }
    groups_.resize(nodes_.size());
    for (size_t i = 0; i < path.size(); ++i) {
      groups_[path[i]] |= groups[i + 1];
    }
    tokens_.push_back(token);
    nodes_[path.back()].token = token;
    max_depth_ = std::max(max_depth_, static_cast<int>(bytes.size()));
    before = bytes;
  }
  for (const int32_t node : path) {
    nodes_[node].skip = static_cast<int32_t>(nodes_.size());
  }
  nodes_.shrink_to_fit();
  groups_.shrink_to_fit();
  first_token_.shrink_to_fit();
  tokens_.shrink_to_fit();
}

TokenVocabulary::TokenVocabulary(std::shared_ptr<const Vocabulary> vocabulary,
                                 int32_t size)
    : vocabulary_(std::move(vocabulary)),
      size_(size > 0 ? size : vocabulary_->size()) {
  for (TokenId token = 0; token < size_; ++token) {
    if (vocabulary_->kind(token) != TokenKind::kSpecial) continue;
    std::string bytes = ControlBytes(vocabulary_->content(token));
    // A special token with a longer name has no bytes, so no grammar can ask
    // for it.
    if (bytes.size() <= kMaxTokenBytes) controls_[token] = std::move(bytes);
  }
}

std::string TokenVocabulary::ControlBytes(absl::string_view name) {
  const absl::string_view border(&kControlByte, 1);
  return absl::StrCat(border, name, border);
}

std::shared_ptr<const TokenVocabulary> TokenVocabulary::Of(
    std::shared_ptr<const Tokenizer> tokenizer, int32_t size) {
  if (tokenizer == nullptr) return nullptr;
  const Vocabulary* const vocabulary = &tokenizer->vocabulary();
  // Shares the tokenizer: the vocabulary is a part of it.
  return std::make_shared<const TokenVocabulary>(
      std::shared_ptr<const Vocabulary>(std::move(tokenizer), vocabulary),
      size);
}

void TokenVocabulary::PrepareMasks() const {
  // Once, when the first constraint comes or at start: sorting a vocabulary
  // takes a noticeable time.
  absl::call_once(made_, [this] { MakeSlices(); });
}

void TokenVocabulary::MakeSlices() const {
  std::vector<std::pair<absl::string_view, TokenId>> all;
  for (TokenId token = 0; token < size_; ++token) {
    const absl::string_view bytes = read_bytes(token);
    if (!bytes.empty()) all.push_back({bytes, token});
  }
  std::sort(all.begin(), all.end());
  std::vector<TokenTrie::Entry> tokens;
  size_t places = 0;
  for (const auto& [bytes, token] : all) {
    if (!tokens.empty() && tokens.back().bytes == bytes) {
      twins_.push_back({tokens.back().token, token});
    } else {
      tokens.push_back({bytes, token, {}});
      places += bytes.size() + 1;
    }
  }
  // Computed once: every slice needs them.
  std::vector<CharacterGroups> groups;
  groups.reserve(places);
  std::vector<int> lengths;
  for (TokenTrie::Entry& entry : tokens) {
    const std::vector<CharacterGroups> of_entry = GroupsToTheEnd(entry.bytes);
    groups.insert(groups.end(), of_entry.begin(), of_entry.end());
    // Views into `groups`, which was reserved whole and does not move.
    entry.groups = absl::MakeConstSpan(groups).last(of_entry.size());
    lengths.push_back(PlainLength(entry.bytes));
  }
  for (const int characters : kSlices) {
    TokenBits plain(words());
    std::vector<TokenTrie::Entry> rest;
    for (size_t i = 0; i < tokens.size(); ++i) {
      if (lengths[i] > 0 && lengths[i] <= characters) {
        SetToken(absl::MakeSpan(plain), tokens[i].token);
      } else {
        rest.push_back(tokens[i]);
      }
    }
    slices_.push_back({characters, std::move(plain), TokenTrie(rest)});
  }
  // The last slice has all tokens, for states in which nothing is known.
  slices_.push_back({0, {}, TokenTrie(tokens)});
}

absl::string_view TokenVocabulary::bytes(TokenId token) const {
  if (token >= size_) return {};
  const TokenKind kind = vocabulary_->kind(token);
  if (kind != TokenKind::kText && kind != TokenKind::kByte) return {};
  // The control byte borders names of special tokens; no text may imitate one.
  const absl::string_view bytes = vocabulary_->bytes(token);
  const bool is_text = bytes.size() <= kMaxTokenBytes &&
                       bytes.find(kControlByte) == absl::string_view::npos;
  return is_text ? bytes : absl::string_view();
}

absl::string_view TokenVocabulary::read_bytes(TokenId token) const {
  const auto control = controls_.find(token);
  return control == controls_.end() ? bytes(token) : control->second;
}

const TokenVocabulary::Slice& TokenVocabulary::slice(int characters) const {
  PrepareMasks();
  for (const Slice& slice : slices_) {
    if (slice.characters <= characters) return slice;
  }
  return slices_.back();
}

}  // namespace foretoken::grammar
