// Connections to a real PostgreSQL that break, hang or never come about.
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/integration/crest/pg_store_fixture.h"
#include "tests/support/temp_dir.h"

namespace foretoken::crest {
namespace {

using ::foretoken::testing::CrestSample;
using ::foretoken::testing::MakeCrestSample;
using ::foretoken::testing::StatusIs;
using ::testing::_;
using ::testing::HasSubstr;

class PgConnectionsTest : public PgStoreFixture {};

absl::StatusOr<std::unique_ptr<RowFetcher>> OpenFetcher(
    const std::string& url, const std::string& name, absl::Duration timeout,
    const FetchOptions& options) {
  auto store = PgStore::Connect(url, absl::Seconds(60));
  if (!store.ok()) return store.status();
  auto version = (*store)->Current(name);
  if (!version.ok()) return version.status();
  store = PgStore::Connect(url, timeout);
  if (!store.ok()) return store.status();
  return PgStore::MakeFetcher(*std::move(store), version->version, options);
}

// libpq would take the tail of such a password for the host, and name it.
TEST(PgUrlTest, ABarePasswordIsRefusedUnnamed) {
  for (const char* url : {"postgresql://user:secret@tail@127.0.0.1:1/db",
                          "postgresql://user:secret/tail@127.0.0.1:1/db",
                          "postgresql://user:secret?tail@127.0.0.1:1/db",
                          "postgres://user@secret:tail@127.0.0.1:1/db"}) {
    const auto store = PgStore::Connect(url, absl::Seconds(5));
    EXPECT_THAT(store, StatusIs(absl::StatusCode::kInvalidArgument, _)) << url;
    EXPECT_THAT(store.status().ToString(),
                ::testing::Not(
                    ::testing::AnyOf(HasSubstr("tail"), HasSubstr("secret"))));
  }
  // Written as it must be, it gets as far as the address.
  EXPECT_THAT(PgStore::Connect("postgresql://user:secret%40tail@127.0.0.1:1/db",
                               absl::Seconds(5)),
              StatusIs(absl::StatusCode::kUnavailable, HasSubstr("127.0.0.1")));
}

TEST_F(PgConnectionsTest, LookupsConnectAgainAfterACut) {
  const CrestSample sample = MakeCrestSample(110, 200);
  FORETOKEN_ASSERT_OK(Publish("again", sample));
  const uint64_t key = HashNgram(sample.ngrams[0]);
  FetchOptions options;
  options.first_wait = absl::Milliseconds(1);
  options.longest_wait = absl::Milliseconds(20);
  auto fetcher =
      OpenFetcher(server_->url(), "again", absl::Seconds(60), options);
  FORETOKEN_ASSERT_OK(fetcher);
  FORETOKEN_ASSERT_OK((*fetcher)->Fetch({key}));
  server_->Kill();
  for (int i = 0; i < 5; ++i) {
    EXPECT_THAT((*fetcher)->Fetch({key}),
                StatusIs(absl::StatusCode::kUnavailable, _));
  }
  server_->Start();
  absl::StatusOr<std::vector<RowFetcher::Row>> rows;
  const absl::Time deadline = absl::Now() + absl::Minutes(2);
  do {
    rows = (*fetcher)->Fetch({key});
  } while (!rows.ok() && absl::Now() < deadline);
  FORETOKEN_ASSERT_OK(rows);
  ASSERT_EQ(rows->size(), 1u);
  EXPECT_EQ((*rows)[0].key, key);
}

TEST_F(PgConnectionsTest, ALostConnectionIsNotTriedAgainAtOnce) {
  const CrestSample sample = MakeCrestSample(111, 50);
  FORETOKEN_ASSERT_OK(Publish("wait", sample));
  FetchOptions options;
  options.first_wait = options.longest_wait = absl::Hours(1);
  auto fetcher =
      OpenFetcher(server_->url(), "wait", absl::Seconds(60), options);
  FORETOKEN_ASSERT_OK(fetcher);
  server_->CutConnections();
  EXPECT_THAT((*fetcher)->Fetch({1}),
              StatusIs(absl::StatusCode::kUnavailable, _));
  EXPECT_THAT((*fetcher)->Fetch({1}), StatusIs(absl::StatusCode::kUnavailable,
                                               HasSubstr("next attempt in")));
}

TEST_F(PgConnectionsTest, ALookupEndsAtItsDeadlineAndTheNextIsServed) {
  const CrestSample sample = MakeCrestSample(112, 50);
  FORETOKEN_ASSERT_OK(Publish("slow", sample));
  const uint64_t key = HashNgram(sample.ngrams[0]);
  FetchOptions options;
  options.first_wait = options.longest_wait = absl::Milliseconds(1);
  auto fetcher =
      OpenFetcher(server_->url(), "slow", absl::Milliseconds(500), options);
  FORETOKEN_ASSERT_OK(fetcher);
  auto locker = PgConnection::Open(server_->url(), absl::Seconds(60));
  FORETOKEN_ASSERT_OK(locker);
  const auto version = (*Connect())->Current("slow");
  FORETOKEN_ASSERT_OK(version);
  FORETOKEN_ASSERT_OK((*locker)->Exec("begin", "BEGIN"));
  FORETOKEN_ASSERT_OK(
      (*locker)->Exec("lock", "LOCK TABLE " + RowsTable(version->version)));
  EXPECT_THAT((*fetcher)->Fetch({key}),
              StatusIs(absl::StatusCode::kDeadlineExceeded,
                       HasSubstr("no answer in time")));
  FORETOKEN_ASSERT_OK((*locker)->Exec("commit", "COMMIT"));
  absl::Status status;
  const absl::Time deadline = absl::Now() + absl::Minutes(2);
  do {
    status = (*fetcher)->Fetch({key}).status();
  } while (!status.ok() && absl::Now() < deadline);
  FORETOKEN_EXPECT_OK(status);
}

// A server that takes connections and never says a word.
TEST_F(PgConnectionsTest, ConnectingEndsAtADeadlineOfMilliseconds) {
  testing::TempDir dir;
  const int listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  dir.File(".s.PGSQL.5432")
      .copy(address.sun_path, sizeof(address.sun_path) - 1);
  ASSERT_EQ(bind(listener, reinterpret_cast<const sockaddr*>(&address),
                 sizeof(address)),
            0);
  ASSERT_EQ(listen(listener, 64), 0);
  const absl::Time start = absl::Now();
  constexpr int kTrials = 30;
  for (int i = 0; i < kTrials; ++i) {
    EXPECT_THAT(PgStore::Connect("host=" + dir.path() + " user=postgres",
                                 absl::Milliseconds(10)),
                StatusIs(absl::StatusCode::kUnavailable,
                         HasSubstr("connect: no answer in time")));
  }
  // libpq's own least timeout, two seconds each, would take twice that.
  EXPECT_LT(absl::Now() - start, absl::Seconds(kTrials));
  close(listener);
}

TEST_F(PgConnectionsTest, AnUnreachableServerIsUnavailableWithoutThePassword) {
  const auto store = PgStore::Connect(
      "host=/nonexistent user=postgres password=hunter2", absl::Seconds(2));
  EXPECT_THAT(store, StatusIs(absl::StatusCode::kUnavailable,
                              ::testing::Not(HasSubstr("hunter2"))));
}

TEST_F(PgConnectionsTest, AUrlThatCannotBeParsedIsNotRepeated) {
  for (const char* url :
       {"postgresql://u:hunter2@[::1/db", "postgresql://u:hunter2@[::1]x/db",
        "postgress://u:hunter2@host/db"}) {
    EXPECT_THAT(PgStore::Connect(url, absl::Seconds(2)),
                StatusIs(absl::StatusCode::kInvalidArgument,
                         ::testing::Not(HasSubstr("hunter2"))));
  }
}

}  // namespace
}  // namespace foretoken::crest
