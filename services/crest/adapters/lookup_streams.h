// The Lookup streams of a server.
//
// A look-up in memory is answered in the read callback; one that needs
// PostgreSQL goes to the version's row worker, which batches the look-ups of
// all streams, while the stream reads on, up to max_pending. Answers are sent
// in the order of the requests. An error ends its stream after the answers to
// earlier requests. Thread-safe.
#ifndef FORETOKEN_SERVICES_CREST_ADAPTERS_LOOKUP_STREAMS_H_
#define FORETOKEN_SERVICES_CREST_ADAPTERS_LOOKUP_STREAMS_H_

#include "common/rpc/stream_server.h"
#include "foretoken/v1/crest.grpc.pb.h"
#include "services/crest/adapters/crest_metrics.h"
#include "services/crest/core/datastores.h"

namespace foretoken::crest {

struct LookupOptions {
  rpc::StreamOptions streams;
  int32_t max_pending = 64;  // unanswered look-ups per stream
  int32_t max_tree_nodes = 64;
};

class LookupStreams {
 public:
  using Reactor =
      grpc::ServerBidiReactor<v1::CrestLookupRequest, v1::CrestLookupResponse>;

  // `datastores` and `metrics` must outlive every stream.
  LookupStreams(const LookupOptions& options, const Datastores& datastores,
                CrestMetrics& metrics)
      : options_(options),
        datastores_(datastores),
        metrics_(metrics),
        streams_("the crest service", options_.streams, &metrics) {}

  // Starts one call; the service's Lookup method returns the result.
  Reactor* Start(grpc::CallbackServerContext* context);

  // Streams answer the requests they have read and end with Unavailable:
  // look-ups are stateless, so callers retry elsewhere.
  void BeginDrain() { streams_.BeginDrain(); }
  bool Idle() const { return streams_.Idle(); }
  void EndAll() { streams_.EndAll(); }

 private:
  class Stream;

  const LookupOptions options_;
  const Datastores& datastores_;
  CrestMetrics& metrics_;
  rpc::StreamServer streams_;
};

}  // namespace foretoken::crest

#endif  // FORETOKEN_SERVICES_CREST_ADAPTERS_LOOKUP_STREAMS_H_
