// Conversation: the messages of a chat, as chat templates take them.
//
// Owned by one thread.
#ifndef FORETOKEN_TOOLS_CLI_CHAT_CONVERSATION_H_
#define FORETOKEN_TOOLS_CLI_CHAT_CONVERSATION_H_

#include <string>
#include <utility>

#include "absl/strings/string_view.h"
#include "common/base/json.h"

namespace foretoken::cli {

class Conversation {
 public:
  // `system`: the first message; empty: none.
  explicit Conversation(std::string system) : system_(std::move(system)) {
    Clear();
  }

  void Clear() {
    messages_ = Json::array();
    if (!system_.empty()) Add("system", system_);
  }
  void Add(absl::string_view role, absl::string_view content) {
    messages_.push_back(
        {{"role", std::string(role)}, {"content", std::string(content)}});
  }
  void DropLast() {
    if (!messages_.empty()) messages_.erase(messages_.size() - 1);
  }
  // JSON of the list.
  std::string Messages() const { return DumpJson(messages_); }

 private:
  const std::string system_;
  Json messages_;
};

}  // namespace foretoken::cli

#endif  // FORETOKEN_TOOLS_CLI_CHAT_CONVERSATION_H_
