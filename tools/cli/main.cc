// foretoken: the command line. Each subcommand has its own file.
#include "tools/cli/app.h"
#include "tools/cli/command.h"
#include "tools/cli/version.h"

int main(int argc, char** argv) {
  CLI::App app{"Foretoken: lossless speculative decoding."};
  app.require_subcommand(1);
  app.set_version_flag("--version", foretoken::cli::VersionLine("foretoken"));
  foretoken::cli::Run run;
  foretoken::cli::AddGenerateCommand(app, run);
  foretoken::cli::AddChatCommand(app, run);
#ifdef FORETOKEN_HAVE_SERVICES
  foretoken::cli::AddHealthCommand(app, run);
#endif
  foretoken::cli::AddTokenizeCommands(app, run);
  foretoken::cli::AddGrammarCommand(app, run);
  foretoken::cli::AddInspectCommand(app, run);
  foretoken::cli::AddConvertCommand(app, run);
  foretoken::cli::AddQuantizeCommand(app, run);
  foretoken::cli::AddBenchCommand(app, run);
  foretoken::cli::AddReplayCommand(app, run);
  foretoken::cli::AddCrestCommand(app, run);
  foretoken::cli::AddPriorCommand(app, run);
  return foretoken::cli::RunApp(app, run, "foretoken", argc, argv);
}
