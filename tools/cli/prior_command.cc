#include "tools/cli/command.h"

namespace foretoken::cli {
void AddPriorCommand(CLI::App&, Run&) {}
}  // namespace foretoken::cli
