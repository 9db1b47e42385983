#include "common/engine/kv_session.h"

#include <utility>
#include <vector>

#include "common/engine/session_book.h"
#include "gtest/gtest.h"
#include "tests/support/fake_backend.h"
#include "tests/support/status_matchers.h"

namespace foretoken {
namespace {

using ::foretoken::testing::StatusIs;
using ::testing::HasSubstr;

testing::FakeBackend Backend(int64_t pages = 8) {
  testing::FakeBackendOptions options;
  options.pages = pages;
  return testing::FakeBackend(options);
}

// Runs the session's next `count` tokens of `text` as a chain and commits them.
void Append(testing::FakeBackend& backend, KvSession& kv,
            const std::vector<TokenId>& text, int32_t count) {
  std::vector<int32_t> parents, rows;
  for (int32_t i = 0; i < count; ++i) {
    parents.push_back(i - 1);
    rows.push_back(i);
  }
  PassSession share = kv.Share();
  share.tokens = absl::MakeConstSpan(text).subspan(kv.length(), count);
  share.parents = parents;
  PassResult result;
  FORETOKEN_ASSERT_OK(backend.Forward({share}, result));
  FORETOKEN_ASSERT_OK(kv.Commit(rows, text));
}

TEST(KvSessionTest, KeepsKvAndSamplingInStep) {
  testing::FakeBackend backend = Backend();
  std::vector<TokenId> text(40, 7);
  KvSession kv;
  EXPECT_FALSE(kv.is_open());
  FORETOKEN_ASSERT_OK(kv.Open(backend, "scope", text, 40, {}, 40));
  EXPECT_EQ(kv.length(), 0);
  Append(backend, kv, text, 33);
  EXPECT_EQ(kv.length(), 33);
  EXPECT_EQ(kv.Share().sampling->length(), 33);
  kv.Close();
  EXPECT_FALSE(kv.is_open());
  EXPECT_EQ(backend.kv_usage().sessions, 0);
  // The full page is taken from the prefix cache.
  FORETOKEN_ASSERT_OK(kv.Open(backend, "scope", text, 40, {}, 40));
  EXPECT_EQ(kv.length(), 32);
  EXPECT_EQ(kv.Share().sampling->length(), 32);
}

TEST(KvSessionTest, DroppedTokensLeaveKvAndSamplingInStepAndTheirRoom) {
  testing::FakeBackend backend = Backend();
  const std::vector<TokenId> text(40, 7);
  KvSession kv;
  FORETOKEN_ASSERT_OK(kv.Open(backend, "", text, 50, {}, 30));
  Append(backend, kv, text, 40);
  // Beyond the room: a third page.
  const std::vector<TokenId> more(30, 9);
  std::vector<int32_t> parents, rows;
  for (int32_t i = 0; i < 30; ++i) {
    parents.push_back(i - 1);
    rows.push_back(i);
  }
  PassSession share = kv.Share();
  share.tokens = more;
  share.parents = parents;
  PassResult result;
  FORETOKEN_ASSERT_OK(backend.Forward({share}, result));
  FORETOKEN_ASSERT_OK(kv.Append(rows, more));
  EXPECT_EQ(kv.length(), 70);
  EXPECT_EQ(backend.kv_usage().pages_free, 5);

  FORETOKEN_ASSERT_OK(kv.DropLast(more));

  EXPECT_EQ(kv.length(), 40);
  EXPECT_EQ(kv.Share().sampling->length(), 40);
  EXPECT_EQ(kv.room(), 50);
  EXPECT_EQ(backend.kv_usage().pages_free, 6);
  // A page of its own that the next tokens do not need stays, too.
  FORETOKEN_ASSERT_OK(kv.DropLast(absl::MakeConstSpan(text).last(10)));
  EXPECT_EQ(kv.length(), 30);
  EXPECT_EQ(backend.kv_usage().pages_free, 6);
}

TEST(KvSessionTest, AnAppendWithoutPagesChangesNothing) {
  testing::FakeBackend backend = Backend(1);
  const std::vector<TokenId> text(32, 7);
  KvSession kv;
  FORETOKEN_ASSERT_OK(kv.Open(backend, "", text, 32, {}, 32));
  Append(backend, kv, text, 31);
  PassSession share = kv.Share();
  const std::vector<TokenId> tokens = {7, 8};
  const std::vector<int32_t> parents = {-1, 0};
  share.tokens = tokens;
  share.parents = parents;
  PassResult result;
  FORETOKEN_ASSERT_OK(backend.Forward({share}, result));
  EXPECT_THAT(kv.Append({0, 1}, tokens),
              StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("")));
  EXPECT_EQ(kv.length(), 31);
  FORETOKEN_ASSERT_OK(kv.Append({0}, absl::MakeConstSpan(tokens).first(1)));
  EXPECT_EQ(kv.length(), 32);
}

TEST(KvSessionTest, AnOpenWithoutRoomChangesNothing) {
  testing::FakeBackend backend = Backend(2);
  KvSession kv;
  EXPECT_THAT(kv.Open(backend, "", std::vector<TokenId>(65, 1), 65, {}, 65),
              StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("")));
  EXPECT_FALSE(kv.is_open());
  EXPECT_EQ(backend.kv_usage().sessions, 0);
  EXPECT_EQ(backend.kv_usage().pages_free, 2);
}

TEST(KvSessionTest, MovesAndClosesOnDestruction) {
  testing::FakeBackend backend = Backend();
  {
    KvSession kv;
    FORETOKEN_ASSERT_OK(kv.Open(backend, "", {{1, 2}}, 2, {}, 2));
    const KvSession moved = std::move(kv);
    EXPECT_TRUE(moved.is_open());
    EXPECT_EQ(backend.kv_usage().sessions, 1);
  }
  EXPECT_EQ(backend.kv_usage().sessions, 0);
}

TEST(SessionBookTest, IdsRiseAndAreNeverReused) {
  struct Entry {
    SessionId id = -1;
    int value = 0;
  };
  SessionBook<Entry> book(2);
  const SessionId first = book.Add({-1, 10}).id;
  const SessionId second = book.Add({-1, 20}).id;
  EXPECT_GT(second, first);
  EXPECT_THAT(book.CheckRoom(),
              StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("2")));
  EXPECT_EQ((*book.Find(second))->value, 20);
  std::vector<SessionFailure> failures;
  book.Fail(second, absl::InternalError("bad"), failures);
  EXPECT_EQ(failures.at(0).session, second);
  FORETOKEN_EXPECT_OK(book.CheckRoom());
  EXPECT_GT(book.Add({-1, 30}).id, second);
  EXPECT_THAT(book.Find(second),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("no session")));
  EXPECT_THAT(book.Remove(second),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("no session")));
}

}  // namespace
}  // namespace foretoken
