#include "common/base/file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"

namespace foretoken {
namespace {

constexpr unsigned kChunkBytes = 256 * 1024;

// zlib's gzFile reads plain files through unchanged, which is what we want.
class GzStream {
 public:
  static absl::StatusOr<GzStream> Open(const std::string& path) {
    gzFile file = path == "-" ? gzdopen(dup(STDIN_FILENO), "rb")
                              : gzopen(path.c_str(), "rb");
    if (file == nullptr) {
      return absl::ErrnoToStatus(errno == 0 ? ENOMEM : errno,
                                 absl::StrCat(path, ": open"));
    }
    gzbuffer(file, kChunkBytes);
    return GzStream(file, path);
  }

  GzStream(GzStream&& other) noexcept
      : file_(std::exchange(other.file_, nullptr)),
        path_(std::move(other.path_)) {}
  GzStream& operator=(GzStream&&) = delete;
  ~GzStream() {
    if (file_ != nullptr) gzclose(file_);
  }

  // Bytes read, 0 at the end.
  absl::StatusOr<size_t> Read(char* out, unsigned size) {
    const int n = gzread(file_, out, size);
    if (n > 0) return static_cast<size_t>(n);
    int code = Z_OK;
    const char* message = gzerror(file_, &code);
    if (n == 0 && code != Z_BUF_ERROR && code != Z_DATA_ERROR) return size_t{0};
    if (code == Z_ERRNO) {
      return absl::ErrnoToStatus(errno, absl::StrCat(path_, ": read"));
    }
    return absl::InvalidArgumentError(
        absl::StrCat(path_, ": broken gzip stream: ", message));
  }

  const std::string& path() const { return path_; }
  int64_t file_offset() const { return gzoffset(file_); }

 private:
  GzStream(gzFile file, std::string path)
      : file_(file), path_(std::move(path)) {}

  gzFile file_;
  std::string path_;
};

class GzLineReader : public LineReader {
 public:
  GzLineReader(GzStream stream, size_t max_line_bytes)
      : stream_(std::move(stream)),
        max_line_bytes_(max_line_bytes),
        buffer_(kChunkBytes) {}

  absl::StatusOr<bool> Next(std::string& line) override {
    line.clear();
    terminated_ = false;
    bool any = false;
    while (true) {
      if (begin_ == end_) {
        FORETOKEN_ASSIGN_OR_RETURN(
            end_, stream_.Read(buffer_.data(),
                               static_cast<unsigned>(buffer_.size())));
        begin_ = 0;
        if (end_ == 0) {
          if (any) ++line_number_;
          return any;
        }
      }
      any = true;
      const char* from = buffer_.data() + begin_;
      const void* newline = std::memchr(from, '\n', end_ - begin_);
      const size_t n = newline == nullptr
                           ? end_ - begin_
                           : static_cast<const char*>(newline) - from;
      if (line.size() + n > max_line_bytes_) {
        return absl::ResourceExhaustedError(
            absl::StrCat(stream_.path(), ":", line_number_ + 1, ": line over ",
                         max_line_bytes_, " bytes"));
      }
      line.append(from, n);
      begin_ += n;
      if (newline != nullptr) {
        ++begin_;
        ++line_number_;
        terminated_ = true;
        return true;
      }
    }
  }

  int64_t line_number() const override { return line_number_; }
  bool terminated() const override { return terminated_; }
  int64_t file_offset() const override { return stream_.file_offset(); }

 private:
  GzStream stream_;
  size_t max_line_bytes_;
  std::vector<char> buffer_;
  size_t begin_ = 0;
  size_t end_ = 0;
  int64_t line_number_ = 0;
  bool terminated_ = false;
};

}  // namespace

absl::StatusOr<std::string> ReadFile(const std::string& path,
                                     uint64_t max_bytes) {
  FORETOKEN_ASSIGN_OR_RETURN(GzStream stream, GzStream::Open(path));
  std::string bytes;
  std::vector<char> chunk(kChunkBytes);
  while (true) {
    FORETOKEN_ASSIGN_OR_RETURN(
        const size_t n,
        stream.Read(chunk.data(), static_cast<unsigned>(chunk.size())));
    if (n == 0) return bytes;
    if (bytes.size() + n > max_bytes) {
      return absl::ResourceExhaustedError(
          absl::StrCat(path, ": over ", max_bytes, " bytes"));
    }
    bytes.append(chunk.data(), n);
  }
}

absl::Status WriteFileAtomically(const std::string& path,
                                 absl::string_view bytes) {
  std::string temporary = absl::StrCat(path, ".XXXXXX");
  const int fd = mkostemp(temporary.data(), O_CLOEXEC);
  if (fd < 0) {
    return absl::ErrnoToStatus(errno, absl::StrCat(temporary, ": create"));
  }
  auto fail = [&](const char* what) {
    const int error = errno;
    close(fd);
    unlink(temporary.c_str());
    return absl::ErrnoToStatus(error, absl::StrCat(temporary, ": ", what));
  };
  size_t done = 0;
  while (done < bytes.size()) {
    const ssize_t n = write(fd, bytes.data() + done, bytes.size() - done);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return fail("write");
    done += static_cast<size_t>(n);
  }
  if (fchmod(fd, 0644) != 0) return fail("chmod");
  if (fsync(fd) != 0) return fail("fsync");
  if (rename(temporary.c_str(), path.c_str()) != 0) return fail("rename");
  close(fd);
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<LineReader>> LineReader::Open(
    const std::string& path, size_t max_line_bytes) {
  FORETOKEN_ASSIGN_OR_RETURN(GzStream stream, GzStream::Open(path));
  return std::make_unique<GzLineReader>(std::move(stream), max_line_bytes);
}

}  // namespace foretoken
