// Draft sessions that answer when a test says so.
#ifndef FORETOKEN_TESTS_UNIT_SERVICES_ORCHESTRATOR_DRAFTERS_FAKE_DRAFT_SESSIONS_H_
#define FORETOKEN_TESTS_UNIT_SERVICES_ORCHESTRATOR_DRAFTERS_FAKE_DRAFT_SESSIONS_H_

#include <deque>
#include <memory>
#include <utility>
#include <vector>

#include "common/drafting/draft_session.h"
#include "services/orchestrator/core/drafters/draft_peer.h"

namespace foretoken::orchestrator {

// An answer is a chain of the last committed token, and the phrase (1, 2).
class FakeDraftSessions final : public DraftSessions {
 public:
  absl::StatusOr<std::unique_ptr<DraftSession>> Open(
      DraftOpen open, std::shared_ptr<DraftListener> ears) override {
    ++opens;
    if (!refusal.ok()) return refusal;
    opened = std::move(open);
    listener = std::move(ears);
    owed.clear();
    ++live;
    return std::make_unique<Session>(*this);
  }

  // Answers the oldest round.
  void Answer() {
    const DraftRound round = std::move(owed.front());
    owed.pop_front();
    DraftAnswer answer;
    answer.length = round.length + off_by;
    answer.shortened = shortened;
    if (round.max_nodes > 0) {
      answer.tree.Add(round.committed.empty() ? 0 : round.committed.back(),
                      kRootParent, 0.5f);
      answer.phrases = {{1, 2}};
    }
    listener->OnAnswer(std::move(answer));
  }

  bool at_once = true;     // answers within Ask
  int64_t off_by = 0;      // of the length that it answers
  bool shortened = false;  // what its answers say
  absl::Status refusal;    // of Open
  absl::Status failure;    // of Ask
  DraftOpen opened;        // the last one
  std::shared_ptr<DraftListener> listener;
  std::deque<DraftRound> owed;
  std::vector<DraftRound> asked;
  std::vector<int64_t> lengths;
  std::vector<TokenId> committed;
  std::vector<Phrase> phrases;
  int opens = 0;
  int live = 0;

 private:
  class Session final : public DraftSession {
   public:
    explicit Session(FakeDraftSessions& owner) : owner_(owner) {}
    ~Session() override { --owner_.live; }
    void Ask(DraftRound round) override {
      if (!owner_.failure.ok())
        return owner_.listener->OnFailed(owner_.failure);
      owner_.lengths.push_back(round.length);
      owner_.committed.insert(owner_.committed.end(), round.committed.begin(),
                              round.committed.end());
      owner_.phrases.insert(owner_.phrases.end(), round.phrases.begin(),
                            round.phrases.end());
      owner_.asked.push_back(round);
      owner_.owed.push_back(std::move(round));
      if (owner_.at_once) owner_.Answer();
    }

   private:
    FakeDraftSessions& owner_;
  };
};

// A replica of a fixture's sessions.
inline DraftEndpoint EndpointOf(DraftSessions& sessions,
                                SharedPhrases* phrases = nullptr) {
  const std::shared_ptr<void> owner;
  return {std::shared_ptr<DraftSessions>(owner, &sessions),
          std::shared_ptr<SharedPhrases>(owner, phrases), nullptr};
}

}  // namespace foretoken::orchestrator

#endif  // FORETOKEN_TESTS_UNIT_SERVICES_ORCHESTRATOR_DRAFTERS_FAKE_DRAFT_SESSIONS_H_
