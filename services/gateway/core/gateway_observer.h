// Observes the gateway's requests, for metrics. Must be thread-safe and fast.
#ifndef FORETOKEN_SERVICES_GATEWAY_CORE_GATEWAY_OBSERVER_H_
#define FORETOKEN_SERVICES_GATEWAY_CORE_GATEWAY_OBSERVER_H_

#include <array>
#include <cstddef>

#include "absl/time/time.h"

namespace foretoken::gateway {

enum class Route {
  kCompletions,
  kChat,
  kResponses,
  kMessages,
  kCountTokens,
  kInfill,
  kEmbeddings,
  kModels,
  kTokenize,
  kDetokenize,
  kHealth,
  kPage,
  kOther,  // paths that do not exist
};
inline constexpr std::array kRouteNames = {
    "completions", "chat",       "responses", "messages", "count_tokens",
    "infill",      "embeddings", "models",    "tokenize", "detokenize",
    "health",      "page",       "other"};

class GatewayObserver {
 public:
  virtual ~GatewayObserver() = default;
  virtual void OnRequest() {}
  // `status`: of HTTP; kClientGone for a client that went away.
  virtual void OnEnd(Route, int /*status*/, absl::Duration /*latency*/) {}
  virtual void OnDelta() {}
  // A stream waits for its client to read.
  virtual void OnPause() {}
};

// One request in the observer's eyes, from its construction to End. Owned by
// one thread at a time.
class ObservedRequest {
 public:
  // `observer` must outlive this object.
  ObservedRequest(GatewayObserver& observer, Route route, absl::Time start)
      : observer_(observer), route_(route), start_(start) {
    observer_.OnRequest();
  }
  ObservedRequest(const ObservedRequest&) = delete;
  ObservedRequest& operator=(const ObservedRequest&) = delete;

  // Counts once, however often it is called.
  void End(int status, absl::Time now) {
    if (ended_) return;
    ended_ = true;
    observer_.OnEnd(route_, status, now - start_);
  }
  GatewayObserver& observer() const { return observer_; }

 private:
  GatewayObserver& observer_;
  const Route route_;
  const absl::Time start_;
  bool ended_ = false;
};

}  // namespace foretoken::gateway

#endif  // FORETOKEN_SERVICES_GATEWAY_CORE_GATEWAY_OBSERVER_H_
