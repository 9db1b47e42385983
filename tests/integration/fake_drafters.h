// Drafting services that behave as a test wants: well, or in one of the ways
// in which a service can fail.
#ifndef FORETOKEN_TESTS_INTEGRATION_FAKE_DRAFTERS_H_
#define FORETOKEN_TESTS_INTEGRATION_FAKE_DRAFTERS_H_

#include <atomic>
#include <memory>
#include <string>

#include "absl/time/time.h"
#include "foretoken/v1/crest.grpc.pb.h"
#include "foretoken/v1/draft_worker.grpc.pb.h"
#include "foretoken/v1/trie_drafter.grpc.pb.h"
#include "grpcpp/server.h"
#include "tests/support/gate.h"

namespace foretoken::testing {

enum class Behaviour {
  kGood,        // prompt lookup
  kHung,        // reads, never answers
  kSlow,        // answers after kSlowness
  kHeld,        // answers once the gate is open
  kRefuses,     // RESOURCE_EXHAUSTED
  kFails,       // UNAVAILABLE
  kForeign,     // FAILED_PRECONDITION at once: another tokenizer
  kForgets,     // FAILED_PRECONDITION at every round but a session's first
  kBadParents,  // no tree
  kBadIds,      // tokens outside every vocabulary
  kStale,       // the wrong committed length
  kHuge,        // a million nodes
};

inline constexpr absl::Duration kSlowness = absl::Milliseconds(30);

// One process with a trie drafter, a draft worker and a crest service.
class FakeDrafters {
 public:
  // Listens on a port of its own unless it is told where.
  explicit FakeDrafters(const std::string& address = "127.0.0.1:0");
  ~FakeDrafters();

  const std::string& address() const { return address_; }
  void Behave(Behaviour behaviour) { behaviour_ = behaviour; }
  // Holds answers while they behave as kHeld.
  Gate& gate() { return gate_; }
  // Draft streams and look-up streams that were opened, and are open.
  int opened() const { return opened_; }
  int open() const { return open_; }
  // Rounds that were asked for.
  int rounds() const { return rounds_; }
  // Phrases that came with rounds.
  int phrases() const { return phrases_; }

 private:
  template <typename Base>
  class DraftService;
  class TrieService;
  class CrestService;

  Gate gate_;
  std::atomic<Behaviour> behaviour_{Behaviour::kGood};
  std::atomic<int> opened_{0}, open_{0}, rounds_{0}, phrases_{0};
  std::unique_ptr<grpc::Service> trie_, worker_, crest_;
  std::unique_ptr<grpc::Server> server_;
  std::string address_;
};

}  // namespace foretoken::testing

#endif  // FORETOKEN_TESTS_INTEGRATION_FAKE_DRAFTERS_H_
