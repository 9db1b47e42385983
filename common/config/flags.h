// Command-line flags of a service. Precedence: flag, FORETOKEN_* environment,
// default.
//
//   Flags flags("foretoken-verifier", "Runs the target model.");
//   flags.Int("max-tree-nodes", &options.max_tree_nodes, {1, 256},
//             "Draft nodes of one tree");
//   FORETOKEN_RETURN_IF_ERROR(flags.Parse(argc, argv));
//
// All errors, of values out of range and of rules given to Require, are
// reported together, by flag and environment name:
//
//   --max-tree-nodes=0 (FORETOKEN_MAX_TREE_NODES): want 1..256
//
// Secrets come from the environment or from files, never from argv, which any
// local user can read. Owned by one thread; used at start only.
#ifndef FORETOKEN_COMMON_CONFIG_FLAGS_H_
#define FORETOKEN_COMMON_CONFIG_FLAGS_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace foretoken {

template <typename T>
struct FlagRange {
  T min;
  T max;
};

class Flags {
 public:
  Flags(const std::string& program, const std::string& description);
  ~Flags();
  Flags(const Flags&) = delete;
  Flags& operator=(const Flags&) = delete;

  // Names are kebab-case without leading dashes. The value of the field at
  // registration is the default. Fields must outlive Parse.
  void Int(const std::string& name, int32_t* field, FlagRange<int32_t> range,
           const std::string& help);
  void Int64(const std::string& name, int64_t* field, FlagRange<int64_t> range,
             const std::string& help);
  void Double(const std::string& name, double* field, FlagRange<double> range,
              const std::string& help);
  // --name, --name=true, --name=false.
  void Bool(const std::string& name, bool* field, const std::string& help);
  // "250ms", "30s", "5m".
  void Duration(const std::string& name, absl::Duration* field,
                FlagRange<absl::Duration> range, const std::string& help);
  void String(const std::string& name, std::string* field,
              const std::string& help);
  // One of `choices`.
  void Choice(const std::string& name, std::string* field,
              const std::vector<std::string>& choices, const std::string& help);
  // Comma-separated, or the flag repeated.
  void List(const std::string& name, std::vector<std::string>* field,
            const std::string& help);
  // Read from the environment (FORETOKEN_<NAME>) only; its value is never
  // shown.
  void Secret(const std::string& name, std::string* field,
              const std::string& help);

  // A URL; its value is never shown. One with a user or password is accepted
  // from the environment only.
  void Url(const std::string& name, std::string* field,
           const std::string& help);

  // A rule over several fields, checked after all are set: returns an empty
  // string if it holds, else what is wanted. Reported under flag `name`.
  void Require(const std::string& name, std::function<std::string()> rule);

  // Adds --version, which prints `line`.
  void Version(const std::string& line);

  // InvalidArgument lists every problem, one per line. --help and --version
  // return a Cancelled status with the text to print: see ExitWithError. May be
  // called once.
  absl::Status Parse(int argc, const char* const* argv);

  // Whether flag `name` was given a value that is not empty, here or in the
  // environment. After Parse.
  bool Given(const std::string& name) const;

  // The flags whose value is not the default, "name=value name=value", secrets
  // masked; "defaults" if there are none. Log it once, after Parse.
  std::string Changes() const;

 private:
  struct Flag;
  // Parses the text into the field. Returns an empty string, or what is wanted.
  using Setter = std::function<std::string(const std::vector<std::string>&)>;

  Flag& Add(const std::string& name, const std::string& help,
            const std::string& default_text, Setter set);
  void TakeValue(Flag& flag, std::vector<std::string>& problems);

  std::unique_ptr<CLI::App> app_;
  std::vector<std::unique_ptr<Flag>> flags_;
  std::vector<std::pair<std::string, std::function<std::string()>>> rules_;
};

// Returns FORETOKEN_MAX_TREE_NODES for max-tree-nodes.
std::string EnvironmentName(absl::string_view flag);

// Exit code of main for a status of Parse or of start-up. Prints help and
// version to stdout and returns 0; prints an error to stderr and returns 1, or
// 2 for a bad command line.
int ExitWithError(const absl::Status& status);

}  // namespace foretoken

#endif  // FORETOKEN_COMMON_CONFIG_FLAGS_H_
