// A small recording whose outputs repeat their prompts and themselves, so that
// model-free drafts are right now and then.
#ifndef FORETOKEN_TESTS_UNIT_LAB_MODEL_REPLAY_MADE_UP_SET_H_
#define FORETOKEN_TESTS_UNIT_LAB_MODEL_REPLAY_MADE_UP_SET_H_

#include <random>
#include <string>
#include <utility>
#include <vector>

#include "common/drafting/recorded_set.h"

namespace foretoken::model_replay {

inline constexpr int32_t kVocabulary = 40;

inline RecordedSet MadeUpSet(int turns = 6) {
  std::mt19937 random(5);
  RecordedSet set;
  set.file = "made up";
  for (int i = 0; i < turns; ++i) {
    RecordedTurn turn{"q" + std::to_string(i / 2),
                      i % 3 == 0 ? "copy" : "free",
                      {},
                      {},
                      false};
    for (int t = 0; t < 20; ++t) {
      turn.prompt.push_back(static_cast<TokenId>(random() % kVocabulary));
    }
    while (turn.output.size() < 45) {
      const size_t from = random() % turn.prompt.size();
      const size_t most = turn.category == "copy" ? 9 : 4;
      for (size_t t = from; t < turn.prompt.size() && t < from + most; ++t) {
        turn.output.push_back(turn.prompt[t]);
      }
      turn.output.push_back(static_cast<TokenId>(random() % kVocabulary));
    }
    set.turns.push_back(std::move(turn));
  }
  return set;
}

}  // namespace foretoken::model_replay

#endif  // FORETOKEN_TESTS_UNIT_LAB_MODEL_REPLAY_MADE_UP_SET_H_
