#include "common/infer/kv_cache.h"

#include <map>
#include <random>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/status_matchers.h"

namespace foretoken {
namespace {

using ::foretoken::testing::IsOk;
using ::foretoken::testing::StatusIs;
using ::testing::ElementsAre;
using ::testing::ElementsAreArray;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// `count` tokens, all equal to `value` or counting up from it.
std::vector<TokenId> Same(int64_t count, TokenId value) {
  return std::vector<TokenId>(count, value);
}
std::vector<TokenId> Counting(int64_t count, TokenId first) {
  std::vector<TokenId> tokens(count);
  for (int64_t i = 0; i < count; ++i) tokens[i] = first + i;
  return tokens;
}

SessionId MustOpen(KvCache& cache, absl::string_view scope,
                   const std::vector<TokenId>& prompt, int64_t want_reused) {
  const auto opened = cache.Open(scope, prompt);
  EXPECT_THAT(opened, IsOk());
  EXPECT_EQ(opened->reused_tokens, want_reused);
  EXPECT_EQ(*cache.CommittedLength(opened->session), want_reused);
  return opened->session;
}

// Reserves for and appends what `prompt` has beyond the committed length.
void Fill(KvCache& cache, SessionId session,
          const std::vector<TokenId>& prompt) {
  const int64_t length = *cache.CommittedLength(session);
  FORETOKEN_ASSERT_OK(cache.Reserve(session, prompt.size()));
  FORETOKEN_ASSERT_OK(
      cache.Append(session, absl::MakeConstSpan(prompt).subspan(length)));
}

TEST(KvCacheTest, ReservesWholePagesAndGivesThemAllBack) {
  KvCache cache({.pages = 4, .max_sessions = 2});
  const SessionId session = MustOpen(cache, "", {}, 0);
  FORETOKEN_ASSERT_OK(cache.Reserve(session, 0));
  EXPECT_EQ(cache.usage().pages_free, 4);
  FORETOKEN_ASSERT_OK(cache.Reserve(session, 1));
  EXPECT_EQ(cache.usage().pages_free, 3);
  FORETOKEN_ASSERT_OK(cache.Reserve(session, 32));
  EXPECT_EQ(cache.usage().pages_free, 3);
  FORETOKEN_ASSERT_OK(cache.Reserve(session, 33));
  EXPECT_EQ(cache.usage().pages_free, 2);
  Fill(cache, session, Counting(70, 0));
  EXPECT_EQ(cache.PageTable(session)->size(), 3);
  FORETOKEN_ASSERT_OK(cache.Close(session));
  EXPECT_EQ(cache.usage().pages_free, 4);
  EXPECT_EQ(cache.usage().pages_cached, 0);  // no scope, nothing kept
  EXPECT_EQ(cache.usage().sessions, 0);
}

TEST(KvCacheTest, AFailedReservationChangesNothing) {
  KvCache cache({.pages = 3, .max_sessions = 2});
  const SessionId first = MustOpen(cache, "", {}, 0);
  const SessionId second = MustOpen(cache, "", {}, 0);
  FORETOKEN_ASSERT_OK(cache.Reserve(first, 64));
  EXPECT_THAT(cache.Reserve(second, 33),
              StatusIs(absl::StatusCode::kResourceExhausted,
                       HasSubstr("wants 2 more pages for 33 tokens, 1 of 3")));
  EXPECT_EQ(cache.usage().pages_free, 1);
  EXPECT_TRUE(cache.PageTable(second)->empty());
  FORETOKEN_EXPECT_OK(cache.Reserve(second, 32));
}

TEST(KvCacheTest, RefusesMoreSessionsThanItsLimitAndUnknownOnes) {
  KvCache cache({.pages = 3, .max_sessions = 1});
  const SessionId session = MustOpen(cache, "", {}, 0);
  EXPECT_THAT(cache.Open("", {}), StatusIs(absl::StatusCode::kResourceExhausted,
                                           HasSubstr("all 1 sessions")));
  FORETOKEN_ASSERT_OK(cache.Close(session));
  EXPECT_THAT(cache.Close(session),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("no session")));
  EXPECT_THAT(cache.Reserve(session, 1),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("no session")));
  EXPECT_THAT(cache.CommittedLength(session),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("no session")));
  EXPECT_EQ(cache.PageTable(session), nullptr);
}

