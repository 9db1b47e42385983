#include "common/tracing/otlp_exporter.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "absl/time/clock.h"
#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/timed_wait.h"
#include "common/tracing/otlp_json.h"

namespace foretoken {

absl::StatusOr<net::HttpUrl> ParseOtlpEndpoint(absl::string_view url) {
  return net::HttpUrl::Parse(url, "4318", "/v1/traces");
}

OtlpExporter::OtlpExporter(OtlpOptions options, Count count)
    : options_(std::move(options)),
      count_(std::move(count)),
      thread_([this] { Main(); }) {}

OtlpExporter::~OtlpExporter() {
  {
    absl::MutexLock lock(&mu_);
    stop_ = true;
    send_by_ = MonotonicNow() + options_.send_timeout;
  }
  thread_.join();
}

void OtlpExporter::Take(std::vector<Span> spans) {
  int64_t dropped = 0;
  {
    absl::MutexLock lock(&mu_);
    const size_t room = options_.queue_spans - queue_.size();
    const size_t taken = std::min(room, spans.size());
    dropped = static_cast<int64_t>(spans.size() - taken);
    queue_.insert(queue_.end(), std::make_move_iterator(spans.begin()),
                  std::make_move_iterator(spans.begin() + taken));
  }
  if (dropped > 0) count_(false, dropped);
}

void OtlpExporter::Main() {
  const auto enough = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    return stop_ || queue_.size() >= options_.batch_spans;
  };
  while (true) {
    std::vector<Span> spans;
    bool last = false;
    {
      absl::MutexLock lock(&mu_);
      AwaitFor(mu_, absl::Condition(&enough), options_.batch_time);
      // Taken as a whole, so that Take is never held up by a request.
      spans.swap(queue_);
      last = stop_;
    }
    absl::Span<const Span> left = spans;
    while (!left.empty()) {
      const absl::Time deadline = NextDeadline();
      if (deadline <= MonotonicNow()) break;  // stopped, and out of time
      const size_t size = std::min(left.size(), options_.batch_spans);
      Send(left.first(size), deadline);
      left.remove_prefix(size);
      // Give up the rest after a lost batch: each would wait for the whole
      // timeout again.
      if (!reachable_) break;
    }
    if (!left.empty()) count_(false, static_cast<int64_t>(left.size()));
    if (last) return;
  }
}

absl::Time OtlpExporter::NextDeadline() {
  absl::MutexLock lock(&mu_);
  return std::min(send_by_, MonotonicNow() + options_.send_timeout);
}

void OtlpExporter::Send(absl::Span<const Span> batch, absl::Time deadline) {
  // Computed for every batch, so that dates follow corrections of the machine's
  // clock; spans are timed by the monotonic one.
  const absl::Duration to_wall = absl::Now() - MonotonicNow();
  const absl::Status sent = net::HttpPost(
      options_.endpoint, "application/json",
      OtlpJson(options_.service, batch, to_wall), deadline - MonotonicNow());
  count_(sent.ok(), static_cast<int64_t>(batch.size()));
  // Logged when it changes, not for every batch.
  if (sent.ok() == reachable_) return;
  reachable_ = sent.ok();
  if (reachable_) {
    FORETOKEN_LOG(kInfo, "spans reach the collector again");
  } else {
    FORETOKEN_LOG(kWarning, "spans are lost: ", sent.message());
  }
}

}  // namespace foretoken
