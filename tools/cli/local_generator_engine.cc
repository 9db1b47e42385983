// StartLocalGenerator in a build without services: the engine alone.
#include <memory>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/grammar/token_trie.h"
#include "common/infer/factory/backend_factory.h"
#include "services/orchestrator/core/generation_service.h"
#include "services/orchestrator/core/verifiers/session_verifier.h"
#include "services/verifier/core/engine_verify_sessions.h"
#include "tools/cli/local_generator.h"

namespace foretoken::cli {
namespace {

class EngineTarget final : public orchestrator::Target {
 public:
  // Declared after sessions_, which holds the model that this refers to.
  // Safe in any order of the arguments: std::move only casts here, and the
  // pointer moves in the constructor, once OptionsFor has returned.
  EngineTarget(std::unique_ptr<Backend> backend,
               const std::shared_ptr<const Tokenizer>& tokenizer)
      : sessions_({},
                  std::make_unique<verifier::VerifyEngine>(
                      OptionsFor(*backend, tokenizer), std::move(backend)),
                  nullptr),
        model_(sessions_.loop().model()) {}

  absl::StatusOr<orchestrator::TargetInfo> Info() const override {
    orchestrator::TargetInfo target;
    target.vocab_size = model_.vocab_size;
    target.max_positions = model_.max_positions;
    target.eos_tokens = model_.eos_tokens;
    return target;
  }
  std::unique_ptr<orchestrator::Verifier> NewVerifier() override {
    return std::make_unique<orchestrator::SessionVerifier>(sessions_);
  }

 private:
  static verifier::VerifyEngineOptions OptionsFor(
      const Backend& backend,
      const std::shared_ptr<const Tokenizer>& tokenizer) {
    verifier::VerifyEngineOptions options;
    options.vocabulary =
        grammar::TokenVocabulary::Of(tokenizer, backend.config().vocab_size);
    return options;
  }

  verifier::EngineVerifySessions sessions_;
  const ModelConfig& model_;
};

struct Engine {
  orchestrator::GenerationObserver observer;
  std::unique_ptr<orchestrator::GenerationService> generation;
};

}  // namespace

absl::StatusOr<std::shared_ptr<Generator>> StartLocalGenerator(
    const LocalModelFlags& flags, int64_t tokens, int32_t at_once,
    std::shared_ptr<const Tokenizer> tokenizer) {
  for (const std::string* path :
       {&flags.draft_model, &flags.prior, &flags.crest}) {
    // Refused rather than ignored: the answer would be right, but slower than
    // the user expects.
    if (path->empty()) continue;
    return absl::UnimplementedError(absl::StrCat(
        "'", *path, "': this build has no services that could use it"));
  }
  BackendOptions backend = flags.backend;
  backend.kv_cache_tokens = tokens;
  backend.max_sessions = at_once;
  FORETOKEN_ASSIGN_OR_RETURN(std::unique_ptr<Backend> made,
                             MakeBackend(backend));
  orchestrator::GenerationOptions options;
  options.trace = flags.trace;
  const auto engine = std::make_shared<Engine>();
  FORETOKEN_ASSIGN_OR_RETURN(
      engine->generation,
      orchestrator::GenerationService::Create(
          options, std::make_unique<EngineTarget>(std::move(made), tokenizer),
          /*drafters=*/nullptr, std::move(tokenizer), engine->observer));
  // Shares the ownership of `engine`: the observer must live as long as the
  // service that reports to it.
  return std::shared_ptr<Generator>(engine, engine->generation.get());
}

}  // namespace foretoken::cli
