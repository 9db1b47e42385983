// What every pass is compared with: one token at a time.
#ifndef FORETOKEN_TESTS_UNIT_INFER_ONE_BY_ONE_H_
#define FORETOKEN_TESTS_UNIT_INFER_ONE_BY_ONE_H_

#include <map>
#include <vector>

#include "common/infer/backend.h"
#include "gtest/gtest.h"
#include "tests/support/status_matchers.h"
#include "tests/unit/infer/tiny_backend.h"

namespace foretoken::testing {

// The logits after the last of `path`, decoded one token at a time by a fresh
// session of its own that shares nothing. Remembers every prefix it has seen.
class OneByOne {
 public:
  explicit OneByOne(Backend& backend) : backend_(backend) {}

  const Bits& Logits(const std::vector<TokenId>& path) {
    const auto found = known_.find(path);
    if (found != known_.end()) return found->second;
    const auto opened = backend_.Open("", path);
    EXPECT_THAT(opened, IsOk());
    std::vector<TokenId> prefix;
    for (const TokenId token : path) {
      prefix.push_back(token);
      PassSession pass;
      pass.session = opened->session;
      const std::vector<TokenId> tokens = {token};
      const std::vector<int32_t> parents = {kRootParent};
      pass.tokens = tokens;
      pass.parents = parents;
      PassResult result;
      EXPECT_THAT(backend_.Forward({pass}, result), IsOk());
      if (known_.find(prefix) == known_.end()) {
        known_[prefix] = RowLogits(backend_, opened->session, 0);
      }
      EXPECT_THAT(backend_.Commit(opened->session, {0}), IsOk());
    }
    EXPECT_THAT(backend_.Close(opened->session), IsOk());
    return known_[path];
  }

 private:
  Backend& backend_;
  std::map<std::vector<TokenId>, Bits> known_;
};

}  // namespace foretoken::testing

#endif  // FORETOKEN_TESTS_UNIT_INFER_ONE_BY_ONE_H_
