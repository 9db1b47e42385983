#include "services/trie_drafter/adapters/redis_warm_store.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/status_macros.h"
#include "common/base/timed_wait.h"

namespace foretoken::trie_drafter {
namespace {

// A load is tried this often: one that broke the connection twice would do so
// again.
constexpr int kMaxAttempts = 2;
// Records read by one command: 8 MiB at most.
constexpr int32_t kPage = 128;

// One script, which Redis runs atomically: a list is never longer than its
// maximum, and never without an expiry. KEYS: list. ARGV: record, last index
// kept, seconds to live.
constexpr char kWriteScript[] =
    "redis.call('LPUSH', KEYS[1], ARGV[1]) "
    "redis.call('LTRIM', KEYS[1], 0, ARGV[2]) "
    "redis.call('EXPIRE', KEYS[1], ARGV[3]) "
    "return 1";

std::string ListOf(const ScopeKey& key, RecordKind kind) {
  const char* suffix = "o";
  if (kind == RecordKind::kPhrases) suffix = "p";
  if (kind == RecordKind::kTexts) suffix = "t";
  // The braces are a hash tag of Redis Cluster: the lists of a scope share a
  // slot. The 1 is the format's version.
  return absl::StrCat("foretoken:trie:1:{", HexDigest(key.digest),
                      "}:", suffix);
}

}  // namespace

RedisWarmStore::RedisWarmStore(RedisAddress address,
                               const RedisStoreOptions& options,
                               WarmStoreObserver& observer)
    : address_(std::move(address)),
      options_(options),
      observer_(observer),
      pause_(options.min_pause),
      thread_([this] { Main(); }) {}

RedisWarmStore::~RedisWarmStore() {
  {
    absl::MutexLock lock(&mu_);
    stop_ = true;
    // Queued records are still written; loads have no reader any more.
    stop_at_ = MonotonicNow() + options_.flush_timeout;
    loads_.clear();
  }
  thread_.join();
}

void RedisWarmStore::Load(const ScopeKey& key, Loaded done) {
  absl::MutexLock lock(&mu_);
  if (loads_.size() >= static_cast<size_t>(options_.queue)) {
    observer_.OnEvent(WarmEvent::kDropped);
    return;
  }
  loads_.push_back({key, std::move(done)});
}

void RedisWarmStore::Save(const ScopeKey& key, RecordKind kind,
                          const std::vector<std::vector<TokenId>>& sequences) {
  const int32_t max_records = MaxRecords(kind);
  if (max_records == 0) return;
  // Checked twice: before encoding, which is the expensive part and needs no
  // lock, and again when the record is queued.
  const auto full = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    return writes_.size() >= static_cast<size_t>(options_.queue);
  };
  {
    absl::MutexLock lock(&mu_);
    if (full()) {
      observer_.OnEvent(WarmEvent::kDropped);
      return;
    }
  }
  // Queued in encoded form, which bounds the queue in bytes too.
  WriteJob job = {ListOf(key, kind), EncodeRecord(key, kind, sequences),
                  max_records};
  absl::MutexLock lock(&mu_);
  if (full()) {
    observer_.OnEvent(WarmEvent::kDropped);
    return;
  }
  writes_.push_back(std::move(job));
}

bool RedisWarmStore::Next(std::optional<LoadJob>& load,
                          std::optional<WriteJob>& write) {
  const bool connected = client_ != nullptr;
  const auto ready = [this, connected]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    return stop_ || (connected && !(loads_.empty() && writes_.empty()));
  };
  absl::MutexLock lock(&mu_);
  // Wakes for a job, a stop, the ping of an idle connection or the next attempt
  // to connect. Without a connection, jobs wait in their queues.
  const absl::Time next =
      connected ? last_use_ + options_.ping_interval : next_attempt_;
  AwaitFor(mu_, absl::Condition(&ready), next - MonotonicNow());
  if (stop_ && (!connected || writes_.empty() || MonotonicNow() > stop_at_)) {
    return false;
  }
  if (!connected) return true;
  // Loads first: requests run without their scope's data meanwhile.
  if (!loads_.empty()) {
    load = std::move(loads_.front());
    loads_.pop_front();
  } else if (!writes_.empty()) {
    write = std::move(writes_.front());
    writes_.pop_front();
  }
  return true;
}

void RedisWarmStore::Main() {
  while (true) {
    std::optional<LoadJob> load;
    std::optional<WriteJob> write;
    if (!Next(load, write)) return;
    if (client_ == nullptr) {
      Connect();
    } else if (load.has_value()) {
      Do(*std::move(load));
    } else if (write.has_value()) {
      Do(*write);
    } else {
      Ping();
    }
  }
}

void RedisWarmStore::Connect() {
  auto client = RedisClient::Connect(address_, options_.client);
  if (!client.ok()) return Disconnect(client.status());
  client_ = *std::move(client);
  last_use_ = MonotonicNow();
  SetUp(true, absl::OkStatus());
}

