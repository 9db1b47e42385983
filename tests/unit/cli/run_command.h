// Runs a real binary, `foretoken` by default, as a user does.
#ifndef FORETOKEN_TESTS_UNIT_CLI_RUN_COMMAND_H_
#define FORETOKEN_TESTS_UNIT_CLI_RUN_COMMAND_H_

#include <sys/wait.h>

#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "tests/support/temp_dir.h"

namespace foretoken::testing {

struct CommandResult {
  int exit_status = -1;
  std::string out;
  std::string err;
};

// `arguments` are words of a shell, `input` is stdin; stdout goes to `out`
// where that is not empty.
inline CommandResult RunBinary(const std::string& binary, TempDir& dir,
                               const std::string& arguments,
                               const std::string& input = "",
                               std::string out = "") {
  const auto read = [](const std::string& path) {
    std::stringstream bytes;
    bytes << std::ifstream(path, std::ios::binary).rdbuf();
    return bytes.str();
  };
  const bool captured = out.empty();
  if (captured) out = dir.File("out");
  const std::string command = binary + " " + arguments + " <'" +
                              dir.Write("in", input) + "' >'" + out + "' 2>'" +
                              dir.File("err") + "'";
  const int status = std::system(command.c_str());
  CommandResult result;
  result.exit_status = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  if (captured) result.out = read(out);
  result.err = read(dir.File("err"));
  return result;
}

inline CommandResult RunCommand(TempDir& dir, const std::string& arguments,
                                const std::string& input = "",
                                const std::string& out = "") {
  return RunBinary(FORETOKEN_BINARY, dir, arguments, input, out);
}

}  // namespace foretoken::testing

#endif  // FORETOKEN_TESTS_UNIT_CLI_RUN_COMMAND_H_
