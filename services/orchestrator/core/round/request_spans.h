// RequestSpans: the spans of one request: the request itself and, below it, its
// time in the queue, its prefill and each round.
//
// Thread-compatible.
#ifndef FORETOKEN_SERVICES_ORCHESTRATOR_CORE_ROUND_REQUEST_SPANS_H_
#define FORETOKEN_SERVICES_ORCHESTRATOR_CORE_ROUND_REQUEST_SPANS_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "common/generation/generation.h"
#include "common/tracing/span.h"
#include "services/orchestrator/core/round/decode_loop.h"

namespace foretoken::orchestrator {

class RequestSpans {
 public:
  // Spans of rounds; later rounds are only counted, because a request may have
  // hundreds of thousands. A trace takes less than 64 KiB.
  static constexpr int64_t kMaxRounds = 64;

  // Null if the caller does not record its trace, or sent no valid header.
  // `sink` must outlive the trace.
  static std::unique_ptr<RequestSpans> Create(const std::string& traceparent,
                                              SpanSink& sink,
                                              absl::Time arrived);

  // The header for services that work for this request.
  std::string traceparent() const { return own_.Header(); }

  void OnStart(absl::Time now);  // the request leaves the queue
  void OnPrefill(const GenerationSummary& summary, absl::Time now);
  void OnRound(const RoundReport& round, absl::Time now);
  // Once, last: gives the spans to the sink.
  void OnEnd(const std::string& request_id, const absl::Status& status,
             absl::Time now);

 private:
  RequestSpans(const TraceContext& caller, SpanSink& sink, absl::Time arrived);

  // Adds a child that lasted from the end of the one before until `now`.
  Span& Add(const char* name, absl::Time now);

  SpanSink& sink_;
  const SpanId parent_;
  const TraceContext own_;
  const absl::Time arrived_;
  absl::Time last_;  // end of the last child
  bool started_ = false;
  int64_t rounds_ = 0;
  std::vector<Span> children_;
};

}  // namespace foretoken::orchestrator

#endif  // FORETOKEN_SERVICES_ORCHESTRATOR_CORE_ROUND_REQUEST_SPANS_H_
