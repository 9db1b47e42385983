// foretoken-lab: measurements that reproduce papers, and baselines of theirs
// that Foretoken does not serve. Never installed.
#include "tests/lab/cli/command.h"
#include "tools/cli/app.h"

int main(int argc, char** argv) {
  foretoken::cli::App app(
      "foretoken-lab",
      "Foretoken's laboratory: measurements that reproduce papers.");
  const foretoken::cli::Command root = app.root();
  foretoken::cli::AddModelReplayCommand(root);
  foretoken::cli::AddRestCommands(root);
  return app.Main(argc, argv);
}
