#include "common/base/file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"

namespace foretoken {
namespace {

constexpr size_t kChunkBytes = size_t{256} << 10;

// GzStream: the bytes of a file, inflated if it is gzip. zlib's own gzFile
// reports a truncated stream as a normal end of file and ignores data after
// the first member; a corpus must not lose text silently.
class GzStream {
 public:
  // `regular`: refuses pipes, devices and folders, which may block or never
  // end.
  static absl::StatusOr<std::unique_ptr<GzStream>> Open(const std::string& path,
                                                        bool regular) {
    const bool standard_input = path == "-";
    // With O_NONBLOCK, a pipe without a writer does not block the open itself;
    // regular files ignore it.
    const int fd = standard_input
                       ? dup(STDIN_FILENO)
                       : open(path.c_str(), O_RDONLY | O_CLOEXEC |
                                                (regular ? O_NONBLOCK : 0));
    if (fd < 0) return absl::ErrnoToStatus(errno, absl::StrCat(path, ": open"));
    std::unique_ptr<GzStream> stream(new GzStream(fd, path));
    struct stat info;
    if (regular && !standard_input &&
        (fstat(fd, &info) != 0 || !S_ISREG(info.st_mode))) {
      return absl::InvalidArgumentError(
          absl::StrCat(path, ": not a regular file"));
    }
    // The two magic bytes decide between gzip and plain; a pipe may deliver
    // them one at a time.
    while (stream->end_ < kMagicBytes && !stream->at_end_) {
      FORETOKEN_RETURN_IF_ERROR(stream->Fill());
    }
    if (stream->AtMagic()) {
      FORETOKEN_RETURN_IF_ERROR(stream->StartInflating());
    } else if (absl::EndsWith(path, ".gz")) {
      return stream->Broken("no gzip header");
    }
    return stream;
  }

  GzStream(const GzStream&) = delete;
  GzStream& operator=(const GzStream&) = delete;
  ~GzStream() {
    if (fd_ >= 0) close(fd_);
  }

  // Returns the number of bytes read, 0 at the end.
  absl::StatusOr<size_t> Read(char* out, size_t size) {
    return inflater_ == nullptr ? ReadPlain(out, size) : Inflate(out, size);
  }

  const std::string& path() const { return path_; }
  int64_t file_offset() const { return file_offset_ - (end_ - begin_); }

 private:
  static constexpr int kMagicBytes = 2;
  struct EndInflate {
    void operator()(z_stream* stream) const {
      inflateEnd(stream);
      delete stream;
    }
  };

  GzStream(int fd, std::string path)
      : fd_(fd), path_(std::move(path)), input_(kChunkBytes) {}

  // Moves the unread bytes to the front of input_ and reads more after them,
  // or sets at_end_.
  absl::Status Fill() {
    if (begin_ > 0) {
      std::memmove(input_.data(), input_.data() + begin_, end_ - begin_);
      end_ -= begin_;
      begin_ = 0;
    }
    ssize_t n = 0;
    do {
      n = read(fd_, input_.data() + end_, input_.size() - end_);
    } while (n < 0 && errno == EINTR);
    if (n < 0) return absl::ErrnoToStatus(errno, absl::StrCat(path_, ": read"));
    at_end_ = n == 0;
    end_ += n;
    file_offset_ += n;
    return absl::OkStatus();
  }

  bool AtMagic() const {
    return end_ - begin_ >= kMagicBytes && input_[begin_] == 0x1f &&
           input_[begin_ + 1] == 0x8b;
  }

  absl::Status StartInflating() {
    inflater_.reset(new z_stream());
    // Added to windowBits, 16 makes zlib expect a gzip header and trailer.
    constexpr int kGzipHeader = 16;
    if (inflateInit2(inflater_.get(), kGzipHeader + MAX_WBITS) != Z_OK) {
      return absl::ResourceExhaustedError(
          absl::StrCat(path_, ": no memory to decompress"));
    }
    in_member_ = true;
    return absl::OkStatus();
  }

  absl::StatusOr<size_t> ReadPlain(char* out, size_t size) {
    if (begin_ == end_ && !at_end_) FORETOKEN_RETURN_IF_ERROR(Fill());
    const size_t n = std::min<size_t>(size, end_ - begin_);
    std::memcpy(out, input_.data() + begin_, n);
    begin_ += static_cast<int64_t>(n);
    return n;
  }

  absl::StatusOr<size_t> Inflate(char* out, size_t size) {
    z_stream& z = *inflater_;
    z.next_out = reinterpret_cast<Bytef*>(out);
    z.avail_out = static_cast<uInt>(size);
    // One call to inflate() may consume input without producing output, and a
    // member may be empty: loop until there is output.
    while (z.avail_out == size) {
      FORETOKEN_RETURN_IF_ERROR(FillAhead());
      if (!in_member_) {
        FORETOKEN_ASSIGN_OR_RETURN(const bool more, NextMember());
        if (!more) return size_t{0};
      }
      z.next_in = input_.data() + begin_;
      z.avail_in = static_cast<uInt>(end_ - begin_);
      const int code = inflate(&z, Z_NO_FLUSH);
      begin_ = end_ - z.avail_in;
      if (code == Z_STREAM_END) {
        in_member_ = false;
        // Z_BUF_ERROR asks for more input; with none left the file was cut off.
      } else if (code == Z_BUF_ERROR && at_end_) {
        return Broken("truncated");
      } else if (code != Z_OK && code != Z_BUF_ERROR) {
        return Broken(z.msg == nullptr ? "no memory" : z.msg);
      }
    }
    return size - z.avail_out;
  }

