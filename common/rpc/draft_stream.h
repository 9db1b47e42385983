// The server side of `Draft(stream DraftRequest) returns (stream
// DraftResponse)`, which every drafting service has.
//
// The messages of a call drive one DraftSession, in order, on the thread that
// read them; a round is answered before the next one is read. Any end of the
// call (half-close, cancel, disconnect, deadline, an error, EndAll) closes its
// session at once.
//
// Statuses, besides those of StreamServer: INVALID_ARGUMENT naming the field;
// FAILED_PRECONDITION for a message out of order, a stale or repeated round, or
// a different tokenizer; UNAVAILABLE for sessions opened while draining.
// Thread-safe.
#ifndef FORETOKEN_COMMON_RPC_DRAFT_STREAM_H_
#define FORETOKEN_COMMON_RPC_DRAFT_STREAM_H_

#include <string>
#include <utility>

#include "common/drafting/draft_session.h"
#include "common/rpc/stream_server.h"
#include "foretoken/v1/drafting.pb.h"

namespace foretoken::rpc {

struct DraftStreamOptions {
  std::string service;                // "trie_drafter", for messages and logs
  std::string tokenizer_fingerprint;  // raw SHA-256; empty: accepts any
  StreamOptions streams;
};

class DraftStreams {
 public:
  using Reactor = grpc::ServerBidiReactor<v1::DraftRequest, v1::DraftResponse>;

  // `sessions` are observed (ObservedDraftSessions): their failures are theirs
  // to count, and `observer` is told of all other errors of streams. Both must
  // outlive the object, the object every call.
  DraftStreams(DraftStreamOptions options, DraftSessions& sessions,
               StreamObserver& observer)
      : options_(std::move(options)),
        sessions_(sessions),
        streams_(options_.service, options_.streams, &observer) {}

  // Starts one call; the service's Draft method returns the result.
  Reactor* Start(grpc::CallbackServerContext* context);

  // See rpc::Servable.
  void BeginDrain() { streams_.BeginDrain(); }
  bool Idle() const { return streams_.Idle(); }
  void EndAll() { streams_.EndAll(); }

 private:
  class Stream;

  const DraftStreamOptions options_;
  DraftSessions& sessions_;
  StreamServer streams_;
};

}  // namespace foretoken::rpc

#endif  // FORETOKEN_COMMON_RPC_DRAFT_STREAM_H_
