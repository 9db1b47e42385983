// Generations: who writes the text. Over gRPC an orchestrator
// (adapters/remote_generations.h), in foretoken-local the orchestrator's core
// itself.
#ifndef FORETOKEN_SERVICES_GATEWAY_CORE_GENERATIONS_H_
#define FORETOKEN_SERVICES_GATEWAY_CORE_GENERATIONS_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/base/types.h"
#include "common/speculation/generation.h"

namespace foretoken::gateway {

// The model that is served.
struct ServedModel {
  std::string name;
  int64_t max_positions = 0;  // of its context
  std::vector<std::string> modes;
  std::string default_mode;
  std::string tokenizer_fingerprint = {};  // raw SHA-256; empty: not known
};

// Takes the output of one request: OnDelta*, OnResult if it was served, OnEnd.
// Called by one thread at a time, possibly before Start returns; must not
// block.
class GenerationListener {
 public:
  virtual ~GenerationListener() = default;
  // False: no further call until Resume.
  virtual bool OnDelta(const GenerationDelta& delta) = 0;
  virtual void OnResult(const GenerationSummary& summary) = 0;
  virtual void OnEnd(const absl::Status& status) = 0;
};

// A request under way. Thread-safe; does nothing once the request has ended.
class GenerationCall {
 public:
  virtual ~GenerationCall() = default;
  virtual void Resume() = 0;
  // The request ends soon, with whatever status.
  virtual void Cancel() = 0;
};

// Thread-safe.
class Generations {
 public:
  using OnTokens =
      std::function<void(absl::StatusOr<std::vector<TokenId>> tokens)>;
  using OnText = std::function<void(absl::StatusOr<std::string> text)>;

  virtual ~Generations() = default;

  // Unavailable while nobody can write.
  virtual absl::StatusOr<ServedModel> Model() = 0;
  // Whether requests are served now.
  virtual bool Ready() = 0;

  // The request's caller and deadline are set.
  virtual std::shared_ptr<GenerationCall> Start(
      GenerationRequest request,
      std::shared_ptr<GenerationListener> listener) = 0;

  // `done` is called once, possibly before these return.
  virtual void Tokenize(const Caller& caller, std::string text,
                        bool add_special_tokens, absl::Time deadline,
                        OnTokens done) = 0;
  virtual void Detokenize(const Caller& caller, std::vector<TokenId> tokens,
                          absl::Time deadline, OnText done) = 0;
};

}  // namespace foretoken::gateway

#endif  // FORETOKEN_SERVICES_GATEWAY_CORE_GENERATIONS_H_
