#include "tools/cli/command.h"

namespace foretoken::cli {
void AddConvertCommand(CLI::App&, Run&) {}
}  // namespace foretoken::cli
