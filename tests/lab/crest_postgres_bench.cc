// What a CREST look-up through PostgreSQL costs: the statement that the crest
// service sends, from the keys to their rows.
//
//   FORETOKEN_POSTGRES_URL=... bench_crest_postgres --name chat --keys FILE
//       --per-statement 10 --statements 1000 [--fill N] [--warm-up N]
//       [--evict FILE...]
//
// FILE of --keys holds keys of stored n-grams, one a line; statements ask for
// keys drawn from it at random, each once per statement. --fill first fetches N
// keys over a connection of its own; --warm-up sends N statements untimed over
// the measured one, whose plan depends on those before. --evict takes these
// files, those of the relation, out of the page cache before each timed
// statement. Prints one line of JSON: microseconds of every statement, rows,
// and how many pages of the files stayed resident.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "common/base/json.h"
#include "common/base/status_macros.h"
#include "services/crest/adapters/pg_store.h"

namespace foretoken {
namespace {

using Clock = std::chrono::steady_clock;

// As many as the server may take; the fill's statements are of this size.
constexpr int kMostKeys = 1000;
constexpr absl::Duration kTimeout = absl::Seconds(60);

struct Options {
  std::string name;
  std::string keys;
  std::vector<std::string> evict;
  int per_statement = 1;
  int statements = 1000;
  int fill = 0;
  int warm_up = 0;
  uint32_t seed = 1;
};

absl::StatusOr<std::vector<uint64_t>> ReadKeys(const std::string& path) {
  std::ifstream file(path);
  std::vector<uint64_t> keys;
  // PostgreSQL's bigint is signed, the key is the same 64 bits.
  for (int64_t key = 0; file >> key;) {
    keys.push_back(static_cast<uint64_t>(key));
  }
  if (!file.eof() || keys.size() < kMostKeys) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": want at least ", kMostKeys, " keys, one a line"));
  }
  return keys;
}

// Takes a file's clean pages out of the page cache and returns how many are in
// it afterwards.
absl::StatusOr<int64_t> Evict(const std::string& path) {
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return absl::ErrnoToStatus(errno, path);
  struct stat status {};
  int64_t resident = 0;
  bool good = fstat(fd, &status) == 0 &&
              posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED) == 0;
  if (good && status.st_size > 0) {
    const auto bytes = static_cast<size_t>(status.st_size);
    void* const map = mmap(nullptr, bytes, PROT_READ, MAP_SHARED, fd, 0);
    good = map != MAP_FAILED;
    if (good) {
      const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
      std::vector<unsigned char> pages((bytes + page - 1) / page);
      good = mincore(map, bytes, pages.data()) == 0;
      resident = std::count_if(pages.begin(), pages.end(),
                               [](unsigned char p) { return (p & 1) != 0; });
      munmap(map, bytes);
    }
  }
  const int error = errno;
  close(fd);
  if (!good) return absl::ErrnoToStatus(error, path);
  return resident;
}

// Distinct keys, at random.
class Draw {
 public:
  Draw(std::vector<uint64_t> keys, uint32_t seed)
      : keys_(std::move(keys)), random_(seed) {}

  absl::Span<const uint64_t> Next(int count) {
    for (int i = 0; i < count; ++i) {
      std::uniform_int_distribution<size_t> pick(i, keys_.size() - 1);
      std::swap(keys_[i], keys_[pick(random_)]);
    }
    return absl::MakeConstSpan(keys_).first(count);
  }

 private:
  std::vector<uint64_t> keys_;
  std::mt19937 random_;
};

