// Any bytes as the messages of a Verify stream, any order of the engine's
// answers: never a crash, at most one session, closed when the stream has
// ended, and exactly one end.
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "common/base/check.h"
#include "services/verifier/adapters/session_protocol.h"

namespace foretoken::verifier {
namespace {

// Keeps what is asked; answers when the input says so.
class FakeEngine final : public VerifySessions {
 public:
  bool refuse = false;
  bool open = false;
  bool prefilling = false;
  bool in_round = false;
  int opened = 0;
  int64_t length = 0;
  int32_t nodes = 0;

  absl::StatusOr<std::unique_ptr<VerifySession>> Open(
      SessionRequest request, std::shared_ptr<VerifyListener>) override {
    FORETOKEN_CHECK(opened == 0);
    if (refuse) return absl::ResourceExhaustedError("full");
    ++opened;
    open = prefilling = true;
    length = static_cast<int64_t>(request.tokens.size());
    return std::make_unique<Session>(*this);
  }
  absl::Status Ask(const RoundRequest& request) {
    FORETOKEN_CHECK(open && !prefilling && !in_round);
    FORETOKEN_CHECK(request.length == length);
    FORETOKEN_CHECK(request.tree.draft_nodes() >= 0 &&
                    request.tree.draft_nodes() <= request.tree.size());
    if (refuse) return absl::ResourceExhaustedError("full");
    in_round = true;
    nodes = request.tree.size();
    return absl::OkStatus();
  }

 private:
  class Session final : public VerifySession {
   public:
    explicit Session(FakeEngine& engine) : engine_(engine) {}
    ~Session() override { engine_.open = false; }
    absl::Status Ask(RoundRequest request) override {
      return engine_.Ask(request);
    }

   private:
    FakeEngine& engine_;
  };
};

class Output final : public SessionProtocol::Output {
 public:
  int sent = 0;
  int ends = 0;
  void Send(v1::VerifyResponse message) override {
    FORETOKEN_CHECK(ends == 0 && message.ByteSizeLong() > 0);
    ++sent;
  }
  void End(const absl::Status&) override { ++ends; }
};

class Input {
 public:
  Input(const uint8_t* data, size_t size) : data_(data), size_(size) {}
  bool empty() const { return size_ == 0; }
  uint8_t Byte() {
    if (size_ == 0) return 0;
    --size_;
    return *data_++;
  }
  std::string Bytes(size_t count) {
    count = count < size_ ? count : size_;
    std::string bytes(reinterpret_cast<const char*>(data_), count);
    data_ += count;
    size_ -= count;
    return bytes;
  }

 private:
  const uint8_t* data_;
  size_t size_;
};

// A message that goes further than random bytes would.
v1::VerifyRequest Shaped(Input& in, const FakeEngine& engine) {
  v1::VerifyRequest message;
  if (in.Byte() % 2 == 0) {
    v1::OpenSession& open = *message.mutable_open();
    for (int i = in.Byte() % 8; i >= 0; --i) open.add_token_ids(in.Byte());
    open.set_prompt_length(in.Byte());
    open.set_max_length(in.Byte());
    open.set_want_row_tokens(in.Byte() % 2 == 0);
    if (in.Byte() % 8 == 0) open.set_numerics_fingerprint("other");
    return message;
  }
  v1::Round& round = *message.mutable_round();
  round.set_committed_length(engine.length + in.Byte() % 3 - 1);
  for (int i = in.Byte() % 80; i > 0; --i) {
    round.mutable_tree()->add_tokens(static_cast<int8_t>(in.Byte()));
    round.mutable_tree()->add_parents(static_cast<int8_t>(in.Byte() % 8) - 1);
  }
  if (in.Byte() % 4 == 0) round.mutable_tree()->add_probes(in.Byte());
  round.set_top_candidates(in.Byte() % 10);
  return message;
}

void Answer(Input& in, FakeEngine& engine, SessionProtocol& protocol) {
  if (!engine.open) return;
  const FinishReason finish =
      in.Byte() % 8 == 0 ? FinishReason::kStop : FinishReason::kNone;
  if (in.Byte() % 16 == 0) {
    engine.open = false;
    protocol.OnFailed(absl::InternalError("failed"));
  } else if (engine.prefilling) {
    engine.prefilling = false;
    protocol.OnOpened("ours");
    PrefillResult result;
    result.length = ++engine.length;
    result.tokens.resize(1);
    result.finish = finish;
    protocol.OnPrefilled(result);
  } else if (engine.in_round) {
    engine.in_round = false;
    RoundResult result;
    result.tokens.resize(1);
    result.row_tokens.resize(engine.nodes + 1);
    result.length = ++engine.length;
    result.finish = finish;
    protocol.OnRound(result);
  }
}

}  // namespace
}  // namespace foretoken::verifier

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace foretoken::verifier;  // NOLINT: this file is all of it
  Input in(data, size);
  FakeEngine engine;
  Output output;
  SessionProtocol protocol(SessionProtocol::Method::kVerify, engine,
                           absl::Milliseconds(100), output);
  while (!in.empty()) {
    engine.refuse = false;
    switch (in.Byte() % 6) {
      case 0: {
        foretoken::v1::VerifyRequest message;
        if (message.ParseFromString(in.Bytes(in.Byte()))) {
          protocol.OnMessage(message, absl::InfiniteFuture(), nullptr);
        }
        break;
      }
      case 1:
      case 2:
        engine.refuse = in.Byte() % 16 == 0;
        protocol.OnMessage(Shaped(in, engine), absl::InfiniteFuture(), nullptr);
        break;
      case 3:
      case 4:
        Answer(in, engine, protocol);
        break;
      default:
        if (in.Byte() % 8 == 0) protocol.OnHalfClose();
    }
    FORETOKEN_CHECK(output.ends == (protocol.ended() ? 1 : 0));
    FORETOKEN_CHECK(!protocol.ended() || !engine.open);
  }
  protocol.OnFailed(absl::CancelledError("the client is gone"));
  FORETOKEN_CHECK(output.ends == 1 && !engine.open);
  return 0;
}
