// foretoken-lab: measurements that reproduce papers, and baselines of theirs
// that Foretoken does not serve. Never installed.
#include "tests/lab/cli/command.h"
#include "tools/cli/app.h"
#include "tools/cli/version.h"

int main(int argc, char** argv) {
  CLI::App app{"Foretoken's laboratory: measurements that reproduce papers."};
  app.require_subcommand(1);
  app.set_version_flag("--version",
                       foretoken::cli::VersionLine("foretoken-lab"));
  foretoken::cli::Run run;
  foretoken::cli::AddModelReplayCommand(app, run);
  foretoken::cli::AddRestCommands(app, run);
  return foretoken::cli::RunApp(app, run, "foretoken-lab", argc, argv);
}
