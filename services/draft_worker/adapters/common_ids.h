// Which ids a draft model should be able to draw first of all: the order in
// which `--draft-vocabulary` takes them.
//
// Pure functions; thread-safe.
#ifndef FORETOKEN_SERVICES_DRAFT_WORKER_ADAPTERS_COMMON_IDS_H_
#define FORETOKEN_SERVICES_DRAFT_WORKER_ADAPTERS_COMMON_IDS_H_

#include <algorithm>
#include <utility>
#include <vector>

#include "common/base/types.h"
#include "common/drafting/static_prior.h"
#include "common/text/vocabulary.h"

namespace foretoken::draft_worker {

// The control tokens, ascending. They are often the last ids of a vocabulary,
// and chats are full of them.
inline std::vector<TokenId> ControlIds(const Vocabulary& vocabulary) {
  std::vector<TokenId> ids;
  for (TokenId id = 0; id < vocabulary.size(); ++id) {
    if (vocabulary.kind(id) == TokenKind::kSpecial) ids.push_back(id);
  }
  return ids;
}

// The ids that the prior has seen, commonest first, equal ones ascending.
inline std::vector<TokenId> CommonestIds(const StaticPrior& prior) {
  std::vector<std::pair<float, TokenId>> found;
  for (TokenId id = 0; id < prior.vocab_size(); ++id) {
    const float probability = prior.Unigram(id);
    if (probability > 0) found.emplace_back(-probability, id);
  }
  std::sort(found.begin(), found.end());
  std::vector<TokenId> ids;
  ids.reserve(found.size());
  for (const auto& [negated, id] : found) ids.push_back(id);
  return ids;
}

}  // namespace foretoken::draft_worker

#endif  // FORETOKEN_SERVICES_DRAFT_WORKER_ADAPTERS_COMMON_IDS_H_
