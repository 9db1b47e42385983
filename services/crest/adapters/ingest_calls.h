// The Ingest calls of a server: one at a time, on a thread of its own that
// takes documents, builds and publishes. Thread-safe.
#ifndef FORETOKEN_SERVICES_CREST_ADAPTERS_INGEST_CALLS_H_
#define FORETOKEN_SERVICES_CREST_ADAPTERS_INGEST_CALLS_H_

#include <memory>

#include "absl/time/time.h"
#include "common/base/worker_pool.h"
#include "common/rpc/stream_server.h"
#include "common/text/tokenizer.h"
#include "foretoken/v1/crest.grpc.pb.h"
#include "services/crest/adapters/crest_metrics.h"
#include "services/crest/core/datastores.h"
#include "services/crest/core/ingest.h"

namespace foretoken::crest {

struct IngestOptions {
  bool enabled = false;
  IngestLimits limits;
  absl::Duration timeout = absl::Minutes(10);  // whatever the deadline
};

class IngestCalls {
 public:
  using Reactor = grpc::ServerReadReactor<v1::IngestRequest>;

  // `tokenizer` may be null if `enabled` is false. All references must
  // outlive every call.
  IngestCalls(const IngestOptions& options, const rpc::StreamOptions& streams,
              const Datastores& datastores,
              std::shared_ptr<const Tokenizer> tokenizer,
              CrestMetrics& metrics);
  ~IngestCalls();

  // Unimplemented unless enabled, ResourceExhausted while another runs,
  // Unavailable once draining.
  Reactor* Start(grpc::CallbackServerContext* context,
                 v1::IngestResponse* response);

  void BeginDrain() { streams_.BeginDrain(); }
  bool Idle() const { return streams_.Idle() && worker_.active() == 0; }
  // Cancels the running call, which then publishes nothing.
  void EndAll() { streams_.EndAll(); }

 private:
  class Call;

  const IngestOptions options_;
  const Datastores& datastores_;
  const std::shared_ptr<const Tokenizer> tokenizer_;
  CrestMetrics& metrics_;

  rpc::StreamServer streams_;
  WorkerPool worker_;  // last: its thread uses all of the above
};

}  // namespace foretoken::crest

#endif  // FORETOKEN_SERVICES_CREST_ADAPTERS_INGEST_CALLS_H_
