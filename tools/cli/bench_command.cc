#include "tools/cli/command.h"

namespace foretoken::cli {
void AddBenchCommand(CLI::App&, Run&) {}
}  // namespace foretoken::cli
