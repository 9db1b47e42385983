#include "tools/cli/command.h"

namespace foretoken::cli {
void AddReplayCommand(CLI::App&, Run&) {}
}  // namespace foretoken::cli
