// The thread that looks up n-grams in a store that is not in memory.
//
// Takes all waiting look-ups at once and answers them with one statement. If
// the store fails, the worker fails waiting and new look-ups at once until it
// has reconnected, on its own and with back-off: callers learn of an outage
// within one statement's timeout. Thread-safe.
#ifndef FORETOKEN_SERVICES_CREST_CORE_ROW_WORKER_H_
#define FORETOKEN_SERVICES_CREST_CORE_ROW_WORKER_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/base/types.h"
#include "common/drafting/crest/crest_meta.h"
#include "common/drafting/crest/crest_tree.h"
#include "services/crest/core/batched_source.h"

namespace foretoken::crest {

struct RowWorkerOptions {
  size_t cache_bytes = size_t{256} << 20;
  int max_waiting = 4096;  // queued look-ups
  int max_batch = 64;      // look-ups per statement
  absl::Duration least_backoff = absl::Milliseconds(50);
  absl::Duration most_backoff = absl::Seconds(2);
};

class RowWorker {
 public:
  // May block and may fail; each call returns a new connection.
  using Connect = std::function<absl::StatusOr<std::unique_ptr<RowFetcher>>()>;
  // Receives the answered look-up; errors are Unavailable. Called on the
  // worker's thread: must not block.
  using Done = std::function<void(const BatchedSource::Query& query)>;

  // `first`: the connection to begin with.
  RowWorker(const RowWorkerOptions& options, const CrestMeta& meta,
            TokenTable table, std::unique_ptr<RowFetcher> first,
            Connect connect);
  // Answers the waiting look-ups first.
  ~RowWorker();
  RowWorker(const RowWorker&) = delete;
  RowWorker& operator=(const RowWorker&) = delete;

  // OK: `done` will be called once. Otherwise never: Unavailable while the
  // store is down, ResourceExhausted if the queue is full.
  absl::Status Submit(std::vector<TokenId> context, Done done);

  bool up() const;

  // `changed` is called, by the worker's thread, whenever up() changes.
  void SetListener(std::function<void()> changed);

 private:
  struct Item {
    BatchedSource::Query query;
    Done done;
  };

  void Main();
  void Answer(std::deque<Item> items);
  // Waits until it is time to try again, then tries.
  void Reconnect();
  void Notify();

  const RowWorkerOptions options_;
  const Connect connect_;
  BatchedSource source_;    // owned by the thread
  absl::Duration backoff_;  // owned by the thread

  mutable absl::Mutex mu_;
  std::deque<Item> waiting_ ABSL_GUARDED_BY(mu_);
  absl::Status down_ ABSL_GUARDED_BY(mu_);  // OK: up
  std::function<void()> listener_ ABSL_GUARDED_BY(mu_);
  bool stop_ ABSL_GUARDED_BY(mu_) = false;

  std::thread thread_;  // last: it uses all of the above
};

}  // namespace foretoken::crest

#endif  // FORETOKEN_SERVICES_CREST_CORE_ROW_WORKER_H_
