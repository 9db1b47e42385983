#include "tools/cli/command.h"

namespace foretoken::cli {
void AddTokenizeCommands(CLI::App&, Run&) {}
}  // namespace foretoken::cli
