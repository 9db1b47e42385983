// EditedLines in a build without libedit.
#include "tools/cli/chat/line_source.h"

namespace foretoken::cli {

std::unique_ptr<LineSource> EditedLines(const std::string&,
                                        const std::string&) {
  return nullptr;
}

}  // namespace foretoken::cli
