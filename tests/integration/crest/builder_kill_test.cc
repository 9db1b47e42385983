// The builder, killed with SIGKILL at random points.
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "services/crest/adapters/pg_store.h"
#include "tests/support/private_postgres.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temp_dir.h"
#include "tests/support/tiny_tokenizer.h"

namespace foretoken::crest {
namespace {

using ::foretoken::testing::PrivatePostgres;
using ::foretoken::testing::TempDir;

constexpr int kKills = 50;

// Words at random, so that there is much to count.
std::string RandomText(std::mt19937& random, size_t bytes) {
  std::string text;
  while (text.size() < bytes) {
    const int length = 2 + static_cast<int>(random() % 5);
    for (int i = 0; i < length; ++i) {
      text.push_back(static_cast<char>('a' + random() % 6));
    }
    text.push_back(random() % 12 == 0 ? '\n' : ' ');
  }
  return text;
}

class BuilderKillTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!PrivatePostgres::Installed()) {
      GTEST_SKIP() << "PostgreSQL is not installed on this machine";
    }
    server_ = std::make_unique<PrivatePostgres>();
    setenv("FORETOKEN_POSTGRES_URL", server_->url().c_str(), 1);
    tokenizer_ = dir_.Write("tokenizer.json", testing::TinyTokenizerJson());
    std::mt19937 random(7);
    old_corpus_ = dir_.Write("old.txt", RandomText(random, 20'000));
    new_corpus_ = dir_.Write("new.txt", RandomText(random, 300'000));
  }

  pid_t StartBuild(const std::string& corpus) {
    const std::vector<std::string> words = {
        FORETOKEN_BINARY, "crest",       "build",
        "--corpus",       corpus,        "--name",
        "killed",         "--tokenizer", tokenizer_,
        "--max-n",        "4",           "--top",
        "3000",           "--work",      dir_.File("work")};
    std::vector<char*> argv;
    for (const std::string& word : words) {
      argv.push_back(const_cast<char*>(word.c_str()));
    }
    argv.push_back(nullptr);
    const pid_t child = fork();
    if (child == 0) {
      if (freopen("/dev/null", "w", stdout) == nullptr ||
          freopen(dir_.File("build.log").c_str(), "w", stderr) == nullptr) {
        _exit(126);
      }
      execv(argv[0], argv.data());
      _exit(127);
    }
    return child;
  }
  // Exit status, or -1 where a signal ended it.
  static int Wait(pid_t child) {
    int status = 0;
    waitpid(child, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }

  uint64_t ServedDigest() {
    auto store = PgStore::Connect(server_->url());
    EXPECT_THAT(store, testing::IsOk());
    const auto version = (*store)->Current("killed");
    EXPECT_THAT(version, testing::IsOk());
    const auto index = (*store)->LoadIndex(*version);
    EXPECT_THAT(index, testing::IsOk());
    return version->meta.record_digest;
  }

  TempDir dir_;
  std::unique_ptr<PrivatePostgres> server_;
  std::string tokenizer_;
  std::string old_corpus_;
  std::string new_corpus_;
};

TEST_F(BuilderKillTest, OldOrNewVersionServesAfterEveryKill) {
  ASSERT_EQ(Wait(StartBuild(old_corpus_)), 0);
  const uint64_t old_digest = ServedDigest();
  const absl::Time start = absl::Now();
  ASSERT_EQ(Wait(StartBuild(new_corpus_)), 0);
  const absl::Duration whole = absl::Now() - start;
  const uint64_t new_digest = ServedDigest();
  ASSERT_NE(old_digest, new_digest);

  const uint32_t seed = std::random_device()();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  std::uniform_real_distribution<double> point(0, 1.1);
  int killed = 0;
  int half_done = 0;
  for (int i = 0; i < kKills; ++i) {
    ASSERT_EQ(Wait(StartBuild(old_corpus_)), 0);
    ASSERT_EQ(ServedDigest(), old_digest);
    // Every other build starts where the killed one stopped.
    if (i % 2 == 0) std::filesystem::remove_all(dir_.File("work"));
    const pid_t child = StartBuild(new_corpus_);
    absl::SleepFor(whole * point(random));
    kill(child, SIGKILL);
    const bool finished = Wait(child) == 0;
    killed += !finished;
    const uint64_t served = ServedDigest();
    if (finished) {
      EXPECT_EQ(served, new_digest);
    } else {
      // A kill right after the commit is one of a finished publication.
      EXPECT_TRUE(served == old_digest || served == new_digest);
      half_done += std::filesystem::exists(dir_.File("work"));
    }
    EXPECT_EQ(server_->Sql("SELECT count(*) FROM pg_class WHERE relkind = 'r' "
                           "AND relname LIKE 'foretoken_crest_rows_%'"),
              server_->Sql("SELECT count(*) FROM foretoken_crest_versions"));
    ASSERT_EQ(Wait(StartBuild(new_corpus_)), 0) << "build " << i;
    ASSERT_EQ(ServedDigest(), new_digest);
  }
  EXPECT_GT(killed, kKills / 4);
  EXPECT_GT(half_done, 0);
}

}  // namespace
}  // namespace foretoken::crest
