#include "tools/cli/grammar/xz_lines.h"

#include <lzma.h>

#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/base/file.h"
#include "common/base/status_macros.h"

namespace foretoken::cli {
namespace {

// The string is split because \xFD7 would read on as one hexadecimal escape;
// its length is given because it ends in a NUL.
constexpr absl::string_view kMagic("\xFD"
                                   "7zXZ\0",
                                   6);
// Bounds the expanded text, which lies in memory whole: a small file may expand
// a thousandfold.
constexpr uint64_t kMaxBytes = uint64_t{1} << 30;
// Memory of the decoder; files that xz writes by default need a tenth.
constexpr uint64_t kMaxDecoderBytes = uint64_t{1} << 30;

absl::StatusOr<std::string> Expand(absl::string_view compressed) {
  lzma_stream stream = LZMA_STREAM_INIT;
  // Concatenated streams are one file to xz, such as from parallel compressors.
  if (lzma_stream_decoder(&stream, kMaxDecoderBytes, LZMA_CONCATENATED) !=
      LZMA_OK) {
    return absl::ResourceExhaustedError("no memory for the xz decoder");
  }
  const std::unique_ptr<lzma_stream, void (*)(lzma_stream*)> end(&stream,
                                                                 lzma_end);
  stream.next_in = reinterpret_cast<const uint8_t*>(compressed.data());
  stream.avail_in = compressed.size();
  std::string text;
  std::vector<uint8_t> chunk(1 << 20);
  lzma_ret result = LZMA_OK;
  while (result == LZMA_OK) {
    stream.next_out = chunk.data();
    stream.avail_out = chunk.size();
    // All input is given at once, so LZMA_FINISH holds from the first call;
    // without it a truncated file would look like one that waits for more.
    result = lzma_code(&stream, LZMA_FINISH);
    text.append(reinterpret_cast<const char*>(chunk.data()),
                chunk.size() - stream.avail_out);
    if (text.size() > kMaxBytes) {
      return absl::ResourceExhaustedError("more than 1 GiB of text");
    }
  }
  if (result != LZMA_STREAM_END) {
    return absl::InvalidArgumentError("broken xz stream");
  }
  return text;
}

}  // namespace

absl::Status ForEachLine(
    const std::string& path,
    const std::function<absl::Status(absl::string_view line)>& take) {
  if (absl::EndsWith(path, ".xz")) {
    FORETOKEN_ASSIGN_OR_RETURN(const std::string file, ReadFile(path));
    if (!absl::StartsWith(file, kMagic)) {
      return absl::InvalidArgumentError(absl::StrCat(path, ": no xz header"));
    }
    const absl::StatusOr<std::string> text = Expand(file);
    if (!text.ok()) return Annotate(text.status(), path);
    int64_t number = 0;
    // Numbered from 1 with empty lines included, as editors and LineReader
    // count.
    for (const absl::string_view line : absl::StrSplit(*text, '\n')) {
      ++number;
      if (line.empty()) continue;
      const absl::Status taken = take(line);
      if (!taken.ok()) {
        return Annotate(taken, absl::StrCat(path, " line ", number));
      }
    }
    return absl::OkStatus();
  }
  FORETOKEN_ASSIGN_OR_RETURN(const std::unique_ptr<LineReader> reader,
                             LineReader::Open(path));
  std::string line;
  while (true) {
    FORETOKEN_ASSIGN_OR_RETURN(const bool more, reader->Next(line));
    if (!more) return absl::OkStatus();
    if (line.empty()) continue;
    const absl::Status taken = take(line);
    if (!taken.ok()) {
      return Annotate(taken,
                      absl::StrCat(path, " line ", reader->line_number()));
    }
  }
}

}  // namespace foretoken::cli