absl::StatusOr<std::unique_ptr<crest::RowFetcher>> MakeFetcher(
    const std::string& name) {
  const char* url = std::getenv("FORETOKEN_POSTGRES_URL");
  if (url == nullptr) {
    return absl::FailedPreconditionError("FORETOKEN_POSTGRES_URL: not set");
  }
  FORETOKEN_ASSIGN_OR_RETURN(std::unique_ptr<crest::PgStore> store,
                             crest::PgStore::Connect(url, kTimeout));
  FORETOKEN_ASSIGN_OR_RETURN(const crest::PgVersion version,
                             store->Current(name));
  return crest::PgStore::MakeFetcher(std::move(store), version.version);
}

absl::Status Fill(const std::string& name, int keys, Draw& draw) {
  if (keys == 0) return absl::OkStatus();
  FORETOKEN_ASSIGN_OR_RETURN(const std::unique_ptr<crest::RowFetcher> fetcher,
                             MakeFetcher(name));
  for (int done = 0; done < keys; done += kMostKeys) {
    FORETOKEN_RETURN_IF_ERROR(fetcher->Fetch(draw.Next(kMostKeys)).status());
  }
  return absl::OkStatus();
}

absl::Status Run(const Options& options) {
  FORETOKEN_ASSIGN_OR_RETURN(std::vector<uint64_t> keys,
                             ReadKeys(options.keys));
  Draw draw(std::move(keys), options.seed);
  FORETOKEN_RETURN_IF_ERROR(Fill(options.name, options.fill, draw));
  FORETOKEN_ASSIGN_OR_RETURN(const std::unique_ptr<crest::RowFetcher> fetcher,
                             MakeFetcher(options.name));
  for (int i = 0; i < options.warm_up; ++i) {
    FORETOKEN_RETURN_IF_ERROR(
        fetcher->Fetch(draw.Next(options.per_statement)).status());
  }
  std::vector<double> microseconds;
  int64_t resident = 0;
  size_t rows = 0;
  for (int i = 0; i < options.statements; ++i) {
    const absl::Span<const uint64_t> wanted = draw.Next(options.per_statement);
    int64_t kept = 0;
    for (const std::string& path : options.evict) {
      FORETOKEN_ASSIGN_OR_RETURN(const int64_t pages, Evict(path));
      kept += pages;
    }
    resident = std::max(resident, kept);
    const Clock::time_point start = Clock::now();
    FORETOKEN_ASSIGN_OR_RETURN(const auto found, fetcher->Fetch(wanted));
    microseconds.push_back(
        std::chrono::duration<double, std::micro>(Clock::now() - start)
            .count());
    if (found.size() < wanted.size()) {
      return absl::InternalError(absl::StrCat(found.size(), " rows of ",
                                              wanted.size(), " stored keys"));
    }
    rows += found.size();
  }
  std::cout << Json{{"microseconds", microseconds},
                    {"rows", rows},
                    {"resident_pages", resident}}
                   .dump()
            << std::endl;
  return absl::OkStatus();
}

}  // namespace
}  // namespace foretoken

int main(int argc, char** argv) {
  foretoken::Options options;
  CLI::App app("Look-ups through PostgreSQL, statement by statement.");
  app.add_option("--name", options.name, "Published datastore")->required();
  app.add_option("--keys", options.keys, "Its keys, one a line")->required();
  app.add_option("--per-statement", options.per_statement, "Keys a statement")
      ->check(CLI::Range(1, foretoken::kMostKeys));
  app.add_option("--statements", options.statements, "Timed statements")
      ->check(CLI::Range(1, 1'000'000));
  app.add_option("--fill", options.fill, "Keys fetched before, untimed")
      ->check(CLI::Range(0, 100'000'000));
  app.add_option("--warm-up", options.warm_up, "Untimed statements")
      ->check(CLI::Range(0, 1'000'000));
  app.add_option("--seed", options.seed, "Seed of the keys' order");
  app.add_option("--evict", options.evict,
                 "Files that leave the page cache before each statement");
  CLI11_PARSE(app, argc, argv);
  const absl::Status status = foretoken::Run(options);
  if (status.ok()) return 0;
  std::cerr << status << std::endl;
  return 1;
}
