// Where the requests of `generate` and `chat` are generated: in this process or
// on a server.
#ifndef FORETOKEN_TOOLS_CLI_GENERATION_TARGET_H_
#define FORETOKEN_TOOLS_CLI_GENERATION_TARGET_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "common/generation/blocking.h"
#include "common/generation/generator.h"
#include "common/text/tokenizer.h"
#include "tools/cli/shared_options.h"

namespace foretoken::cli {

// Connects to --server. Unimplemented in a build without services.
absl::StatusOr<std::unique_ptr<Generator>> ConnectToServer(
    const RemoteServerFlags& flags);

// Thread-safe.
class GenerationTarget {
 public:
  // A model in this process.
  explicit GenerationTarget(std::shared_ptr<Generator> generator)
      : generator_(std::move(generator)) {}
  // The server of --server. `timeout_s`: of each request, 0 for none.
  // `tokenizer`: that of --tokenizer, null without one; FailedPrecondition, now
  // and for every request, if the server's model has another.
  static absl::StatusOr<std::unique_ptr<GenerationTarget>> OpenServer(
      const RemoteServerFlags& flags, double timeout_s,
      std::shared_ptr<const Tokenizer> tokenizer);

  // As foretoken::Generate; errors name the server.
  absl::StatusOr<GenerationSummary> Generate(GenerationRequest request,
                                             TakeDelta on_delta);

 private:
  absl::Status CheckTokenizer(absl::Time deadline);

  const std::shared_ptr<Generator> generator_;
  std::string server_;  // its address; empty: in this process
  double timeout_s_ = 0;
  std::shared_ptr<const Tokenizer> tokenizer_;  // null: not checked
};

}  // namespace foretoken::cli

#endif  // FORETOKEN_TOOLS_CLI_GENERATION_TARGET_H_
