// SessionProtocol: one stream of Verify or Embed as a state machine, without
// gRPC.
//
//   new --OpenSession--> opening --> ready --Round--> busy --> ready ... ended
//
// Messages of the client and answers of the verifier go in, messages for the
// client and one final status come out. A session is opening while its
// constraint is compiled and its prompt is read. A stale or repeated round is
// dropped; anything else out of order ends the session with a status. A session
// whose last message had a finish reason ends by itself. Whatever ends it, the
// verifier's session is closed.
//
// Thread-compatible: the owner of the stream holds one lock around every call.
#ifndef FORETOKEN_SERVICES_VERIFIER_ADAPTERS_SESSION_PROTOCOL_H_
#define FORETOKEN_SERVICES_VERIFIER_ADAPTERS_SESSION_PROTOCOL_H_

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "common/speculation/verify_session.h"
#include "foretoken/v1/verifier.pb.h"

namespace foretoken::verifier {

class SessionProtocol {
 public:
  // Where messages go. Called inside the calls below.
  class Output {
   public:
    virtual ~Output() = default;
    virtual void Send(v1::VerifyResponse message) = 0;
    virtual void End(const absl::Status& status) = 0;  // once, last
  };

  enum class Method { kVerify, kEmbed };

  // `sessions` and `output` must outlive the object. `retry_after` is the hint
  // that comes with a RESOURCE_EXHAUSTED that has none.
  SessionProtocol(Method method, VerifySessions& sessions,
                  absl::Duration retry_after, Output& output)
      : method_(method),
        sessions_(sessions),
        retry_after_(retry_after),
        output_(output) {}

  // From the client. `listener` brings the verifier's answers back to the
  // methods below.
  void OnMessage(const v1::VerifyRequest& message, absl::Time deadline,
                 const std::shared_ptr<VerifyListener>& listener);
  void OnHalfClose();  // OK, once nothing is under way

  // From the verifier.
  void OnOpened(const std::string& numerics_fingerprint);
  void OnPrefilled(const PrefillResult& result);
  void OnRound(const RoundResult& result);

  // The session failed, or the stream must not go on.
  void OnFailed(const absl::Status& status);

  bool ended() const { return state_ == State::kEnded; }
  const std::string& request_id() const { return request_id_; }

 private:
  enum class State { kNew, kOpening, kReady, kBusy, kEnded };

  absl::Status Open(const v1::OpenSession& message, absl::Time deadline,
                    const std::shared_ptr<VerifyListener>& listener);
  absl::Status Round(const v1::Round& message);
  // Sends an answer to `length` tokens, after which the client may ask again.
  void Answer(v1::VerifyResponse response, int64_t length, FinishReason finish);
  void End(absl::Status status);

  const Method method_;
  VerifySessions& sessions_;
  const absl::Duration retry_after_;
  Output& output_;
  State state_ = State::kNew;
  std::unique_ptr<VerifySession> session_;
  int64_t length_ = 0;      // committed, as last told to the client
  int64_t round_base_ = 0;  // of the round under way
  bool half_closed_ = false;
  bool want_row_tokens_ = false;
  bool want_logprobs_ = false;
  std::string request_id_;
};

}  // namespace foretoken::verifier

#endif  // FORETOKEN_SERVICES_VERIFIER_ADAPTERS_SESSION_PROTOCOL_H_
