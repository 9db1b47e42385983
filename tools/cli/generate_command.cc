// foretoken generate: text from a model, in this process or from a server.
#include <memory>
#include <optional>
#include <string>

#include "common/base/status_macros.h"
#include "common/speculation/modes.h"
#include "tools/cli/command.h"
#include "tools/cli/generate_flags.h"
#include "tools/cli/generate_local.h"
#include "tools/cli/generate_output.h"
#ifdef FORETOKEN_HAVE_SERVICES
#include "tools/cli/remote_generation.h"
#include "tools/cli/server_channel.h"
#endif

namespace foretoken::cli {
namespace {

#ifdef FORETOKEN_HAVE_SERVICES
absl::Status GenerateOnServer(const GenerateFlags& flags) {
  FORETOKEN_ASSIGN_OR_RETURN(const Mode mode, Mode::Parse(flags.mode));
  FORETOKEN_ASSIGN_OR_RETURN(orchestrator::GenerationRequest request,
                             RequestOf(flags));
  request.sampling.seed = flags.seed.value_or(0);
  std::optional<std::string> text;
  if (flags.prompt_ids.has_value()) {
    FORETOKEN_ASSIGN_OR_RETURN(
        request.prompt, ParseTokenIds("--prompt-ids", *flags.prompt_ids));
  } else {
    FORETOKEN_ASSIGN_OR_RETURN(text, ReadPromptText(flags));
    if (text->empty()) {
      return absl::InvalidArgumentError("prompt: it is empty");
    }
  }
  RemoteOptions remote;
  remote.address = flags.server;
  remote.channel = ChannelOf(flags.server_access);
  remote.channel.token_file = flags.server_token_file;
  if (flags.timeout_s > 0) remote.timeout = absl::Seconds(flags.timeout_s);
  GenerateOutput output(flags.json);
  FORETOKEN_ASSIGN_OR_RETURN(
      const RemoteResult result,
      GenerateRemotely(remote, text, request, flags.seed.has_value(), mode,
                       [&](const orchestrator::Delta& delta) {
                         return output.Take(delta);
                       }));
  request.sampling.seed = result.seed;
  return output.Finish(result.prompt, result.summary, result.mode,
                       request.sampling);
}
#else
absl::Status GenerateOnServer(const GenerateFlags&) {
  return absl::UnimplementedError(
      "--server: this build has no services, use --local");
}
#endif

absl::Status Generate(const GenerateFlags& flags) {
  FORETOKEN_RETURN_IF_ERROR(CheckFlags(flags));
  return flags.server.empty() ? GenerateLocally(flags)
                              : GenerateOnServer(flags);
}

}  // namespace

void AddGenerateCommand(CLI::App& app, Run& run) {
  CLI::App* command = app.add_subcommand("generate", "Generate text");
  auto flags = std::make_shared<GenerateFlags>();
  AddGenerateFlags(*command, *flags);
  command->callback(
      [flags, &run] { run = [flags] { return Generate(*flags); }; });
}

}  // namespace foretoken::cli
