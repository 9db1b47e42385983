// OtlpExporter: sends spans to a collector over OTLP/HTTP with JSON.
//
// Spans wait in a bounded queue for a thread that posts them in batches. A
// collector that is slow, silent or gone costs spans, which are counted, and
// nothing else.
//
// Thread-safe.
#ifndef FORETOKEN_COMMON_TRACING_OTLP_EXPORTER_H_
#define FORETOKEN_COMMON_TRACING_OTLP_EXPORTER_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "common/net/http_client.h"
#include "common/tracing/span.h"

namespace foretoken {

// http://HOST[:PORT][/PATH]; port 4318 and path /v1/traces by default.
absl::StatusOr<net::HttpUrl> ParseOtlpEndpoint(absl::string_view url);

struct OtlpOptions {
  net::HttpUrl endpoint;
  std::string service;  // "foretoken-orchestrator"
  size_t queue_spans = 8192;
  size_t batch_spans = 512;
  // A batch is sent when it is full or this old.
  absl::Duration batch_time = absl::Seconds(1);
  absl::Duration send_timeout = absl::Seconds(5);
};

class OtlpExporter final : public SpanSink {
 public:
  // Counts spans by what became of them; called on any thread.
  using Count = std::function<void(bool exported, int64_t spans)>;

  OtlpExporter(OtlpOptions options, Count count);
  // Tries once to send what is queued, for `send_timeout` in all.
  ~OtlpExporter() override;

  // Drops the spans that do not fit into the queue.
  void Take(std::vector<Span> spans) override ABSL_LOCKS_EXCLUDED(mu_);

 private:
  void Main() ABSL_LOCKS_EXCLUDED(mu_);
  // Deadline of the batch to be sent now.
  absl::Time NextDeadline() ABSL_LOCKS_EXCLUDED(mu_);
  void Send(absl::Span<const Span> batch, absl::Time deadline);

  const OtlpOptions options_;
  const Count count_;
  bool reachable_ = true;  // the thread's; false after a batch was lost
  absl::Mutex mu_;
  std::vector<Span> queue_ ABSL_GUARDED_BY(mu_);
  bool stop_ ABSL_GUARDED_BY(mu_) = false;
  // After a stop, the end of all sending.
  absl::Time send_by_ ABSL_GUARDED_BY(mu_) = absl::InfiniteFuture();
  std::thread thread_;
};

}  // namespace foretoken

#endif  // FORETOKEN_COMMON_TRACING_OTLP_EXPORTER_H_
