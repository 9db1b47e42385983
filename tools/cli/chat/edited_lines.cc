// EditedLines over libedit (BSD licence).
#include <histedit.h>
#include <sys/stat.h>
#include <unistd.h>

#include <clocale>
#include <cstdio>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "common/text/utf8.h"
#include "tools/cli/chat/line_source.h"

namespace foretoken::cli {
namespace {

// Bounds the file that is loaded at start and written after every message.
constexpr int kHistoryLines = 1000;

class Edited final : public LineSource {
 public:
  Edited(std::string prompt, std::string history_file)
      : prompt_(std::move(prompt)), history_file_(std::move(history_file)) {
    // libedit reads characters of the terminal's locale.
    std::setlocale(LC_CTYPE, "");
    history_ = history_init();
    HistEvent event;
    history(history_, &event, H_SETSIZE, kHistoryLines);
    // The same message sent many times takes one entry.
    history(history_, &event, H_SETUNIQUE, 1);
    if (!history_file_.empty()) {
      history(history_, &event, H_LOAD, history_file_.c_str());
    }
    edit_ = el_init("foretoken", stdin, stdout, stderr);
    // The callbacks are C functions without a context argument; this is how
    // they find the object.
    el_set(edit_, EL_CLIENTDATA, this);
    el_set(edit_, EL_PROMPT, &Edited::Prompt);
    el_set(edit_, EL_EDITOR, "emacs");
    el_set(edit_, EL_HIST, history, history_);
    // Ctrl-C reaches the editor as a key: it drops the line.
    el_set(edit_, EL_SETTY, "-d", "-isig", nullptr);
    el_set(edit_, EL_ADDFN, "foretoken-drop-line", "Drop the line",
           &Edited::DropLine);
    el_set(edit_, EL_BIND, "^C", "foretoken-drop-line", nullptr);
    el_set(edit_, EL_BIND, "^R", "em-inc-search-prev", nullptr);
  }
  ~Edited() override {
    el_end(edit_);
    history_end(history_);
  }

  absl::StatusOr<std::optional<std::string>> Next() override {
    int count = 0;
    const char* const read = el_gets(edit_, &count);
    if (read == nullptr || count <= 0) {
      std::fputc('\n', stdout);
      // EOF (Ctrl-D) leaves the cursor after the prompt; the shell's prompt
      // belongs on a line of its own.
      return std::nullopt;
    }
    absl::string_view line(read, static_cast<size_t>(count));
    line = absl::StripSuffix(line, "\n");
    // Before the checks: a dropped line may hold anything.
    if (std::exchange(dropped_, false)) return std::string();
    if (line.size() > kMaxLineBytes) {
      return absl::ResourceExhaustedError(
          absl::StrCat("a line of more than ", kMaxLineBytes, " bytes"));
    }
    if (!IsValidUtf8(line)) {
      return absl::InvalidArgumentError("the line is not UTF-8");
    }
    std::string text(line);
    if (!absl::StripAsciiWhitespace(text).empty()) Remember(text);
    return text;
  }

 private:
  static char* Prompt(EditLine* edit) {
    Edited* self = nullptr;
    el_get(edit, EL_CLIENTDATA, &self);
    return self->prompt_.data();
  }

  static unsigned char DropLine(EditLine* edit, int) {
    Edited* self = nullptr;
    el_get(edit, EL_CLIENTDATA, &self);
    self->dropped_ = true;
    std::fputs("^C\n", stdout);
    return CC_NEWLINE;
  }

  void Remember(const std::string& line) {
    HistEvent event;
    history(history_, &event, H_ENTER, line.c_str());
    if (history_file_.empty()) return;
    // The file holds what the user wrote: no one else may read it.
    const mode_t before = umask(0077);
    history(history_, &event, H_SAVE, history_file_.c_str());
    umask(before);
  }

  std::string prompt_;
  const std::string history_file_;
  History* history_ = nullptr;
  EditLine* edit_ = nullptr;
  bool dropped_ = false;
};

}  // namespace

std::unique_ptr<LineSource> EditedLines(const std::string& prompt,
                                        const std::string& history_file) {
  if (isatty(STDIN_FILENO) != 1 || isatty(STDOUT_FILENO) != 1) return nullptr;
  return std::make_unique<Edited>(prompt, history_file);
}

}  // namespace foretoken::cli
