// The Lookup streams of a server.
//
// A look-up in memory is answered where its request is read; one that needs
// PostgreSQL goes to the version's row worker, which batches those of all
// streams, while the stream reads on, up to max_pending. Answers leave in the
// order of their requests. An error ends its stream, behind the answers before
// it. Thread-safe.
#ifndef FORETOKEN_SERVICES_CREST_ADAPTERS_LOOKUP_STREAMS_H_
#define FORETOKEN_SERVICES_CREST_ADAPTERS_LOOKUP_STREAMS_H_

#include "common/rpc/stream_server.h"
#include "foretoken/v1/crest.grpc.pb.h"
#include "services/crest/adapters/crest_metrics.h"
#include "services/crest/core/datastores.h"

namespace foretoken::crest {

struct LookupOptions {
  rpc::StreamOptions streams;
  int32_t max_pending = 64;  // look-ups of one stream
  int32_t max_tree_nodes = 64;
};

class LookupStreams {
 public:
  using Reactor =
      grpc::ServerBidiReactor<v1::CrestLookupRequest, v1::CrestLookupResponse>;

  // What is borrowed must outlive every stream.
  LookupStreams(const LookupOptions& options, const Datastores& datastores,
                CrestMetrics& metrics)
      : options_(options),
        datastores_(datastores),
        metrics_(metrics),
        streams_("the crest service", options_.streams, &metrics) {}

  // Starts one call; the service's Lookup method returns the result.
  Reactor* Start(grpc::CallbackServerContext* context);

  // Every stream answers what it has read and ends with Unavailable: look-ups
  // hold no state, so callers retry elsewhere.
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