TEST(KvCacheTest, ReusesWholePagesOfTheSameScopeAndLeavesTheLastToken) {
  KvCache cache({.pages = 16, .max_sessions = 4});
  const std::vector<TokenId> prompt = Counting(100, 0);
  const SessionId first = MustOpen(cache, "a", prompt, 0);
  Fill(cache, first, prompt);
  const std::vector<int32_t> pages = *cache.PageTable(first);

  const SessionId live = MustOpen(cache, "a", prompt, 96);
  EXPECT_THAT(*cache.PageTable(live),
              ElementsAre(pages[0], pages[1], pages[2]));
  MustOpen(cache, "b", prompt, 0);
  FORETOKEN_ASSERT_OK(cache.Close(first));
  FORETOKEN_ASSERT_OK(cache.Close(live));

  EXPECT_EQ(cache.usage().pages_cached, 3);
  EXPECT_EQ(cache.usage().pages_free, 16);
  // 96 tokens: the third page would leave nothing to compute.
  FORETOKEN_ASSERT_OK(cache.Close(MustOpen(cache, "a", Counting(96, 0), 64)));
  FORETOKEN_ASSERT_OK(cache.Close(MustOpen(cache, "a", Counting(97, 0), 96)));
  // One token differs in the second page.
  std::vector<TokenId> other = prompt;
  other[40] = 7;
  FORETOKEN_ASSERT_OK(cache.Close(MustOpen(cache, "a", other, 32)));
  EXPECT_EQ(cache.usage().pages_free, 16);
}

TEST(KvCacheTest, PagesInUseAreThoseThatOpenFindsAndSessionsList) {
  KvCache cache({.pages = 8, .max_sessions = 4});
  const std::vector<TokenId> text = Counting(96, 0);
  const SessionId longer = MustOpen(cache, "scope", text, 0);
  Fill(cache, longer, text);
  const SessionId shorter = MustOpen(cache, "scope", Counting(65, 0), 64);
  const std::vector<int32_t> pages = *cache.PageTable(longer);
  EXPECT_EQ(cache.SessionsOf(pages[1]), 2);
  EXPECT_EQ(cache.SessionsOf(pages[2]), 1);

  // At least the last token is left to compute.
  EXPECT_THAT(cache.PagesInUse("scope", text),
              ElementsAre(pages[0], pages[1]));
  EXPECT_THAT(cache.PagesInUse("scope", Counting(97, 0)),
              ElementsAreArray(pages));
  EXPECT_THAT(cache.PagesInUse("another", text), IsEmpty());
  EXPECT_THAT(cache.PagesInUse("scope", Counting(97, 1)), IsEmpty());
  FORETOKEN_ASSERT_OK(cache.Close(longer));
  // The third page is cached, but no session lists it.
  EXPECT_THAT(cache.PagesInUse("scope", Counting(97, 0)),
              ElementsAre(pages[0], pages[1]));
  FORETOKEN_ASSERT_OK(cache.Close(shorter));
  EXPECT_THAT(cache.PagesInUse("scope", text), IsEmpty());
  EXPECT_EQ(cache.SessionsOf(pages[0]), 0);
}

TEST(KvCacheTest, APageIsFoundOnlyBehindItsOwnPrefix) {
  KvCache cache({.pages = 16, .max_sessions = 4});
  std::vector<TokenId> prompt = Same(32, 1);
  const std::vector<TokenId> second = Same(32, 2);
  prompt.insert(prompt.end(), second.begin(), second.end());
  const SessionId session = MustOpen(cache, "a", prompt, 0);
  Fill(cache, session, prompt);
  // The tokens of page 1 at the start of a prompt are another page.
  MustOpen(cache, "a", Same(64, 2), 0);
}

TEST(KvCacheTest, WithoutPrefixReuseNothingIsShared) {
  KvCache cache({.pages = 16, .max_sessions = 4, .prefix_reuse = false});
  const SessionId session = MustOpen(cache, "a", Counting(64, 0), 0);
  Fill(cache, session, Counting(64, 0));
  FORETOKEN_ASSERT_OK(cache.Close(session));
  MustOpen(cache, "a", Counting(64, 0), 0);
  EXPECT_EQ(cache.usage().pages_cached, 0);
}

TEST(KvCacheTest, SessionsThatComputeTheSamePageEndUpSharingIt) {
  KvCache cache({.pages = 16, .max_sessions = 4});
  const SessionId first = MustOpen(cache, "a", {}, 0);
  const SessionId second = MustOpen(cache, "a", {}, 0);
  Fill(cache, first, Counting(70, 0));
  Fill(cache, second, Counting(70, 0));
  EXPECT_EQ(cache.PageTable(first)->at(0), cache.PageTable(second)->at(0));
  EXPECT_EQ(cache.PageTable(first)->at(1), cache.PageTable(second)->at(1));
  EXPECT_NE(cache.PageTable(first)->at(2), cache.PageTable(second)->at(2));
  EXPECT_EQ(cache.usage().pages_free, 16 - 4);
  FORETOKEN_ASSERT_OK(cache.Close(first));
  EXPECT_EQ(cache.usage().pages_free, 16 - 3);
  FORETOKEN_ASSERT_OK(cache.Close(second));
  EXPECT_EQ(cache.usage().pages_free, 16);
}

