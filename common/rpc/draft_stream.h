// The server side of `Draft(stream DraftRequest) returns (stream
// DraftResponse)`, which every drafting service has.
//
// Each call is a callback reactor with one read and one write outstanding. Its
// messages drive one DraftSession, one after the other, where they are read; a
// round is answered before the next one is read. Whatever ends the call
// (half-close, cancel, disconnect, deadline, an error, EndAll) closes its
// session at once.
//
// Statuses: INVALID_ARGUMENT by field, FAILED_PRECONDITION for a message out of
// order, a stale or repeated round, or another tokenizer's tokens;
// RESOURCE_EXHAUSTED with a retry hint over max_streams; UNAVAILABLE for calls
// and sessions that begin while draining; DEADLINE_EXCEEDED for a call that
// says nothing. Thread-safe.
#ifndef FORETOKEN_COMMON_RPC_DRAFT_STREAM_H_
#define FORETOKEN_COMMON_RPC_DRAFT_STREAM_H_

#include <memory>
#include <string>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "common/drafting/draft_session.h"
#include "common/rpc/first_message.h"
#include "common/rpc/stream_options.h"
#include "foretoken/v1/drafting.pb.h"
#include "grpcpp/server_context.h"
#include "grpcpp/support/server_callback.h"

namespace foretoken::rpc {

struct DraftStreamOptions {
  std::string service;                // "trie_drafter", for messages and logs
  std::string tokenizer_fingerprint;  // raw SHA-256; empty: takes any
  StreamOptions streams;
};

// Told what happens on the streams, for metrics. Thread-safe, and quick.
class DraftStreamObserver {
 public:
  virtual ~DraftStreamObserver() = default;
  virtual void OnStreams(int open) = 0;
  virtual void OnAnswer(const DraftAnswer& answer) = 0;
  virtual void OnFailed(absl::StatusCode code) = 0;
};

class DraftStreams {
 public:
  using Reactor = grpc::ServerBidiReactor<v1::DraftRequest, v1::DraftResponse>;

  // All must outlive the object, and the object every call (the server's
  // shutdown ends them).
  DraftStreams(DraftStreamOptions options, DraftSessions& sessions,
               DraftStreamObserver& observer)
      : options_(std::move(options)),
        sessions_(sessions),
        observer_(observer) {}

  // One call: what the service's Draft method returns.
  Reactor* Start(grpc::CallbackServerContext* context);

  // As rpc::Servable has them.
  void BeginDrain();
  bool Idle() const;
  void EndAll();

 private:
  class Stream;

  absl::Status CheckNotDraining() const;
  absl::Status Admit(const std::shared_ptr<Stream>& stream);
  void Done(const std::shared_ptr<Stream>& stream);

  const DraftStreamOptions options_;
  DraftSessions& sessions_;
  DraftStreamObserver& observer_;

  mutable absl::Mutex mu_;
  absl::flat_hash_set<std::shared_ptr<Stream>> streams_ ABSL_GUARDED_BY(mu_);
  bool draining_ ABSL_GUARDED_BY(mu_) = false;
};

}  // namespace foretoken::rpc

#endif  // FORETOKEN_COMMON_RPC_DRAFT_STREAM_H_
