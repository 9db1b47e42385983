#include "tools/cli/app.h"

#include <cstdio>

namespace foretoken::cli {

int RunApp(CLI::App& app, const Run& run, const char* program, int argc,
           char** argv) {
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;  // 0: --help
  }
  const absl::Status status = run();
  if (status.ok()) return 0;
  const std::string message = status.ToString();
  std::fprintf(stderr, "%s: %s\n", program, message.c_str());
  return 1;
}

}  // namespace foretoken::cli