TEST(KvCacheTest, EvictsTheLeastRecentlyUsedPageAndTheTailOfAPrefixFirst) {
  KvCache cache({.pages = 4, .max_sessions = 4});
  const SessionId old_session = MustOpen(cache, "a", {}, 0);
  Fill(cache, old_session, Counting(64, 0));  // two pages
  FORETOKEN_ASSERT_OK(cache.Close(old_session));
  const SessionId newer = MustOpen(cache, "a", {}, 0);
  Fill(cache, newer, Same(32, 9));
  FORETOKEN_ASSERT_OK(cache.Close(newer));
  EXPECT_EQ(cache.usage().pages_cached, 3);

  const SessionId hungry = MustOpen(cache, "", {}, 0);
  FORETOKEN_ASSERT_OK(cache.Reserve(hungry, 64));  // one free, one evicted
  EXPECT_EQ(cache.usage().pages_cached, 2);
  FORETOKEN_ASSERT_OK(cache.Close(MustOpen(cache, "a", Counting(65, 0), 32)));
  FORETOKEN_ASSERT_OK(cache.Close(MustOpen(cache, "a", Same(33, 9), 32)));
  // Now the counting page is the older one.
  FORETOKEN_ASSERT_OK(cache.Reserve(hungry, 96));
  FORETOKEN_ASSERT_OK(cache.Close(MustOpen(cache, "a", Counting(65, 0), 0)));
  FORETOKEN_ASSERT_OK(cache.Close(MustOpen(cache, "a", Same(33, 9), 32)));
  EXPECT_EQ(cache.usage().pages_free, 1);
}

// For truncations that must copy no page.
absl::Status NoCopy(int32_t from, int32_t to, int32_t tokens) {
  ADD_FAILURE() << "copied " << tokens << " of page " << from << " to " << to;
  return absl::OkStatus();
}

TEST(KvCacheTest, ATruncatedPageThatNobodySharesLeavesTheIndex) {
  KvCache cache({.pages = 4, .max_sessions = 4});
  const SessionId session = MustOpen(cache, "a", {}, 0);
  Fill(cache, session, Counting(70, 0));
  FORETOKEN_ASSERT_OK(cache.Truncate(session, 40, NoCopy));
  EXPECT_EQ(*cache.CommittedLength(session), 40);
  EXPECT_EQ(cache.usage().pages_free, 2);
  FORETOKEN_ASSERT_OK(cache.Close(MustOpen(cache, "a", Counting(70, 0), 32)));
  // The page fills again, with other tokens behind the same prefix.
  std::vector<TokenId> other = Counting(40, 0);
  other.resize(64, 7);
  Fill(cache, session, other);
  FORETOKEN_ASSERT_OK(cache.Close(session));
  other.push_back(7);
  FORETOKEN_ASSERT_OK(cache.Close(MustOpen(cache, "a", other, 64)));
  EXPECT_EQ(cache.usage().pages_free, 4);
}

TEST(KvCacheTest, ATruncatedPageThatIsSharedIsCopied) {
  KvCache cache({.pages = 4, .max_sessions = 4});
  const SessionId mate = MustOpen(cache, "a", {}, 0);
  const SessionId session = MustOpen(cache, "a", {}, 0);
  Fill(cache, mate, Counting(64, 0));
  Fill(cache, session, Counting(64, 0));
  const std::vector<int32_t> shared = *cache.PageTable(mate);
  FORETOKEN_ASSERT_OK(cache.Truncate(
      session, 40, [&](int32_t from, int32_t to, int32_t tokens) {
        EXPECT_EQ(from, shared[1]);
        EXPECT_NE(to, shared[1]);
        EXPECT_EQ(tokens, 8);
        return absl::OkStatus();
      }));
  EXPECT_EQ(*cache.PageTable(mate), shared);
  EXPECT_EQ(cache.PageTable(session)->at(0), shared[0]);
  EXPECT_NE(cache.PageTable(session)->at(1), shared[1]);
  // The same tokens again: the same page again.
  Fill(cache, session, Counting(64, 0));
  EXPECT_EQ(*cache.PageTable(session), shared);
  EXPECT_EQ(cache.usage().pages_free, 2);
}

