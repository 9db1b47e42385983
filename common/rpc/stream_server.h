// StreamServer and its streams: the server side of streaming calls.
//
// A service has one StreamServer per streaming method; it admits, counts and
// drains the method's calls. Each call is a ServerStream: a callback reactor
// with at most one read and one write outstanding. It implements what is
// independent of the messages: lifetime, the time limits for the first message
// and for a client that takes no answer, bounded output, cancellation and a
// single end. A service derives its handler from BidiStream, ReadStream or
// WriteStream, takes messages in OnMessage and answers with Send and End:
//
//   class EchoStream final : public rpc::BidiStream<v1::Ping, v1::Pong> {
//    public:
//     explicit EchoStream(rpc::StreamServer& server) : BidiStream(server) {}
//    private:
//     void OnMessage(v1::Ping& ping) override { Send(Answer(ping)); }
//   };
//
//   return streams_.Start<EchoStream>(context);
//
// One lock per stream, mu_, covers the stream and its handler: all hooks are
// called with it held, and a handler takes it for its own events (an engine's
// answer, a worker's return).
//
// While draining, a stream that has sent messages and ends well finishes
// StreamOptions::linger later. After GOAWAY, gRPC closes a
// connection as soon as its last call has finished. If the client then sends
// anything, such as a WINDOW_UPDATE for what it reads, the kernel resets the
// connection and the client loses the messages that it has not read yet.
//
// Statuses: RESOURCE_EXHAUSTED over max_streams, UNAVAILABLE while draining and
// from EndAll, DEADLINE_EXCEEDED for a stream that sends nothing, CANCELLED for
// a client that disconnects or takes no message for stall_timeout.
#ifndef FORETOKEN_COMMON_RPC_STREAM_SERVER_H_
#define FORETOKEN_COMMON_RPC_STREAM_SERVER_H_

#include <cstddef>
#include <deque>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/rpc/status.h"
#include "common/rpc/stream_options.h"
#include "grpcpp/alarm.h"
#include "grpcpp/server_context.h"
#include "grpcpp/support/server_callback.h"

namespace foretoken::rpc {

class ServerStream;

// Receives the events of a StreamServer, for metrics. Thread-safe and quick.
class StreamObserver {
 public:
  virtual ~StreamObserver() = default;
  virtual void OnStreams(int open) = 0;
  // A stream ended with an error (other than by EndCounted), or was refused.
  virtual void OnFailed(absl::StatusCode code) = 0;
};

// Thread-safe.
class StreamServer {
 public:
  // `service` is the name in messages and logs: "the verifier". `observer` may
  // be null; it must outlive the object, and the object every call (the
  // shutdown of the gRPC server ends them).
  StreamServer(std::string service, const StreamOptions& options,
               StreamObserver* observer)
      : service_(std::move(service)),
        options_(options),
        observer_(observer),
        watcher_([this] { WatchStalls(); }) {}
  ~StreamServer();

  // Starts one call; the service's method returns the result. `arguments` are
  // passed to the stream's constructor, after this object.
  template <typename Stream, typename... Arguments>
  Stream* Start(grpc::CallbackServerContext* context,
                Arguments&&... arguments) {
    const auto stream =
        std::make_shared<Stream>(*this, std::forward<Arguments>(arguments)...);
    stream->Begin(*context);
    return stream.get();
  }

  // Admits a caller in this process as if it were a stream, or returns the
  // reason for the refusal; Release undoes the admission.
  absl::Status Admit();
  void Release();

  // See rpc::Servable. BeginDrain calls OnDrain of every stream.
  void BeginDrain();
  bool Idle() const;
  void EndAll();

  // Unavailable while draining.
  absl::Status CheckNotDraining() const;
  // `status`; a RESOURCE_EXHAUSTED gets a retry hint if it has none.
  absl::Status WithRetryHint(const absl::Status& status) const;
  const std::string& service() const { return service_; }
  const StreamOptions& options() const { return options_; }

 private:
  friend class ServerStream;

  absl::Status Enter(const std::shared_ptr<ServerStream>& stream);
  void Leave(const std::shared_ptr<ServerStream>& stream);
  absl::Status AdmitOne() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  absl::Status DrainStatus() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Count(int change) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  std::vector<std::shared_ptr<ServerStream>> Streams() const;
  // Ends streams whose clients take no messages.
  void WatchStalls();

  const std::string service_;
  const StreamOptions options_;
  StreamObserver* const observer_;

