// Any bytes as the messages of a Draft stream, into the trie drafter's
// sessions: never a crash, and every answer is a tree that fits the round.
//
// Input: messages, each behind two bytes of length.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "common/base/check.h"
#include "common/rpc/convert_draft.h"
#include "services/trie_drafter/core/trie_sessions.h"
#include "tests/support/draft_caller.h"

namespace foretoken::trie_drafter {
namespace {

class NullObserver final : public TrieObserver {
 public:
  void OnSessions(int64_t, int64_t) override {}
  void OnScopes(const ScopeTotals&) override {}
  void OnLookup(Lookup, bool) override {}
};

TrieOptions SmallOptions() {
  TrieOptions options;
  options.max_context_tokens = 4096;
  options.scopes.history_tokens = 1024;
  options.scopes.pool_phrases = 64;
  options.scopes.max_scopes = 4;
  return options;
}

void CheckAnswer(const DraftRound& round, const DraftAnswer& answer) {
  FORETOKEN_CHECK(answer.length == round.length);
  FORETOKEN_CHECK(answer.tree.size() <= std::max(round.max_nodes, 0));
  v1::DraftResponse wire;
  rpc::ToProto(answer, &wire);
  const auto back = rpc::FromProto(wire);
  FORETOKEN_CHECK(back.ok());
  FORETOKEN_CHECK(back->tree.tokens == answer.tree.tokens);
}

void Handle(const v1::DraftRequest& message, TrieSessions& sessions,
            std::unique_ptr<testing::DraftCaller>& session) {
  if (message.has_open()) {
    auto open = rpc::FromProto(message.open());
    if (!open.ok()) return;
    auto opened = testing::DraftCaller::Open(sessions, *std::move(open));
    if (opened.ok()) session = *std::move(opened);
  } else if (message.has_round() && session != nullptr) {
    const auto round = rpc::FromProto(message.round());
    if (!round.ok()) return;
    DraftAnswer answer;
    if (session->Round(*round, answer).ok()) {
      CheckAnswer(*round, answer);
    } else {
      session = nullptr;
    }
  }
}

void Run(const uint8_t* data, size_t size) {
  NullObserver observer;
  TrieSessions sessions(SmallOptions(), nullptr, nullptr, observer);
  std::unique_ptr<testing::DraftCaller> session;
  while (size >= 2) {
    const size_t length =
        std::min<size_t>(data[0] | (size_t{data[1]} << 8), size - 2);
    v1::DraftRequest message;
    if (message.ParseFromArray(data + 2, static_cast<int>(length))) {
      Handle(message, sessions, session);
    }
    data += 2 + length;
    size -= 2 + length;
  }
  session = nullptr;
  FORETOKEN_CHECK(sessions.sessions() == 0);
}

}  // namespace
}  // namespace foretoken::trie_drafter

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  foretoken::trie_drafter::Run(data, size);
  return 0;
}