TEST(KvCacheTest, ATruncationThatFailsChangesNothing) {
  KvCache cache({.pages = 4, .max_sessions = 4});
  const SessionId mate = MustOpen(cache, "a", {}, 0);
  const SessionId session = MustOpen(cache, "a", {}, 0);
  Fill(cache, mate, Counting(64, 0));
  Fill(cache, session, Counting(64, 0));
  const SessionId hog = MustOpen(cache, "", {}, 0);
  FORETOKEN_ASSERT_OK(cache.Reserve(hog, 32));
  const std::vector<int32_t> pages = *cache.PageTable(session);
  EXPECT_THAT(cache.Truncate(session, 40,
                             [](int32_t, int32_t, int32_t) {
                               return absl::InternalError("no copy");
                             }),
              StatusIs(absl::StatusCode::kInternal, HasSubstr("no copy")));
  EXPECT_EQ(cache.usage().pages_free, 1);
  Fill(cache, session, Counting(70, 0));
  EXPECT_THAT(cache.Truncate(session, 40, NoCopy),
              StatusIs(absl::StatusCode::kResourceExhausted,
                       HasSubstr("truncated to 40 tokens, none of 4")));
  EXPECT_EQ(*cache.CommittedLength(session), 70);
  EXPECT_EQ(cache.PageTable(session)->size(), 3);
  EXPECT_EQ(cache.PageTable(session)->at(1), pages[1]);
  // Nothing stands in the way of a cut between pages.
  FORETOKEN_EXPECT_OK(cache.Truncate(session, 32, NoCopy));
  EXPECT_EQ(cache.usage().pages_free, 1);
}

// Random sessions over few prompts and few pages, checked against a plain
// model: a page's tokens never change while a session lists it.
TEST(KvCacheTest, RandomUseKeepsEverySessionsPagesItsOwn) {
  constexpr int64_t kPages = 12;
  KvCache cache({.pages = kPages, .max_sessions = 5});
  std::mt19937 random(5);
  std::map<int32_t, std::vector<TokenId>> content;  // page: tokens written
  std::map<SessionId, std::vector<TokenId>> sessions;
  const auto prompt_of = [&](int kind) {
    std::vector<TokenId> prompt = Same(64, 1);
    const std::vector<TokenId> rest = Same(64, kind);
    prompt.insert(prompt.end(), rest.begin(), rest.end());
    return prompt;
  };
  for (int step = 0; step < 4000; ++step) {
    const std::vector<TokenId> prompt = prompt_of(random() % 4);
    if (random() % 3 == 0) {
      const auto opened = cache.Open(random() % 4 == 0 ? "" : "a", prompt);
      if (!opened.ok()) continue;
      sessions[opened->session] = {prompt.begin(),
                                   prompt.begin() + opened->reused_tokens};
    } else if (!sessions.empty()) {
      auto it = sessions.begin();
      std::advance(it, random() % sessions.size());
      if (random() % 4 == 0) {
        FORETOKEN_ASSERT_OK(cache.Close(it->first));
        sessions.erase(it);
      } else if (random() % 4 == 0) {
        const size_t length = random() % (it->second.size() + 1);
        const absl::Status cut = cache.Truncate(
            it->first, length, [&](int32_t from, int32_t to, int32_t tokens) {
              content[to].assign(content[from].begin(),
                                 content[from].begin() + tokens);
              return absl::OkStatus();
            });
        if (cut.ok()) it->second.resize(length);
      } else {
        // Grow along a prompt that agrees with what is there.
        std::vector<TokenId> grown = it->second;
        const size_t want = std::min<size_t>(128, grown.size() + random() % 40);
        while (grown.size() < want) {
          grown.push_back(grown.size() < 64 ? 1
                          : grown.size() > 64
                              ? grown.back()
                              : static_cast<TokenId>(random() % 4));
        }
        if (cache.Reserve(it->first, grown.size()).ok()) {
          const std::vector<int32_t> pages = *cache.PageTable(it->first);
          for (size_t i = it->second.size(); i < grown.size(); ++i) {
            std::vector<TokenId>& page = content[pages[i / kKvPageTokens]];
            page.resize(kKvPageTokens);
            page[i % kKvPageTokens] = grown[i];
          }
          FORETOKEN_ASSERT_OK(cache.Append(
              it->first,
              absl::MakeConstSpan(grown).subspan(it->second.size())));
          it->second = grown;
        }
      }
    }
    for (const auto& [id, tokens] : sessions) {
      const std::vector<int32_t>& pages = *cache.PageTable(id);
      for (size_t i = 0; i < tokens.size(); ++i) {
        ASSERT_EQ(content[pages[i / kKvPageTokens]][i % kKvPageTokens],
                  tokens[i])
            << "step " << step << ", session " << id << ", position " << i;
      }
    }
    ASSERT_LE(cache.usage().pages_free, kPages);
    ASSERT_LE(cache.usage().pages_cached, cache.usage().pages_free);
  }
  for (const auto& [id, tokens] : sessions)
    FORETOKEN_ASSERT_OK(cache.Close(id));
  EXPECT_EQ(cache.usage().pages_free, kPages);
}

}  // namespace
}  // namespace foretoken
