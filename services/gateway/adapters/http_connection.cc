#include "services/gateway/adapters/http_connection.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <boost/asio/buffer.hpp>
#include <boost/asio/generic/stream_protocol.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/beast/http.hpp>
#include <chrono>
#include <optional>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "common/base/clock.h"
#include "common/net/http_text.h"
#include "common/net/peer_name.h"
#include "services/gateway/adapters/client_socket.h"
#include "services/gateway/adapters/http_answer.h"
#include "services/gateway/adapters/reader_deadline.h"
#include "services/gateway/adapters/tls_sessions.h"
#include "services/gateway/adapters/tls_socket.h"
#include "services/gateway/core/api_error.h"

namespace foretoken::gateway::beast_server {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = boost::beast::http;
using boost::system::error_code;
using Timer =
    asio::basic_waitable_timer<std::chrono::steady_clock,
                               asio::wait_traits<std::chrono::steady_clock>,
                               asio::io_context::executor_type>;

// Unsent bytes that the kernel takes for a socket.
constexpr int kKernelUnsent = 16 << 10;

constexpr size_t kReadBytes = size_t{16} << 10;
// Limit of bytes that may arrive before an earlier request is answered.
constexpr size_t kAheadBytes = size_t{64} << 10;
// Bytes that a client may still send after the last answer of its connection,
// and the time it gets to read that and close. If the server closed at once,
// the kernel would answer bytes that are under way or unread, such as a next
// request, with a reset, and the client would lose what it has not read (RFC
// 9112 9.6).
constexpr size_t kLingerBytes = size_t{16} << 20;
constexpr absl::Duration kLingerTime = absl::Seconds(2);
constexpr absl::Time kNever = absl::InfiniteFuture();
// Characters of a host and a port other than letters and digits.
constexpr absl::string_view kHostMarks = "-._~%!$&'()*+,;=:[]";
constexpr absl::string_view kContinue = "HTTP/1.1 100 Continue\r\n\r\n";

// Takes scheme and authority off a target in absolute form (RFC 9112 3.2.2),
// which names the host in place of the Host header, and returns the authority;
// empty for any other form.
absl::string_view TakeAuthority(absl::string_view& target) {
  for (const absl::string_view scheme : {"http://", "https://"}) {
    if (!absl::StartsWithIgnoreCase(target, scheme)) continue;
    const absl::string_view rest = target.substr(scheme.size());
    const size_t end = std::min(rest.find_first_of("/?"), rest.size());
    const bool has_path = end < rest.size() && rest[end] == '/';
    target = has_path ? rest.substr(end) : absl::string_view("/");
    return rest.substr(0, end);
  }
  return "";
}

// Whether a Host header holds no more than a host and a port (RFC 9112 3.2). It
// may be empty.
bool IsHostValue(absl::string_view value) {
  return std::all_of(value.begin(), value.end(), [](char c) {
    return absl::ascii_isalnum(static_cast<unsigned char>(c)) ||
           kHostMarks.find(c) != absl::string_view::npos;
  });
}

// A body of whatever length its sender announces takes memory as it arrives.
struct ArrivingBody : http::string_body {
  struct reader : http::string_body::reader {
    using http::string_body::reader::reader;
    void init(const boost::optional<uint64_t>& /*length*/, error_code& error) {
      error = {};
    }
  };
};

class BeastConnection final
    : public Connection,
      public Link,
      public std::enable_shared_from_this<BeastConnection> {
 public:
  BeastConnection(Shared& shared, asio::io_context& io,
                  std::unique_ptr<ClientSocket> socket, std::string peer)
      : shared_(shared),
        io_(io),
        socket_(std::move(socket)),
        timer_(io),
        peer_(std::move(peer)) {
    shared_.observer.OnConnections(1);
  }
  ~BeastConnection() override { shared_.observer.OnConnections(-1); }

  void Start(Closed closed) override {
    closed_ = std::move(closed);
    SetDeadline(MonotonicNow() + shared_.options.request_time);
    socket_->Handshake([self = shared_from_this()](const error_code& error) {
      if (self->state_ == State::kClosed) return;
      if (error) {
        self->Close();
      } else {
        self->AwaitRequest();
      }
    });
  }

  void PostFlush(std::shared_ptr<Exchange> exchange) override {
    asio::post(io_,
               [self = shared_from_this(), exchange = std::move(exchange)] {
                 if (exchange == self->exchange_) self->Flush();
               });
  }

  void CloseIdle() override {
    if (state_ == State::kIdle) Close();
  }

  void Close() override {
    if (state_ == State::kClosed) return;
    if (state_ == State::kLingering) --shared_.lingering;
    state_ = State::kClosed;
    const std::shared_ptr<Exchange> exchange = std::move(exchange_);
    // First: the descriptor may be another file's once it is closed.
    const bool cut_off = exchange != nullptr && exchange->Drop();
    socket_->Close(/*whole=*/exchange == nullptr);
    timer_.cancel();
    if (exchange != nullptr) --shared_.active;
    if (cut_off) {
      if (const auto observer = exchange->observer()) observer->OnGone();
    }
    closed_(shared_from_this());
  }

 private:
  // kIdle: also in the handshake.
  enum class State { kIdle, kReading, kAnswering, kLingering, kClosed };
  using Parser = http::request_parser<ArrivingBody>;

  // --- Deadlines -------------------------------------------------------------
  // One timer that may fire early: it then waits for the rest. Moving a
  // deadline costs nothing that way.

  void SetDeadline(absl::Time deadline) {
    deadline_ = deadline;
    if (deadline < fires_) ArmTimer();
  }
  void ArmTimer() {
    fires_ = deadline_;
    timer_.expires_after(absl::ToChronoNanoseconds(deadline_ - MonotonicNow()));
    timer_.async_wait([self = shared_from_this()](const error_code& error) {
      if (!error) self->OnTimer();
    });
  }
  void OnTimer() {
    fires_ = kNever;
    if (state_ == State::kClosed || deadline_ == kNever) return;
    if (MonotonicNow() < deadline_) {
      ArmTimer();
    } else if (state_ == State::kReading) {
      Reject(408, "the request did not arrive in time");
    } else {
      Close();  // idle, or takes nothing
    }
  }

  // --- Reading ---------------------------------------------------------------

  // Reads what comes next, unless a read is under way.
  void Read() {
    if (std::exchange(reading_, true)) return;
    socket_->ReadSome(
        asio::buffer(in_),
        [self = shared_from_this()](const error_code& error, size_t bytes) {
          self->reading_ = false;
          self->OnRead(error, bytes);
        });
  }
  void OnRead(const error_code& error, size_t bytes) {
    if (state_ == State::kClosed) return;
    if (error) {
      Close();
      return;
    }
    if (lingers_) {
      lingered_ += bytes;
      if (lingered_ > kLingerBytes) {
        Close();
      } else {
        Read();
      }
      return;
    }
    unread_.append(in_.data(), bytes);
    if (state_ == State::kIdle) {
      BeginRequest();
    } else if (state_ == State::kReading) {
      Parse();
    } else if (unread_.size() > kAheadBytes) {
      Close();
    } else {
      Read();
    }
  }

  void AwaitRequest() {
    if (shared_.draining) {
      Close();
      return;
    }
    state_ = State::kIdle;
    SetDeadline(MonotonicNow() + shared_.options.idle_time);
    BeginRequest();
  }
  // The request that begins in what has been read, or in what will be.
  void BeginRequest() {
    // Empty lines may precede it: old clients put one after a body.
    unread_.erase(0, unread_.find_first_not_of("\r\n"));
    if (unread_.empty()) {
      Read();
      return;
    }
    state_ = State::kReading;
    SetDeadline(MonotonicNow() + shared_.options.request_time);
    parser_.emplace();
    parser_->header_limit(
        static_cast<uint32_t>(shared_.options.max_header_bytes));
    parser_->body_limit(static_cast<uint64_t>(shared_.options.max_body_bytes));
    Parse();
  }
  void Parse() {
    while (!unread_.empty() && !continuing_) {
      if (head_.has_value() && !ChargeBody()) return;
      if (!head_.has_value() && HasFoldedLine()) {
        Reject(400, "a header's line begins with a space");
        return;
      }
      error_code error;
      const size_t used = parser_->put(
          asio::const_buffer(unread_.data(), unread_.size()), error);
      unread_.erase(0, used);
      if (error == http::error::need_more) break;
      if (error) {
        RejectBad(error);
        return;
      }
      if (!head_.has_value() && !OnHeader()) return;
      if (parser_->is_done()) {
        OnRequest();
        return;
      }
    }
    if (unread_.size() >
        kAheadBytes + static_cast<size_t>(shared_.options.max_header_bytes)) {
      Reject(431, "the lines between chunks are too long");
      return;
    }
    if (!continuing_) Read();
  }

  // Whether the head in `unread_`, as far as it has arrived, has a line that
  // continues the one before (obs-fold, RFC 9112 5.2): servers read such lines
  // differently.
  bool HasFoldedLine() const {
    const absl::string_view unread = unread_;
    // The parser has taken all lines but the empty one: this is the body.
    if (absl::StartsWith(unread, "\r\n")) return false;
    const absl::string_view head = unread.substr(0, unread.find("\r\n\r\n"));
    return absl::StrContains(head, "\n ") || absl::StrContains(head, "\n\t");
  }
  // The request without its body; as much as is there.
  HttpRequest Head() {
    const auto& message = parser_->get();
    HttpRequest head;
    head.method = std::string(message.method_string());
    absl::string_view target(message.target().data(), message.target().size());
    const absl::string_view host = TakeAuthority(target);
    head.path = std::string(target.substr(0, target.find('?')));
    for (const auto& field : message) {
      const bool replaced = !host.empty() && field.name() == http::field::host;
      head.headers.emplace_back(
          std::string(field.name_string()),
          replaced ? std::string(host) : std::string(field.value()));
    }
    if (!host.empty() && message.count(http::field::host) == 0) {
      head.headers.emplace_back("Host", std::string(host));
    }
    head.peer = peer_;
    return head;
  }
  // Whether the end of the body is beyond doubt. Servers that disagree on where
  // it ends enable request smuggling.
  bool BodyIsFramed() const {
    const auto& message = parser_->get();
    const auto codings = message.count(http::field::transfer_encoding);
    if (codings == 0) return true;
    return codings == 1 && message.version() >= 11 &&
           message.count(http::field::content_length) == 0 &&
           beast::iequals(message[http::field::transfer_encoding], "chunked");
  }
  // False if the body is not to be read on.
  bool OnHeader() {
    if (!BodyIsFramed()) {
      Reject(400,
             "want Transfer-Encoding: chunked of HTTP/1.1, or Content-Length");
      return false;
    }
    const auto& message = parser_->get();
    const auto hosts = message.count(http::field::host);
    if (hosts > 1 || (hosts == 0 && message.version() >= 11)) {
      Reject(400, "want one Host");
      return false;
    }
    const auto host = message[http::field::host];
    if (!IsHostValue({host.data(), host.size()})) {
      Reject(400, "want a name or an address, and maybe a port, in Host");
      return false;
    }
    // If there are two, a proxy may have checked one and we the other.
    if (message.count(http::field::authorization) > 1) {
      Reject(400, "want one Authorization");
      return false;
    }
    const auto codings = message.equal_range(http::field::content_encoding);
    for (auto field = codings.first; field != codings.second; ++field) {
      const auto coding = field->value();
      if (coding.empty() || beast::iequals(coding, "identity")) continue;
      Reject(415, "want a body without Content-Encoding");
      return false;
    }
    head_ = Head();
    std::string owner = peer_;
    const auto length = parser_->content_length();
    body_bytes_ = length.has_value() ? static_cast<int64_t>(*length)
                                     : shared_.options.max_body_bytes;
    if (!parser_->is_done()) {
      std::optional<std::string> found = shared_.handler.BodyOwner(*head_);
      if (!found.has_value()) {
        Deliver(/*complete=*/false);
        return false;
      }
      owner = *std::move(found);
    }
    absl::StatusOr<ByteBudget::Share> memory = shared_.memory.Take(owner, 1);
    if (!memory.ok()) {
      RejectBody(memory.status());
      return false;
    }
    memory_ = *std::move(memory);
    parser_->eager(true);
    if (!parser_->is_done() &&
        http::token_list(parser_->get()[http::field::expect])
            .exists("100-continue")) {
      Continue();
      return false;
    }
    return true;
  }
  void Continue(size_t sent = 0) {
    continuing_ = true;
    socket_->WriteSome(asio::buffer(kContinue.data(), kContinue.size()) + sent,
                       [self = shared_from_this(), sent](
                           const error_code& error, size_t bytes) {
                         self->OnContinued(error, sent + bytes);
                       });
  }
  void OnContinued(const error_code& error, size_t sent) {
    if (state_ == State::kClosed) return;
    if (error) {
      Close();
    } else if (sent < kContinue.size()) {
      Continue(sent);
    } else {
      continuing_ = false;
      if (state_ == State::kReading) Parse();
    }
  }
  // Takes memory for what of the body has arrived. False: rejected.
  bool ChargeBody() {
    const int64_t arrived =
        static_cast<int64_t>(parser_->get().body().size() + unread_.size());
    const int64_t bytes =
        std::min(arrived, body_bytes_) * kMemoryPerBodyByte + 1;
    if (bytes <= memory_.bytes()) return true;
    const absl::Status taken = memory_.Resize(bytes);
    if (!taken.ok()) RejectBody(taken);
    return taken.ok();
  }
  void OnRequest() {
    head_->body = std::move(parser_->get().body());
    const absl::Status smaller = memory_.Resize(
        static_cast<int64_t>(head_->body.size()) * kMemoryPerBodyByte + 1);
    if (!smaller.ok()) {
      RejectBody(smaller);
      return;
    }
    Deliver(/*complete=*/true);
  }
  // Hands the request to the handler. If it is not `complete`, the rest of its
  // body is dropped and the connection closes after the answer.
  void Deliver(bool complete) {
    const auto& message = parser_->get();
    Exchange::Form form;
    form.chunked = message.version() >= 11;
    form.keep_alive =
        complete && form.chunked && message.keep_alive() && !shared_.draining;
    form.head = message.method() == http::verb::head;
    form.fd = socket_->plain_fd();
    HttpRequest request = *std::move(head_);
    request.memory = std::move(memory_);
    BeginAnswer(form, /*lingers=*/!complete);
    shared_.handler.Handle(std::move(request), exchange_);
  }

  // --- Refusals --------------------------------------------------------------

  void RejectBad(const error_code& error) {
    if (error == http::error::header_limit) {
      Reject(431, "the headers are too large");
    } else if (error == http::error::body_limit) {
      Reject(413, absl::StrCat("the body is over ",
                               shared_.options.max_body_bytes, " bytes"));
    } else {
      Reject(400, absl::StrCat("bad HTTP: ", error.message()));
    }
  }
  void RejectBody(const absl::Status& status) {
    Reject(absl::IsResourceExhausted(status) ? 429 : 413,
           "no room for the body");
  }
  // Answers a request that the handler does not see, and closes.
  void Reject(int status, absl::string_view message) {
    if (continuing_) {  // an answer would overtake it
      Close();
      return;
    }
    shared_.observer.OnRejected(status);
    const HttpRequest head = head_.has_value() ? *std::move(head_) : Head();
    ApiError error;
    error.http_status = status;
    error.type = "invalid_request_error";
    error.message = std::string(message);
    HttpResponse response;
    response.status = status;
    response.headers = shared_.handler.HeadersOfRefusal(head);
    if (status == 429) response.headers.emplace_back("Retry-After", "1");
    response.body = shared_.handler.BodyOfRefusal(head, error);
    memory_.Release();
    Exchange::Form form;
    form.keep_alive = false;
    BeginAnswer(form, /*lingers=*/true);
    exchange_->Respond(std::move(response));
  }

  // --- Answers ---------------------------------------------------------------

  // `lingers`: what the client still sends belongs to a request that is not
  // read any further.
  void BeginAnswer(Exchange::Form form, bool lingers) {
    parser_.reset();
    head_.reset();
    lingers_ = lingers;
    if (lingers_) unread_.clear();
    state_ = State::kAnswering;
    SetDeadline(kNever);
    ++shared_.active;
    exchange_ = std::make_shared<Exchange>(shared_from_this(), form);
    reader_.emplace(shared_.options.send_timeout, shared_.options.max_pause);
    Read();
  }

  void Flush() {
    if (state_ != State::kAnswering) return;
    reader_->SetPaused(exchange_->waited_for(), MonotonicNow());
    if (writing_) {
      SetDeadline(reader_->deadline());
      return;
    }
    Exchange::Taken taken = exchange_->Take();
    ended_ = taken.ended;
    out_ = std::move(taken.bytes);
    sent_ = 0;
    if (taken.room) {
      reader_->SetPaused(false, MonotonicNow());
      if (const auto observer = exchange_->observer()) observer->OnRoom();
    }
    if (out_.empty()) {
      reader_->OnAllTaken();
      SetDeadline(reader_->deadline());
      if (ended_) FinishAnswer();
      return;
    }
    writing_ = true;
    reader_->OnOffer(MonotonicNow());
    WriteSome();
  }
  void WriteSome() {
    SetDeadline(reader_->deadline());
    socket_->WriteSome(
        asio::buffer(out_) + sent_,
        [self = shared_from_this()](const error_code& error, size_t bytes) {
          self->OnWritten(error, bytes);
        });
  }
  void OnWritten(const error_code& error, size_t bytes) {
    if (state_ != State::kAnswering) return;
    if (error) {
      Close();
      return;
    }
    sent_ += bytes;
    if (sent_ < out_.size()) {
      reader_->OnTaken(bytes, MonotonicNow());
      WriteSome();
      return;
    }
    writing_ = false;
    Flush();  // what came in the meantime
  }

  void FinishAnswer() {
    const bool keep_alive = exchange_->keep_alive() && !shared_.draining;
    exchange_->OnSent();
    exchange_.reset();
    if (keep_alive) {
      --shared_.active;
      AwaitRequest();
    } else {
      Linger();
    }
  }
  void Linger() {
    state_ = State::kLingering;
    ++shared_.lingering;  // first: a drain waits until both are zero
    --shared_.active;
    lingers_ = true;
    unread_.clear();
    socket_->ShutdownSend();
    SetDeadline(MonotonicNow() + kLingerTime);
    Read();
  }

  Shared& shared_;
  asio::io_context& io_;
  const std::unique_ptr<ClientSocket> socket_;
  Timer timer_;
  const std::string peer_;
  Closed closed_;
  State state_ = State::kIdle;
  absl::Time deadline_ = kNever;
  absl::Time fires_ = kNever;  // when the timer does

  std::array<char, kReadBytes> in_;
  bool reading_ = false;  // into in_
  std::string unread_;    // received, not parsed
  // The request being read.
  std::optional<Parser> parser_;
  std::optional<HttpRequest> head_;  // once the headers are in
  int64_t body_bytes_ = 0;           // at most
  ByteBudget::Share memory_;
  bool continuing_ = false;  // "100 Continue" is being written

  // The answer being given.
  std::shared_ptr<Exchange> exchange_;
  std::optional<ReaderDeadline> reader_;
  std::string out_;  // being written
  size_t sent_ = 0;  // of it
  bool writing_ = false;
  bool ended_ = false;
  bool lingers_ = false;  // what comes is dropped
  size_t lingered_ = 0;
};

// The answer to HTTP on a port of TLS.
std::string WantTls() {
  ApiError error;
  error.type = "invalid_request_error";
  error.message = "this port speaks TLS: want https://";
  return net::LastAnswer(400, "application/json", error.Json());
}

}  // namespace

std::shared_ptr<Connection> MakeConnection(Shared& shared,
                                           boost::asio::io_context& io,
                                           int fd) {
  sockaddr_storage address{};
  socklen_t length = sizeof(address);
  getsockname(fd, reinterpret_cast<sockaddr*>(&address), &length);
  const bool tcp = address.ss_family != AF_UNIX;
  if (tcp) {
    // A slow reader's bytes wait here, where they are counted.
    setsockopt(fd, IPPROTO_TCP, TCP_NOTSENT_LOWAT, &kKernelUnsent,
               sizeof(kKernelUnsent));
  }
  Socket socket(io);
  error_code error;
  socket.assign(
      asio::generic::stream_protocol(address.ss_family, tcp ? IPPROTO_TCP : 0),
      fd, error);
  if (error) {
    close(fd);
    return nullptr;
  }
  std::unique_ptr<ClientSocket> client =
      shared.tls == nullptr
          ? MakePlainSocket(std::move(socket))
          : MakeTlsSocket(std::move(socket), shared.tls->New(), WantTls());
  if (client == nullptr) return nullptr;
  return std::make_shared<BeastConnection>(shared, io, std::move(client),
                                           net::PeerOfSocket(fd));
}

}  // namespace foretoken::gateway::beast_server
