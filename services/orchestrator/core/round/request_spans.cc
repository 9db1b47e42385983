#include "services/orchestrator/core/round/request_spans.h"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <utility>

namespace foretoken::orchestrator {

std::unique_ptr<RequestSpans> RequestSpans::Create(
    const std::string& traceparent, SpanSink& sink, absl::Time arrived) {
  const std::optional<TraceContext> caller = TraceContext::Parse(traceparent);
  // Only sampled traces: the caller records no others.
  if (!caller.has_value() || !caller->sampled) return nullptr;
  return std::unique_ptr<RequestSpans>(
      new RequestSpans(*caller, sink, arrived));
}

RequestSpans::RequestSpans(const TraceContext& caller, SpanSink& sink,
                           absl::Time arrived)
    : sink_(sink),
      parent_(caller.span),
      own_(caller.Child()),
      arrived_(arrived),
      last_(arrived) {}

void RequestSpans::OnStart(absl::Time now) {
  started_ = true;
  Add("queue", now);
}

void RequestSpans::OnPrefill(const GenerationSummary& summary, absl::Time now) {
  Add("prefill", now).attributes = {
      {"foretoken.prompt_tokens", summary.prompt_tokens},
      {"foretoken.reused_tokens", summary.reused_tokens}};
}

void RequestSpans::OnRound(const RoundReport& round, absl::Time now) {
  // A long output has thousands of rounds; the rest is counted in an attribute.
  if (++rounds_ > kMaxRounds) return;
  Add("round", now).attributes = {
      {"foretoken.length", round.length},
      {"foretoken.draft_nodes", int64_t{round.draft_nodes}},
      {"foretoken.accepted_tokens", round.accepted},
      {"foretoken.draft_us", absl::ToInt64Microseconds(round.draft_time)},
      {"foretoken.verify_us", absl::ToInt64Microseconds(round.verify_time)},
      {"foretoken.pass_us", absl::ToInt64Microseconds(round.stats.pass_time)}};
}

void RequestSpans::OnEnd(const std::string& request_id,
                         const absl::Status& status, absl::Time now) {
  // The request ended while it waited, so all of its time was queueing.
  if (!started_) Add("queue", now);
  Span request;
  request.trace = own_.trace;
  request.id = own_.span;
  request.parent = parent_;
  request.kind = Span::Kind::kServer;
  request.name = "foretoken.v1.Generation/Generate";
  request.start = arrived_;
  request.end = now;
  request.attributes = {{"foretoken.request_id", request_id},
                        {"foretoken.rounds", rounds_},
                        {"foretoken.rounds_without_span",
                         std::max<int64_t>(0, rounds_ - kMaxRounds)}};
  if (!status.ok()) {
    request.error = absl::StatusCodeToString(status.code());
  }
  children_.push_back(std::move(request));
  sink_.Take(std::move(children_));
}

Span& RequestSpans::Add(const char* name, absl::Time now) {
  Span& span = children_.emplace_back();
  span.trace = own_.trace;
  span.id = own_.Child().span;
  span.parent = own_.span;
  span.name = name;
  span.start = last_;
  span.end = now;
  last_ = now;
  return span;
}

}  // namespace foretoken::orchestrator
