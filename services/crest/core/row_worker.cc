#include "services/crest/core/row_worker.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/timed_wait.h"

namespace foretoken::crest {
namespace {

// Maps every store error to Unavailable: the look-up was not answered, and the
// caller may retry it later or elsewhere.
absl::Status AsUnavailable(const absl::Status& status) {
  return absl::UnavailableError(std::string(status.message()));
}

}  // namespace

RowWorker::RowWorker(const RowWorkerOptions& options, const CrestMeta& meta,
                     TokenTable table, std::unique_ptr<RowFetcher> first,
                     Connect connect)
    : options_(options),
      connect_(std::move(connect)),
      source_(meta, std::move(table), options.cache_bytes),
      backoff_(options.least_backoff) {
  source_.SetFetcher(std::move(first));
  thread_ = std::thread([this] { Main(); });
}

RowWorker::~RowWorker() {
  {
    absl::MutexLock lock(&mu_);
    stop_ = true;
  }
  thread_.join();
}

absl::Status RowWorker::Submit(std::vector<TokenId> context, Done done) {
  absl::MutexLock lock(&mu_);
  // Refusing while the store is down keeps the invariant of Main.
  if (!down_.ok()) return down_;
  if (static_cast<int>(waiting_.size()) >= options_.max_waiting) {
    return absl::ResourceExhaustedError(
        absl::StrCat(waiting_.size(), " look-ups wait: the queue is full"));
  }
  Item item;
  item.query.context = std::move(context);
  item.done = std::move(done);
  waiting_.push_back(std::move(item));
  return absl::OkStatus();
}

bool RowWorker::up() const {
  absl::MutexLock lock(&mu_);
  return down_.ok();
}

void RowWorker::SetListener(std::function<void()> changed) {
  absl::MutexLock lock(&mu_);
  listener_ = std::move(changed);
}

void RowWorker::Notify() {
  std::function<void()> listener;
  // A copy, called without mu_: the listener asks up(), which takes it.
  {
    absl::MutexLock lock(&mu_);
    listener = listener_;
  }
  if (listener) listener();
}

void RowWorker::Main() {
  const auto ready = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    return stop_ || !waiting_.empty() || !down_.ok();
  };
  while (true) {
    std::deque<Item> items;
    {
      absl::MutexLock lock(&mu_);
      mu_.Await(absl::Condition(&ready));
      // The waiting look-ups are answered first: their callers hold callbacks
      // that must run.
      if (stop_ && waiting_.empty()) return;
      const size_t count =
          std::min<size_t>(waiting_.size(), options_.max_batch);
      for (size_t i = 0; i < count; ++i) {
        items.push_back(std::move(waiting_.front()));
        waiting_.pop_front();
      }
    }
    // Invariant: nothing waits while the store is down. Answer empties the
    // queue when it takes the store down, and Submit refuses.
    if (items.empty()) {
      Reconnect();
    } else {
      Answer(std::move(items));
    }
  }
}

void RowWorker::Answer(std::deque<Item> items) {
  std::vector<BatchedSource::Query> queries;
  queries.reserve(items.size());
  for (Item& item : items) queries.push_back(std::move(item.query));
  const absl::Status status = source_.LookupMany(queries);
  std::deque<Item> refused;
  if (status.ok()) {
    backoff_ = options_.least_backoff;
  } else {
    // Drop the connection: after an error its state is unknown.
    source_.SetFetcher(nullptr);
    {
      absl::MutexLock lock(&mu_);
      down_ = AsUnavailable(status);
      // The look-ups queued meanwhile fail with this batch instead of waiting
      // for a reconnection of unknown length.
      refused.swap(waiting_);
    }
    Notify();
  }
  // Outside of mu_: a callback may submit the next look-up. Queries that the
  // cache answered keep their results.
  for (size_t i = 0; i < items.size(); ++i) {
    BatchedSource::Query& query = queries[i];
    if (!query.n.ok()) query.n = AsUnavailable(query.n.status());
    items[i].done(query);
  }
  for (Item& item : refused) {
    item.query.n = AsUnavailable(status);
    item.done(item.query);
  }
}

void RowWorker::Reconnect() {
  {
    absl::MutexLock lock(&mu_);
    if (AwaitFor(mu_, absl::Condition(&stop_), backoff_)) return;
  }
  absl::StatusOr<std::unique_ptr<RowFetcher>> fetcher = connect_();
  // Only an answer ends the back-off: a store may accept connections and hang.
  backoff_ = std::min(2 * backoff_, options_.most_backoff);
  const bool connected = fetcher.ok();
  {
    absl::MutexLock lock(&mu_);
    // Look-ups are taken again from here on; they are answered after SetFetcher
    // below, on this thread.
    down_ = connected ? absl::OkStatus() : AsUnavailable(fetcher.status());
  }
  if (!connected) return;
  source_.SetFetcher(*std::move(fetcher));
  Notify();
}

}  // namespace foretoken::crest
