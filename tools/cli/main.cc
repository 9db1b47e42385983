// foretoken: the command line. Each subcommand has its own file.
#include <cstdio>
#include <exception>
#include <string>

#include "tools/cli/command.h"
#include "tools/cli/version.h"

int main(int argc, char** argv) {
  CLI::App app{"Foretoken: lossless speculative decoding."};
  app.require_subcommand(1);
  app.set_version_flag("--version", foretoken::cli::VersionLine());
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
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;  // 0: --help
  }
  const absl::Status status = run();
  if (status.ok()) return 0;
  const std::string message = status.ToString();
  std::fprintf(stderr, "foretoken: %s\n", message.c_str());
  return 1;
}