  mutable absl::Mutex mu_;  // acquired after a stream's mu_
  absl::flat_hash_set<std::shared_ptr<ServerStream>> streams_
      ABSL_GUARDED_BY(mu_);
  int open_ ABSL_GUARDED_BY(mu_) = 0;  // streams_ plus those of Admit
  bool draining_ ABSL_GUARDED_BY(mu_) = false;
  bool stop_ ABSL_GUARDED_BY(mu_) = false;
  std::thread watcher_;  // last: uses all of the above
};

// One call, independent of its message types. gRPC uses a reactor until OnDone,
// workers and engines may use a handler longer: the object owns itself until
// OnDone, and they share ownership.
class ServerStream : public std::enable_shared_from_this<ServerStream> {
 public:
  ServerStream(const ServerStream&) = delete;
  ServerStream& operator=(const ServerStream&) = delete;
  virtual ~ServerStream() = default;

 protected:
  explicit ServerStream(StreamServer& server) : server_(server) {}

  // Hooks, called with mu_ held. OnMessage and OnClosed may release mu_
  // meanwhile: no message is read before they return.

  // The call is admitted; no message has been read.
  virtual void OnStart() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {}
  // The client has half-closed. Ends the stream by default.
  virtual void OnHalfClose() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    End(absl::OkStatus());
  }
  // The service has begun to drain. Does nothing by default: handlers refuse
  // new work with CheckNotDraining.
  virtual void OnDrain() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {}
  // The admitted stream has ended, for any reason: cancel its running work.
  // Called once.
  virtual void OnClosed(const absl::Status& /*status*/)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {}
  // A message has been sent, or could not be.
  virtual void OnSent() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {}
  // Whether the next message may be read. By default reading stops while
  // kMaxUnsent answers are unsent. A handler calls Continue() when the result
  // may have changed.
  virtual bool CanRead() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    return unsent() < kMaxUnsent;
  }
  // Whether the ended stream may finish: not while work uses it. A handler
  // calls Continue() when the result may have changed.
  virtual bool CanFinish() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    return true;
  }
  // Name for the log line of an end with an error: "session ID". Empty: no log.
  virtual std::string LogName(const absl::Status& status) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) = 0;

  // Ends the stream; nothing more is read. If `status` is OK, unsent messages
  // are still delivered; an error drops them.
  void End(const absl::Status& status) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // As End, but unsent messages are delivered before an error, too.
  void EndAfterSends(const absl::Status& status)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // As End, with an error of the work that the stream stands for, which its
  // service has counted where that failed: StreamObserver is not told.
  void EndCounted(const absl::Status& status)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Starts the next write, the next read or the finish, if possible.
  void Continue() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  bool ended() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) { return ended_; }
  // Messages passed to Send whose write has not begun.
  virtual size_t unsent() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) { return 0; }
  // The deadline of the call.
  absl::Time deadline() const { return deadline_; }

  static constexpr size_t kMaxUnsent = 4;

  StreamServer& server_;
  mutable absl::Mutex mu_;

 private:
  friend class StreamServer;
  template <typename Reactor>
  friend class ReactorStream;
  template <typename Base, typename Request>
  friend class ReadSide;
  template <typename Base, typename Response>
  friend class WriteSide;

  // `counted`: as EndCounted.
  void EndWith(const absl::Status& status, bool counted)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Begin(grpc::CallbackServerContext& context);
  void Abort(const absl::Status& status);  // End, from outside
  void Drain();
  void OnSilence();
  // Called kChecksPerStall times in every stall_timeout, so that writing a
  // message need not read the clock.
  void CheckStall();
  // Holds the finish of a draining stream back while its client may still read.
  void Linger() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Hold(absl::Duration time) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void EndHold();

  // Operations of the reactor.
  virtual bool reads() const { return false; }
  virtual void StartNextRead() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {}
  virtual void StartNextWrite() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {}
  virtual void DropUnsent() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {}
  virtual void FinishCall() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) = 0;

  // Events of the reactor.
  void ReadDone(bool ok) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void ClientGone() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Done();

  grpc::CallbackServerContext* context_ = nullptr;  // until Done
  absl::Time deadline_;
  bool admitted_ = false;
  grpc::Alarm silence_;                 // armed until the first message
  std::unique_ptr<grpc::Alarm> hold_;   // set once
  std::shared_ptr<ServerStream> self_;  // until Done

  absl::Status final_ ABSL_GUARDED_BY(mu_);
  bool spoken_ ABSL_GUARDED_BY(mu_) = false;       // a message has arrived
  bool half_closed_ ABSL_GUARDED_BY(mu_) = false;  // no next message
  bool reading_ ABSL_GUARDED_BY(mu_) = false;      // or handling a message
  bool writing_ ABSL_GUARDED_BY(mu_) = false;
  uint64_t written_ ABSL_GUARDED_BY(mu_) = 0;         // messages
  uint64_t written_before_ ABSL_GUARDED_BY(mu_) = 0;  // at the last check
  int stalled_ ABSL_GUARDED_BY(mu_) = 0;  // checks in a row without progress
  bool ended_ ABSL_GUARDED_BY(mu_) = false;
  bool held_ ABSL_GUARDED_BY(mu_) = false;  // the finish is
  bool lingers_ ABSL_GUARDED_BY(mu_) = true;  // in a drain
  bool finished_ ABSL_GUARDED_BY(mu_) = false;
};

