// TextCopy: guesses the draft model's next tokens where it repeats its text, by
// what followed the longest earlier occurrence of the text's end (prompt lookup
// decoding). A guess costs the draft model a row and saves it a pass if it is
// right; what is proposed to the target is decided by the draft model alone.
//
// How often the draft model agrees is learnt in the session, by the length of
// the match. Owned by one thread.
#ifndef FORETOKEN_SERVICES_DRAFT_WORKER_CORE_TEXT_COPY_H_
#define FORETOKEN_SERVICES_DRAFT_WORKER_CORE_TEXT_COPY_H_

#include <algorithm>
#include <array>
#include <cstddef>
#include <vector>

#include "absl/types/span.h"
#include "common/base/types.h"

namespace foretoken::draft_worker {

class TextCopy {
 public:
  // Longer matches count as this one.
  static constexpr int kMaxMatch = 32;
  // Only the end of a longer text is searched.
  static constexpr size_t kSearched = 8192;

  struct Guess {
    TokenId token = -1;
    int match = 0;  // tokens before it that occur together before, at least 1
  };

  // Replaces the text.
  void Begin(absl::Span<const TokenId> text) {
    const auto end = text.last(std::min(text.size(), kSearched));
    text_.assign(end.begin(), end.end());
  }
  // Up to `most` tokens that may follow the text and `path`, each if those
  // before it are right. The latest of equally long matches counts.
  std::vector<Guess> After(absl::Span<const TokenId> path, size_t most);

  // Chance that the draft model draws a token guessed by such a match.
  float Chance(int match) const;
  // Whether it did.
  void Note(int match, bool right);

 private:
  // Matches of up to 1, 2, 4, 8 and more tokens, and the chances of their
  // guesses before the session has shown its own.
  static constexpr std::array<int, 4> kBounds = {1, 2, 4, 8};
  static constexpr std::array<float, 5> kPriors = {0.15f, 0.35f, 0.6f, 0.8f,
                                                   0.95f};
  // The priors count as this many guesses.
  static constexpr float kPriorGuesses = 4.0f;
  // A text changes: at this many guesses, the earlier ones count half.
  static constexpr float kMemory = 64.0f;

  struct Class {
    float guesses = 0.0f;
    float right = 0.0f;
  };

  static size_t ClassOf(int match);

  std::vector<TokenId> text_;  // and for the time of a search the path
  std::array<Class, kPriors.size()> classes_{};
};

}  // namespace foretoken::draft_worker

#endif  // FORETOKEN_SERVICES_DRAFT_WORKER_CORE_TEXT_COPY_H_