void RedisWarmStore::Ping() {
  const absl::Status status = client_->Run({"PING"}).status();
  last_use_ = MonotonicNow();
  if (status.ok()) {
    pause_ = options_.min_pause;
  } else {
    Failed(status);
  }
}

void RedisWarmStore::Do(LoadJob job) {
  absl::StatusOr<StoredScope> stored = Read(job.key);
  last_use_ = MonotonicNow();
  if (stored.ok()) {
    pause_ = options_.min_pause;
    const bool empty = stored->empty();
    observer_.OnEvent(empty ? WarmEvent::kEmpty : WarmEvent::kLoaded);
    if (!empty) job.done(*std::move(stored));
    return;
  }
  Failed(stored.status());
  // Aborted: Redis refused the command and would again. Any other error has
  // broken the connection: try once more after it is back.
  if (absl::IsAborted(stored.status()) || ++job.attempts == kMaxAttempts) {
    observer_.OnEvent(WarmEvent::kLoadFailed);
    return;
  }
  absl::MutexLock lock(&mu_);
  if (!stop_) loads_.push_front(std::move(job));
}

// Not retried: Redis may have run the script although its answer was lost, and
// a second run would store the record twice.
void RedisWarmStore::Do(const WriteJob& job) {
  const absl::Status status =
      client_
          ->Run({"EVAL", kWriteScript, "1", job.list, job.record,
                 absl::StrCat(job.max_records - 1),
                 absl::StrCat(absl::ToInt64Seconds(options_.expiry))})
          .status();
  last_use_ = MonotonicNow();
  if (status.ok()) pause_ = options_.min_pause;
  observer_.OnEvent(status.ok() ? WarmEvent::kWritten
                                : WarmEvent::kWriteFailed);
  if (!status.ok()) Failed(status);
}

absl::StatusOr<StoredScope> RedisWarmStore::Read(const ScopeKey& key) {
  StoredScope stored;
  FORETOKEN_ASSIGN_OR_RETURN(stored.outputs,
                             ReadList(key, RecordKind::kOutput));
  FORETOKEN_ASSIGN_OR_RETURN(stored.phrases,
                             ReadList(key, RecordKind::kPhrases));
  FORETOKEN_ASSIGN_OR_RETURN(stored.texts, ReadList(key, RecordKind::kTexts));
  return stored;
}

absl::StatusOr<std::vector<std::vector<TokenId>>> RedisWarmStore::ReadList(
    const ScopeKey& key, RecordKind kind) {
  // In pages, which bounds the time of a command. A record that is added in
  // between shifts the list, so that one may be read twice.
  std::vector<std::string> records;
  for (int32_t from = 0; from < MaxRecords(kind); from += kPage) {
    const int32_t end = std::min(from + kPage, MaxRecords(kind));
    FORETOKEN_ASSIGN_OR_RETURN(
        std::vector<std::string> page,
        client_->Run({"LRANGE", ListOf(key, kind), absl::StrCat(from),
                      absl::StrCat(end - 1)}));
    const bool last = page.size() < static_cast<size_t>(end - from);
    std::move(page.begin(), page.end(), std::back_inserter(records));
    if (last) break;
  }
  // Lists are newest first; histories and pools take the oldest first.
  std::vector<std::vector<TokenId>> oldest_first;
  for (auto record = records.rbegin(); record != records.rend(); ++record) {
    auto sequences = DecodeRecord(key, kind, *record, options_.vocab_size);
    if (!sequences.ok()) {
      observer_.OnEvent(WarmEvent::kRecordRefused);
      continue;
    }
    std::move(sequences->begin(), sequences->end(),
              std::back_inserter(oldest_first));
  }
  return oldest_first;
}

void RedisWarmStore::Failed(const absl::Status& status) {
  if (absl::IsAborted(status)) {
    // Logged once per connection: a read-only replica refuses every write.
    if (!told_refusal_) {
      FORETOKEN_LOG(kWarning, "warm start: ", status.ToString());
    }
    told_refusal_ = true;
  } else {
    Disconnect(status);
  }
}

void RedisWarmStore::Disconnect(const absl::Status& reason) {
  client_.reset();
  // pause_ falls back to the minimum only after a command succeeds: a server
  // that accepts connections and answers nothing keeps the back-off.
  next_attempt_ = MonotonicNow() + pause_;
  pause_ = std::min(pause_ * 2, options_.max_pause);
  SetUp(false, reason);
}

void RedisWarmStore::SetUp(bool up, const absl::Status& reason) {
  if (told_up_ == up) return;
  told_up_ = up;
  told_refusal_ = false;
  observer_.OnUp(up);
  if (up) {
    FORETOKEN_LOG(kInfo, "warm start: Redis ", address_.ToString(), " is up");
  } else {
    FORETOKEN_LOG(kWarning, "warm start: Redis ", address_.ToString(),
                  " is unavailable (", reason.ToString(),
                  "): going on without it");
  }
}

}  // namespace foretoken::trie_drafter
