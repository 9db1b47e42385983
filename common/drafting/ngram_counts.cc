#include "common/drafting/ngram_counts.h"

#include <algorithm>
#include <array>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_format.h"
#include "common/base/token_range.h"

namespace foretoken {
namespace {

// The token at `position`, or a border past the end of the corpus.
TokenId At(absl::Span<const TokenId> corpus, size_t position) {
  return position < corpus.size() ? corpus[position] : kDocumentBorder;
}

// Positions of all tokens, sorted by the `order` tokens that start there.
std::vector<uint32_t> SortPositions(absl::Span<const TokenId> corpus, int order,
                                    int32_t vocab_size) {
  // Counting sort by the first token, then a comparison sort within each
  // bucket: far fewer comparisons than sorting all positions.
  std::vector<uint32_t> starts(static_cast<size_t>(vocab_size) + 1, 0);
  for (TokenId token : corpus) {
    if (token >= 0) ++starts[static_cast<size_t>(token) + 1];
  }
  for (size_t i = 1; i < starts.size(); ++i) starts[i] += starts[i - 1];
  std::vector<uint32_t> positions(starts.back());
  std::vector<uint32_t> fill(starts.begin(), starts.end() - 1);
  for (size_t i = 0; i < corpus.size(); ++i) {
    if (corpus[i] >= 0) positions[fill[corpus[i]]++] = static_cast<uint32_t>(i);
  }
  const auto less = [corpus, order](uint32_t a, uint32_t b) {
    for (int i = 1; i < order; ++i) {
      const TokenId ta = At(corpus, size_t{a} + i);
      const TokenId tb = At(corpus, size_t{b} + i);
      if (ta != tb) return ta < tb;
      if (ta == kDocumentBorder) return false;
    }
    return false;
  };
  for (size_t i = 0; i + 1 < starts.size(); ++i) {
    std::sort(positions.begin() + starts[i], positions.begin() + starts[i + 1],
              less);
  }
  return positions;
}

}  // namespace

absl::StatusOr<NgramCounts> NgramCounts::Create(
    absl::Span<const TokenId> corpus, int order, int32_t vocab_size) {
  if (order < 2 || order > kMaxOrder) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "n-gram counts: order %d, want 2..%d", order, kMaxOrder));
  }
  if (corpus.size() >= (size_t{1} << 31)) {
    return absl::ResourceExhaustedError(absl::StrFormat(
        "n-gram counts: corpus of %d tokens, want fewer than 2^31",
        corpus.size()));
  }
  for (size_t i = 0; i < corpus.size(); ++i) {
    if (corpus[i] != kDocumentBorder && !InVocabulary(corpus[i], vocab_size)) {
      return absl::InvalidArgumentError(
          absl::StrFormat("n-gram counts: token %d at %d, want 0..%d",
                          corpus[i], i, vocab_size - 1));
    }
  }
  NgramCounts counts;
  counts.vocab_size_ = vocab_size;
  counts.levels_.resize(order);
  const std::vector<uint32_t> positions =
      SortPositions(corpus, order, vocab_size);
  counts.corpus_tokens_ = positions.size();
  counts.AddSorted(corpus, positions, order);
  counts.LinkSuffixes();
  counts.CountLeftKinds(corpus);
  return counts;
}

void NgramCounts::AddSorted(absl::Span<const TokenId> corpus,
                            const std::vector<uint32_t>& positions, int order) {
  // Sorted positions visit equal n-grams in a row. last[n - 1] is the last
  // token of the current n-gram of length n; once a length differs, all longer
  // n-grams are new.
  std::array<TokenId, kMaxOrder> last;
  last.fill(kDocumentBorder);
  for (uint32_t position : positions) {
    bool same = true;
    for (int n = 1; n <= order; ++n) {
      const TokenId token = At(corpus, size_t{position} + n - 1);
      if (token == kDocumentBorder) {
        last[n - 1] = kDocumentBorder;
        break;
      }
      same = same && last[n - 1] == token;
      NgramLevel& level = levels_[n - 1];
      if (same) {
        ++level.counts.back();
        continue;
      }
      last[n - 1] = token;
      if (n < order) last[n] = kDocumentBorder;  // longer n-grams start over
      level.tokens.push_back(token);
      level.counts.push_back(1);
      level.parents.push_back(
          n == 1 ? 0 : static_cast<uint32_t>(levels_[n - 2].size() - 1));
      if (n < order) {
        level.children.push_back(static_cast<uint32_t>(levels_[n].size()));
      }
    }
  }
  // The sentinel ends the list of the last context.
  for (int n = 1; n < order; ++n) {
    levels_[n - 1].children.push_back(static_cast<uint32_t>(levels_[n].size()));
  }
}

// Runs by length: the suffix of an n-gram of length n is found among the
// continuations of its parent's suffix, one level up.
void NgramCounts::LinkSuffixes() {
  std::vector<uint32_t> unigram(static_cast<size_t>(vocab_size_), 0);
  for (size_t i = 0; i < levels_[0].size(); ++i) {
    unigram[levels_[0].tokens[i]] = static_cast<uint32_t>(i);
  }
  for (size_t n = 2; n <= levels_.size(); ++n) {
    NgramLevel& level = levels_[n - 1];
    const NgramLevel& above = levels_[n - 2];
    level.suffixes.resize(level.size());
    for (size_t i = 0; i < level.size(); ++i) {
      if (n == 2) {
        level.suffixes[i] = unigram[level.tokens[i]];
        continue;
      }
      // Without its first token, the n-gram is a continuation of the parent's
      // suffix.
      const uint32_t context = above.suffixes[level.parents[i]];
      const NgramLevel& higher = levels_[n - 3];
      const auto first = above.tokens.begin() + higher.children[context];
      const auto end = above.tokens.begin() + higher.children[context + 1];
      level.suffixes[i] = static_cast<uint32_t>(
          std::lower_bound(first, end, level.tokens[i]) - above.tokens.begin());
    }
  }
}

void NgramCounts::CountLeftKinds(absl::Span<const TokenId> corpus) {
  for (NgramLevel& level : levels_) level.left_kinds.assign(level.size(), 0);
  // Every distinct n-gram w h adds one kind of left neighbour to h.
  for (size_t n = 2; n <= levels_.size(); ++n) {
    for (uint32_t suffix : levels_[n - 1].suffixes) {
      ++levels_[n - 2].left_kinds[suffix];
    }
  }
  // Each start of a document counts as one more kind of left neighbour: nothing
  // else ever stands before the first words of an answer.
  std::vector<uint32_t> unigram(static_cast<size_t>(vocab_size_), 0);
  for (size_t i = 0; i < levels_[0].size(); ++i) {
    unigram[levels_[0].tokens[i]] = static_cast<uint32_t>(i);
  }
  for (size_t i = 0; i < corpus.size(); ++i) {
    if (corpus[i] == kDocumentBorder) continue;
    if (i != 0 && corpus[i - 1] != kDocumentBorder) continue;
    uint32_t node = unigram[corpus[i]];
    for (size_t n = 1; n < levels_.size(); ++n) {
      ++levels_[n - 1].left_kinds[node];
      const TokenId next = At(corpus, i + n);
      if (next == kDocumentBorder) break;
      const auto& tokens = levels_[n].tokens;
      const auto& children = levels_[n - 1].children;
      node = static_cast<uint32_t>(
          std::lower_bound(tokens.begin() + children[node],
                           tokens.begin() + children[node + 1], next) -
          tokens.begin());
    }
  }
}

}  // namespace foretoken
