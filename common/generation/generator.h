// Generator: the one door through which a request for output goes.
//
// Three implementations: the orchestrator's core in this process
// (orchestrator::GenerationService), a server over gRPC (rpc::GenerationClient,
// which the gateway decorates to know its model without asking), and a scripted
// one for tests (testing::FakeGenerator). Command lines that want to wait for
// the whole output call Generate (blocking.h).
#ifndef FORETOKEN_COMMON_GENERATION_GENERATOR_H_
#define FORETOKEN_COMMON_GENERATION_GENERATOR_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/base/types.h"
#include "common/generation/generation.h"

namespace foretoken {

// The model that is served, and the limits of requests to it.
struct GeneratorInfo {
  std::string model;  // its name
  int64_t vocab_size = 0;
  int64_t max_positions = 0;  // of its context
  int32_t max_tree_nodes = 0;
  int32_t embedding_size = 0;  // numbers of an embedding; 0: none are made
  std::vector<std::string> modes;
  std::string default_mode;
  std::string numerics_fingerprint;
  std::string tokenizer_fingerprint;  // raw SHA-256; empty: not known
};

// Takes the output of one request: OnDelta*, OnResult if it was served, OnEnd.
// Called by one thread at a time, never from inside Start, Resume or Cancel, so
// that a caller may hold its own lock there. Must not block.
class GenerationListener {
 public:
  virtual ~GenerationListener() = default;

  // Output that is final, never empty, in order. False: no further call until
  // Resume.
  virtual bool OnDelta(const GenerationDelta& delta) = 0;
  virtual void OnResult(const GenerationSummary& summary) = 0;
  // Once, last: how the request ended.
  virtual void OnEnd(const absl::Status& status) = 0;
};

// Work under way. Thread-safe; does nothing once the work has ended.
class PendingCall {
 public:
  virtual ~PendingCall() = default;
  // The work ends soon, with whatever status.
  virtual void Cancel() = 0;
};

class GenerationCall : public PendingCall {
 public:
  virtual void Resume() = 0;
};

// Thread-safe. The calls that it returns must be dropped before it is
// destroyed.
class Generator {
 public:
  using OnTokens =
      std::function<void(absl::StatusOr<std::vector<TokenId>> tokens)>;
  using OnText = std::function<void(absl::StatusOr<std::string> text)>;

  virtual ~Generator() = default;

  // Unavailable while nothing is served, FailedPrecondition, with the reason,
  // if nothing will be. Over gRPC this takes a round trip, until `deadline` at
  // most, and may end with any status of a call.
  virtual absl::StatusOr<GeneratorInfo> Info(absl::Time deadline) = 0;
  // Whether requests are served now.
  virtual bool Ready() = 0;

  // The request goes on if the call is dropped; the listener is released after
  // its OnEnd.
  virtual std::shared_ptr<GenerationCall> Start(
      GenerationRequest request,
      std::shared_ptr<GenerationListener> listener) = 0;

  // `done` is called once, never from inside these functions. The work goes on
  // if the call that they return is dropped.
  virtual std::shared_ptr<PendingCall> Tokenize(const Caller& caller,
                                                std::string text,
                                                bool add_special_tokens,
                                                absl::Time deadline,
                                                OnTokens done) = 0;
  virtual std::shared_ptr<PendingCall> Detokenize(const Caller& caller,
                                                  std::vector<TokenId> tokens,
                                                  absl::Time deadline,
                                                  OnText done) = 0;
};

}  // namespace foretoken

#endif  // FORETOKEN_COMMON_GENERATION_GENERATOR_H_