  // Buffers at least the two magic bytes, unless the file ends before.
  absl::Status FillAhead() {
    while (end_ - begin_ < kMagicBytes && !at_end_) {
      FORETOKEN_RETURN_IF_ERROR(Fill());
    }
    return absl::OkStatus();
  }

  // Starts the next member, if there is one: gzip files may be concatenated.
  // Trailing zeros are padding (tape blocks); any other trailing bytes are
  // damage.
  absl::StatusOr<bool> NextMember() {
    if (AtMagic()) {
      inflateReset(inflater_.get());
      in_member_ = true;
      return true;
    }
    while (true) {
      for (; begin_ < end_; ++begin_) {
        if (input_[begin_] != 0) return Broken("data behind its end");
      }
      if (at_end_) return false;
      FORETOKEN_RETURN_IF_ERROR(Fill());
    }
  }

  absl::Status Broken(const char* why) const {
    return absl::InvalidArgumentError(
        absl::StrCat(path_, ": broken gzip stream: ", why));
  }

  int fd_;
  std::string path_;
  std::vector<uint8_t> input_;
  int64_t begin_ = 0;  // first unread byte of input_
  int64_t end_ = 0;
  bool at_end_ = false;     // of the file
  bool in_member_ = false;  // between a member's header and trailer
  int64_t file_offset_ = 0;
  std::unique_ptr<z_stream, EndInflate> inflater_;  // null for a plain file
};

class GzLineReader : public LineReader {
 public:
  GzLineReader(std::unique_ptr<GzStream> stream, size_t max_line_bytes)
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
            end_, stream_->Read(buffer_.data(), buffer_.size()));
        begin_ = 0;
        if (end_ == 0) {
          if (any) ++line_number_;
          return any;
        }
      }
      const char* from = buffer_.data() + begin_;
      const void* newline = std::memchr(from, '\n', end_ - begin_);
      const size_t n = newline == nullptr
                           ? end_ - begin_
                           : static_cast<const char*>(newline) - from;
      // Skip the rest of a line that was reported as too long.
      if (in_long_line_) {
        begin_ += n + (newline != nullptr);
        in_long_line_ = newline == nullptr;
        continue;
      }
      any = true;
      if (line.size() + n > max_line_bytes_) {
        in_long_line_ = true;
        ++line_number_;
        line.clear();
        return absl::ResourceExhaustedError(
            absl::StrCat(stream_->path(), ":", line_number_, ": line over ",
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
  int64_t file_offset() const override { return stream_->file_offset(); }

 private:
  const std::unique_ptr<GzStream> stream_;
  size_t max_line_bytes_;
  std::vector<char> buffer_;
  size_t begin_ = 0;
  size_t end_ = 0;
  int64_t line_number_ = 0;
  bool terminated_ = false;
  bool in_long_line_ = false;  // skipping the rest of a line that is too long
};

}  // namespace

absl::StatusOr<std::string> ReadFile(const std::string& path,
                                     uint64_t max_bytes) {
  FORETOKEN_ASSIGN_OR_RETURN(std::unique_ptr<GzStream> stream,
                             GzStream::Open(path, /*regular=*/true));
  std::string bytes;
  std::vector<char> chunk(kChunkBytes);
  while (true) {
    FORETOKEN_ASSIGN_OR_RETURN(const size_t n,
                               stream->Read(chunk.data(), chunk.size()));
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
  // write() may write less than asked; the file is complete only at the end.
  size_t done = 0;
  while (done < bytes.size()) {
    const ssize_t n = write(fd, bytes.data() + done, bytes.size() - done);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return fail("write");
    done += static_cast<size_t>(n);
  }
  // mkostemp creates the file with mode 0600, but readers may run as other
  // users. The data must reach the disk before the new name does, or a crash
  // could leave an empty file under it.
  if (fchmod(fd, 0644) != 0) return fail("chmod");
  if (fsync(fd) != 0) return fail("fsync");
  if (rename(temporary.c_str(), path.c_str()) != 0) return fail("rename");
  close(fd);
  return absl::OkStatus();
}

absl::StatusOr<int> OpenLocked(const std::string& path) {
  while (true) {
    const int fd =
        open(path.c_str(), O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0) return absl::ErrnoToStatus(errno, absl::StrCat(path, ": open"));
    if (flock(fd, LOCK_EX | LOCK_NB) != 0) {
      const int error = errno;
      close(fd);
      if (error != EWOULDBLOCK) {
        return absl::ErrnoToStatus(error, absl::StrCat(path, ": lock"));
      }
      return absl::AbortedError(
          absl::StrCat(path, ": locked by another process"));
    }
    // The previous holder may have removed or renamed the file before it
    // released the lock. Then this lock is on a file that `path` no longer
    // names: retry.
    struct stat held;
    struct stat named;
    if (fstat(fd, &held) == 0 && lstat(path.c_str(), &named) == 0 &&
        held.st_dev == named.st_dev && held.st_ino == named.st_ino) {
      return fd;
    }
    close(fd);
  }
}

absl::StatusOr<std::unique_ptr<LineReader>> LineReader::Open(
    const std::string& path, size_t max_line_bytes) {
  FORETOKEN_ASSIGN_OR_RETURN(std::unique_ptr<GzStream> stream,
                             GzStream::Open(path, /*regular=*/false));
  return std::make_unique<GzLineReader>(std::move(stream), max_line_bytes);
}

}  // namespace foretoken
