// RedisWarmStore: a WarmStore in Redis, behind one thread and a bounded queue.
//
// Lists per scope, newest record first: "foretoken:trie:1:{HASH}:o" (outputs),
// ":p" (phrases) and ":t" (texts of the scope's prior, if any are kept). HASH
// is a hash of the scope's name and the tokenizer. Every replica adds to them;
// each write cuts the list to its maximum and sets its expiry, in one step (a
// script). Records are checked on reading (warm_record.h).
//
// If Redis is absent, hangs or answers garbage, only the thread waits; it
// retries with back-off. Jobs that do not fit the queue in the meantime are
// dropped and counted. Thread-safe.
#ifndef FORETOKEN_SERVICES_TRIE_DRAFTER_ADAPTERS_REDIS_WARM_STORE_H_
#define FORETOKEN_SERVICES_TRIE_DRAFTER_ADAPTERS_REDIS_WARM_STORE_H_

#include <cstdint>
#include <deque>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "services/trie_drafter/adapters/redis_client.h"
#include "services/trie_drafter/core/warm_record.h"
#include "services/trie_drafter/core/warm_store.h"

namespace foretoken::trie_drafter {

struct RedisStoreOptions {
  RedisClientOptions client;
  absl::Duration expiry = absl::Hours(7 * 24);
  // Records of outputs, and as many of phrases; each has at most
  // kMaxRecordBytes.
  int32_t max_records = 128;
  int32_t max_texts = 0;  // records of texts; 0: none are read or written
  int32_t queue = 1024;   // maximum queued loads, and queued writes
  absl::Duration min_pause = absl::Milliseconds(100);  // between attempts
  absl::Duration max_pause = absl::Seconds(10);
  absl::Duration ping_interval = absl::Seconds(5);  // of an idle connection
  absl::Duration flush_timeout = absl::Seconds(2);  // at the end
  int32_t vocab_size = std::numeric_limits<int32_t>::max();
};

// Outcomes of loads and writes.
enum class WarmEvent {
  kLoaded,         // a scope with stored data
  kEmpty,          // a scope without
  kLoadFailed,     // a load was given up
  kRecordRefused,  // a stored record failed validation
  kWritten,        // a record was written
  kWriteFailed,    // Redis did not take a record
  kDropped,        // a load or a record did not fit the queue
};

// Must be thread-safe and fast.
class WarmStoreObserver {
 public:
  virtual ~WarmStoreObserver() = default;
  virtual void OnUp(bool up) = 0;
  virtual void OnEvent(WarmEvent event) = 0;
};

class RedisWarmStore final : public WarmStore {
 public:
  // Returns at once; the thread connects. The observer must outlive the store.
  RedisWarmStore(RedisAddress address, const RedisStoreOptions& options,
                 WarmStoreObserver& observer);
  // Writes the queued records, for at most flush_timeout.
  ~RedisWarmStore() override;

  void Load(const ScopeKey& key, Loaded done) override;
  void Save(const ScopeKey& key, RecordKind kind,
            const std::vector<std::vector<TokenId>>& sequences) override;

 private:
  struct LoadJob {
    ScopeKey key;
    Loaded done;
    int attempts = 0;
  };
  struct WriteJob {
    std::string list;
    std::string record;
    int32_t max_records;
  };

  int32_t MaxRecords(RecordKind kind) const {
    return kind == RecordKind::kTexts ? options_.max_texts
                                      : options_.max_records;
  }
  void Main();
  // Takes the next job, if any; false to end the thread.
  bool Next(std::optional<LoadJob>& load, std::optional<WriteJob>& write)
      ABSL_LOCKS_EXCLUDED(mu_);
  void Connect();
  void Ping();
  void Do(LoadJob job);
  void Do(const WriteJob& job);
  absl::StatusOr<StoredScope> Read(const ScopeKey& key);
  absl::StatusOr<std::vector<std::vector<TokenId>>> ReadList(
      const ScopeKey& key, RecordKind kind);
  // Handles a failed command: disconnects unless Redis merely refused it.
  void Failed(const absl::Status& status);
  // Drops the connection until the next attempt.
  void Disconnect(const absl::Status& reason);
  void SetUp(bool up, const absl::Status& reason);

  const RedisAddress address_;
  const RedisStoreOptions options_;
  WarmStoreObserver& observer_;

  // Owned by the thread.
  std::unique_ptr<RedisClient> client_;
  absl::Duration pause_;
  absl::Time next_attempt_ = absl::InfinitePast();
  absl::Time last_use_ = absl::InfinitePast();
  std::optional<bool> told_up_;
  bool told_refusal_ = false;

  absl::Mutex mu_;
  std::deque<LoadJob> loads_ ABSL_GUARDED_BY(mu_);
  std::deque<WriteJob> writes_ ABSL_GUARDED_BY(mu_);
  bool stop_ ABSL_GUARDED_BY(mu_) = false;
  absl::Time stop_at_ ABSL_GUARDED_BY(mu_) = absl::InfiniteFuture();
  std::thread thread_;  // last: it uses all of the above
};

}  // namespace foretoken::trie_drafter

#endif  // FORETOKEN_SERVICES_TRIE_DRAFTER_ADAPTERS_REDIS_WARM_STORE_H_