// Building blocks of the three kinds of streams.

template <typename Reactor>
class ReactorStream : public Reactor, public ServerStream {
 protected:
  using ServerStream::ServerStream;

 private:
  void OnCancel() final {
    absl::MutexLock lock(&mu_);
    ClientGone();
  }
  void OnDone() final { Done(); }
  void FinishCall() final { this->Finish(ToGrpcStatus(final_)); }
};

template <typename Base, typename Request>
class ReadSide : public Base {
 protected:
  using Base::Base;

  // Handles one message, which may be moved from. It stays valid until this
  // returns, and afterwards for as long as CanRead() stays false.
  virtual void OnMessage(Request& message)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(this->mu_) = 0;

 private:
  void OnReadDone(bool ok) final {
    absl::MutexLock lock(&this->mu_);
    this->ReadDone(ok);
    if (ok && !this->ended_) OnMessage(request_);
    // Only now: the handler uses the message until here.
    this->reading_ = false;
    this->Continue();
  }
  bool reads() const final { return true; }
  void StartNextRead() final { this->StartRead(&request_); }

  Request request_;
};

template <typename Base, typename Response>
class WriteSide : public Base {
 protected:
  using Base::Base;

  // Queues one message; ignored once the stream has ended. May leave an older
  // message in `message`, whose memory can be reused.
  void Send(Response&& message) ABSL_EXCLUSIVE_LOCKS_REQUIRED(this->mu_) {
    if (this->ended_) return;
    if (this->writing_) {
      unsent_bytes_ += message.ByteSizeLong();
      unsent_.push_back(std::move(message));
      return;
    }
    response_ = std::move(message);
    this->writing_ = true;
    this->StartWrite(&response_);
  }
  size_t unsent() const final { return unsent_.size(); }
  // Their size, serialized.
  size_t unsent_bytes() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(this->mu_) {
    return unsent_bytes_;
  }

 private:
  void OnWriteDone(bool ok) final {
    absl::MutexLock lock(&this->mu_);
    this->writing_ = false;
    ++this->written_;
    if (!ok) this->ClientGone();
    this->Continue();
    this->OnSent();
  }
  void StartNextWrite() final {
    response_ = std::move(unsent_.front());
    unsent_.pop_front();
    unsent_bytes_ -= response_.ByteSizeLong();
    this->StartWrite(&response_);
  }
  void DropUnsent() final {
    unsent_.clear();
    unsent_bytes_ = 0;
  }

  Response response_;  // being written
  std::deque<Response> unsent_;
  size_t unsent_bytes_ = 0;
};

template <typename Request, typename Response>
class BidiStream
    : public WriteSide<
          ReadSide<ReactorStream<grpc::ServerBidiReactor<Request, Response>>,
                   Request>,
          Response> {
 protected:
  using BidiStream::WriteSide::WriteSide;
};

template <typename Request>
class ReadStream
    : public ReadSide<ReactorStream<grpc::ServerReadReactor<Request>>,
                      Request> {
 protected:
  using ReadStream::ReadSide::ReadSide;
};

template <typename Response>
class WriteStream
    : public WriteSide<ReactorStream<grpc::ServerWriteReactor<Response>>,
                       Response> {
 protected:
  using WriteStream::WriteSide::WriteSide;
};

}  // namespace foretoken::rpc

#endif  // FORETOKEN_COMMON_RPC_STREAM_SERVER_H_
