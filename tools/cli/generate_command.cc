#include "tools/cli/command.h"

namespace foretoken::cli {
void AddGenerateCommand(CLI::App&, Run&) {}
}  // namespace foretoken::cli
