// The Lookup streams of a server.
//
// Each is a callback reactor with one read and one write outstanding. A look-up
// in memory is answered where its request is read; one that needs PostgreSQL
// goes to the version's row worker, which takes those of all streams together,
// while the stream reads on, up to a bound. Answers leave in the order of
// their requests. An error ends its stream, behind the answers before it.
// Thread-safe.
#ifndef FORETOKEN_SERVICES_CREST_ADAPTERS_LOOKUP_STREAMS_H_
#define FORETOKEN_SERVICES_CREST_ADAPTERS_LOOKUP_STREAMS_H_

#include <set>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/rpc/first_message.h"
#include "common/rpc/stream_options.h"
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
                CrestMetrics& metrics);
  ~LookupStreams();

  // ResourceExhausted over max_streams, Unavailable once draining,
  // DeadlineExceeded for a stream that asks nothing.
  Reactor* Start();

  // Every stream answers what it has taken and ends with Unavailable: look-ups
  // hold no state, so that callers ask elsewhere.
  void Drain();
  bool Idle() const;

 private:
  class Stream;

  absl::Status Admit(Stream* stream);
  void Leave(Stream* stream);

  const LookupOptions options_;
  const Datastores& datastores_;
  CrestMetrics& metrics_;

  mutable absl::Mutex mu_;
  std::set<Stream*> streams_ ABSL_GUARDED_BY(mu_);
  bool draining_ ABSL_GUARDED_BY(mu_) = false;
};

}  // namespace foretoken::crest

#endif  // FORETOKEN_SERVICES_CREST_ADAPTERS_LOOKUP_STREAMS_H_
