// foretoken: the command line. Each subcommand has its own file.
#include "tools/cli/app.h"
#include "tools/cli/command.h"

int main(int argc, char** argv) {
  foretoken::cli::App app("foretoken",
                          "Foretoken: lossless speculative decoding.");
  const foretoken::cli::Command root = app.root();
  // In the order of --help: from what most users want to what few do.
  foretoken::cli::AddGenerateCommand(root);
  foretoken::cli::AddChatCommand(root);
  foretoken::cli::AddRunCommand(root);
// Both need gRPC: a build without services has neither a server to start nor
// one to ask.
#ifdef FORETOKEN_HAVE_SERVICES
  foretoken::cli::AddServeCommand(root);
  foretoken::cli::AddHealthCommand(root);
#endif
  foretoken::cli::AddTokenizeCommands(root);
  foretoken::cli::AddGrammarCommand(root);
  foretoken::cli::AddInspectCommand(root);
  foretoken::cli::AddConvertCommand(root);
  foretoken::cli::AddQuantizeCommand(root);
  foretoken::cli::AddBenchCommand(root);
  foretoken::cli::AddReplayCommand(root);
  foretoken::cli::AddCrestCommand(root);
  foretoken::cli::AddPriorCommand(root);
  return app.Main(argc, argv);
}
