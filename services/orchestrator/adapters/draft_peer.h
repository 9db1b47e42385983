// DraftPeer: one drafting service as all requests see it: where it is, whether
// it is worth asking, and the streams to it that are on their way out.
// Thread-safe.
#ifndef FORETOKEN_SERVICES_ORCHESTRATOR_ADAPTERS_DRAFT_PEER_H_
#define FORETOKEN_SERVICES_ORCHESTRATOR_ADAPTERS_DRAFT_PEER_H_

#include <deque>
#include <memory>
#include <string>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/metrics/registry.h"
#include "grpcpp/channel.h"
#include "services/orchestrator/adapters/bidi_call.h"
#include "services/orchestrator/core/circuit_breaker.h"

namespace foretoken::orchestrator {

struct DraftEndpoint {
  std::shared_ptr<grpc::Channel> channel;
  std::string token;  // bearer token, or ""
};

class DraftPeer {
 public:
  // `name` is the service's, for logs and metrics. `registry` must outlive the
  // object.
  DraftPeer(std::string name, DraftEndpoint endpoint,
            const CircuitBreakerOptions& breaker, metrics::Registry& registry);

  const std::string& name() const { return name_; }
  const std::shared_ptr<grpc::Channel>& channel() const {
    return endpoint_.channel;
  }
  const std::string& token() const { return endpoint_.token; }
  CircuitBreaker& breaker() { return breaker_; }
  LiveCalls& live_calls() { return live_calls_; }

  // Takes a call that has finished: it is cancelled where its service does not
  // end it in time, so that a hung one holds nothing.
  void LetEnd(std::shared_ptr<AnyCall> call) ABSL_LOCKS_EXCLUDED(mu_);

 private:
  struct Ending {
    absl::Time since;
    std::shared_ptr<AnyCall> call;
  };

  const std::string name_;
  const DraftEndpoint endpoint_;
  CircuitBreaker breaker_;
  LiveCalls live_calls_;  // goes before the channel
  absl::Mutex mu_;
  std::deque<Ending> ending_ ABSL_GUARDED_BY(mu_);
};

}  // namespace foretoken::orchestrator

#endif  // FORETOKEN_SERVICES_ORCHESTRATOR_ADAPTERS_DRAFT_PEER_H_
