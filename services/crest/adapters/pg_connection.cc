#include "services/crest/adapters/pg_connection.h"

#include <libpq-fe.h>
#include <poll.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "common/base/bytes.h"
#include "common/base/clock.h"
#include "common/base/status_macros.h"

namespace foretoken::crest {
namespace {

// Type oids of PostgreSQL's catalogue (pg_type.dat), fixed for ever.
constexpr uint32_t kByteaOid = 17;
constexpr uint32_t kInt8Oid = 20;
constexpr uint32_t kTextOid = 25;
constexpr uint32_t kInt8ArrayOid = 1016;

// Status code for a SQLSTATE (PostgreSQL manual, appendix A). Class 08:
// connection exception; 57P: the server is shutting down, has crashed or is
// starting; 53: out of disk, memory or connections; 57014: cancelled by
// statement_timeout; 25006: read-only transaction; 42P01 and 3F000: no such
// table or schema; 42501 and class 28: privilege and authorization; 55P03: lock
// not available; class 40: rolled back (deadlock, serialization).
absl::StatusCode CodeOf(absl::string_view state) {
  if (absl::StartsWith(state, "08") || absl::StartsWith(state, "57P")) {
    return absl::StatusCode::kUnavailable;
  }
  if (absl::StartsWith(state, "53")) {
    return absl::StatusCode::kResourceExhausted;
  }
  if (state == "57014") return absl::StatusCode::kDeadlineExceeded;
  if (state == "25006" || state == "42P01" || state == "3F000") {
    return absl::StatusCode::kFailedPrecondition;
  }
  if (state == "42501" || absl::StartsWith(state, "28")) {
    return absl::StatusCode::kPermissionDenied;
  }
  if (state == "55P03" || absl::StartsWith(state, "40")) {
    return absl::StatusCode::kAborted;
  }
  return absl::StatusCode::kInternal;
}

std::string OneLine(absl::string_view text) {
  std::string line(absl::StripSuffix(text, "\n"));
  std::replace(line.begin(), line.end(), '\n', ' ');
  return line;
}

// The parallel arrays that libpq takes. They point into `params`, which must
// outlive them. Format 1 is binary.
struct RawParams {
  explicit RawParams(const std::vector<PgParam>& params) {
    for (const PgParam& param : params) {
      types.push_back(param.type);
      values.push_back(param.bytes.data());
      lengths.push_back(static_cast<int>(param.bytes.size()));
      formats.push_back(1);
    }
  }
  std::vector<Oid> types;
  std::vector<const char*> values;
  std::vector<int> lengths;
  std::vector<int> formats;
};

}  // namespace

PgParam PgParam::Text(absl::string_view text) {
  return {kTextOid, std::string(text)};
}

PgParam PgParam::Bytea(absl::string_view bytes) {
  return {kByteaOid, std::string(bytes)};
}

PgParam PgParam::Int8(int64_t value) {
  PgParam param{kInt8Oid, {}};
  AppendBigEndian(value, param.bytes);
  return param;
}

// Binary form of bigint[] (array_send in arrayfuncs.c): dimensions, null flag
// and element type, then size and lower bound of the dimension, then every
// element with its length.
PgParam PgParam::Int8Array(const std::vector<int64_t>& values) {
  PgParam param{kInt8ArrayOid, {}};
  AppendBigEndian<int32_t>(1, param.bytes);  // dimensions
  AppendBigEndian<int32_t>(0, param.bytes);  // no nulls
  AppendBigEndian<uint32_t>(kInt8Oid, param.bytes);
  AppendBigEndian<int32_t>(static_cast<int32_t>(values.size()), param.bytes);
  AppendBigEndian<int32_t>(1, param.bytes);  // lower bound
  for (const int64_t value : values) {
    AppendBigEndian<int32_t>(8, param.bytes);
    AppendBigEndian(value, param.bytes);
  }
  return param;
}

PgResult::PgResult(PGresult* result) : result_(result, &PQclear) {}

int PgResult::rows() const { return PQntuples(result_.get()); }

int64_t PgResult::Int8(int row, int column) const {
  return static_cast<int64_t>(FromBigEndian(AsBytes(Bytes(row, column))));
}

absl::string_view PgResult::Bytes(int row, int column) const {
  return {PQgetvalue(result_.get(), row, column),
          static_cast<size_t>(PQgetlength(result_.get(), row, column))};
}

namespace {

// Rejects a URL that libpq would quote in an error, password included, or take
// for a database name because it has no scheme.
absl::Status CheckUrl(const std::string& url) {
  char* error = nullptr;
  PQconninfoOption* options = PQconninfoParse(url.c_str(), &error);
  const bool parsed = options != nullptr;
  PQconninfoFree(options);
  PQfreemem(error);
  // A password with an unescaped '@' or '/' parses, but part of it becomes the
  // host, which connection errors show. The last '@' ends the user and
  // password, so no such character may come before it.
  const size_t scheme = url.find("://");
  bool bare = false;
  if (scheme != std::string::npos) {
    const absl::string_view rest = absl::string_view(url).substr(scheme + 3);
    const size_t at = rest.rfind('@');
    bare = at != absl::string_view::npos &&
           rest.substr(0, at).find_first_of("@/?") != absl::string_view::npos;
  }
  if (parsed && bare) {
    return absl::InvalidArgumentError(
        "PostgreSQL: the connection URL has '@', '/' or '?' in user, password "
        "or parameters: want them as %40, %2F and %3F");
  }
  if (parsed) return absl::OkStatus();
  return absl::InvalidArgumentError(
      "PostgreSQL: the connection URL cannot be parsed, want "
      "postgresql://USER:PASSWORD@HOST/DATABASE or keyword=value pairs");
}

}  // namespace

absl::StatusOr<std::unique_ptr<PgConnection>> PgConnection::Open(
    const std::string& url, absl::Duration timeout) {
  FORETOKEN_RETURN_IF_ERROR(CheckUrl(url));
  std::unique_ptr<PgConnection> connection(new PgConnection(url, timeout));
  FORETOKEN_RETURN_IF_ERROR(connection->Reopen());
  return connection;
}

absl::Status PgConnection::Reopen() {
  PQfinish(connection_);
  connection_ = nullptr;
  broken_ = false;
  const absl::Status status = Connect();
  broken_ = !status.ok();
  return status;
}

// Connects without blocking, to keep the deadline: libpq's own timeout is in
// whole seconds, at least 2.
absl::Status PgConnection::Connect() {
  const absl::Time deadline = MonotonicNow() + timeout_;
  // `dbname` may hold a whole URL (expand_dbname). Later keywords override
  // earlier ones, so application_name wins over one in the URL.
  const char* keywords[] = {"dbname", "application_name",
                            "fallback_application_name", nullptr};
  const char* values[] = {url_.c_str(), "foretoken-crest", "foretoken-crest",
                          nullptr};
  connection_ = PQconnectStartParams(keywords, values, /*expand_dbname=*/1);
  if (connection_ == nullptr) {
    return absl::ResourceExhaustedError("PostgreSQL: connect: no memory");
  }
  // PQconnectPoll's protocol begins as if it had asked to write.
  PostgresPollingStatusType next = PGRES_POLLING_WRITING;
  while (next != PGRES_POLLING_OK) {
    if (next == PGRES_POLLING_FAILED ||
        PQstatus(connection_) == CONNECTION_BAD) {
      return Lost("connect");
    }
    const absl::Status waited = Wait(
        next == PGRES_POLLING_READING ? POLLIN : POLLOUT, deadline, "connect");
    // A server that does not accept in time is as unavailable as one that
    // refuses: callers treat both alike.
    if (!waited.ok()) return absl::UnavailableError(waited.message());
    next = PQconnectPoll(connection_);
  }
  if (PQsetnonblocking(connection_, 1) != 0) return Lost("connect");
  // libpq prints notices to stderr by default.
  PQsetNoticeProcessor(
      connection_, [](void*, const char*) {}, nullptr);
  return absl::OkStatus();
}

PgConnection::~PgConnection() { PQfinish(connection_); }

absl::Status PgConnection::Lost(const std::string& what) {
  broken_ = true;
  return absl::UnavailableError(absl::StrCat(
      "PostgreSQL: ", what, ": ", OneLine(PQerrorMessage(connection_))));
}

absl::Status PgConnection::ErrorOf(const std::string& what,
                                   const PGresult* result) {
  const char* state = PQresultErrorField(result, PG_DIAG_SQLSTATE);
  // libpq's own errors have no SQLSTATE: they concern the connection.
  if (PQstatus(connection_) == CONNECTION_BAD) return Lost(what);
  const absl::StatusCode code =
      state == nullptr ? absl::StatusCode::kUnavailable : CodeOf(state);
  return absl::Status(code,
                      absl::StrCat("PostgreSQL: ", what, ": ",
                                   OneLine(PQresultErrorMessage(result))));
}

absl::Status PgConnection::Wait(int16_t events, absl::Time deadline,
                                const std::string& what) {
  while (true) {
    // Rounded up, so that a remaining fraction of a millisecond counts.
    const int64_t left_ms = absl::ToInt64Milliseconds(
        absl::Ceil(deadline - MonotonicNow(), absl::Milliseconds(1)));
    if (left_ms <= 0) {
      // The answer may still arrive and would be taken for that of the next
      // statement: give the connection up.
      broken_ = true;
      return absl::DeadlineExceededError(
          absl::StrCat("PostgreSQL: ", what, ": no answer in time"));
    }
    pollfd fd{PQsocket(connection_), events, 0};
    const int ready =
        poll(&fd, 1, static_cast<int>(std::min<int64_t>(left_ms, 1 << 30)));
    if (ready > 0) return absl::OkStatus();
    if (ready < 0 && errno != EINTR) return Lost(what);
  }
}

absl::Status PgConnection::Flush(absl::Time deadline, const std::string& what) {
  while (true) {
    const int state = PQflush(connection_);
    if (state == 0) return absl::OkStatus();
    if (state < 0) return Lost(what);
    FORETOKEN_RETURN_IF_ERROR(Wait(POLLIN | POLLOUT, deadline, what));
    // Read, too: the server may be blocked on output of its own and take no
    // input until that is read. Both would wait for ever.
    if (PQconsumeInput(connection_) == 0) return Lost(what);
  }
}

absl::StatusOr<PgResult> PgConnection::Collect(const std::string& what) {
  const absl::Time deadline = MonotonicNow() + timeout_;
  FORETOKEN_RETURN_IF_ERROR(Flush(deadline, what));
  // libpq requires PQgetResult until it returns null, also after an error. The
  // first error wins (Status::Update).
  PgResult last(nullptr);
  absl::Status status;
  while (true) {
    while (PQisBusy(connection_) == 1) {
      FORETOKEN_RETURN_IF_ERROR(Wait(POLLIN, deadline, what));
      if (PQconsumeInput(connection_) == 0) return Lost(what);
    }
    PGresult* raw = PQgetResult(connection_);
    if (raw == nullptr) break;
    last = PgResult(raw);
    switch (PQresultStatus(raw)) {
      case PGRES_COMMAND_OK:
      case PGRES_TUPLES_OK:
        break;
      // COPY has only begun: PQgetResult would return this state for ever.
      case PGRES_COPY_IN:
      case PGRES_COPY_OUT:
        return last;
      default:
        status.Update(ErrorOf(what, raw));
    }
  }
  if (!status.ok()) return status;
  return last;
}

absl::StatusOr<PgResult> PgConnection::Exec(
    const std::string& what, const std::string& sql,
    const std::vector<PgParam>& params) {
  const RawParams raw(params);
  if (broken_ || PQsendQueryParams(
                     connection_, sql.c_str(), static_cast<int>(params.size()),
                     raw.types.data(), raw.values.data(), raw.lengths.data(),
                     raw.formats.data(), /*resultFormat=*/1) == 0) {
    return Lost(what);
  }
  return Collect(what);
}

absl::Status PgConnection::InTransaction(
    absl::FunctionRef<absl::Status()> body) {
  FORETOKEN_RETURN_IF_ERROR(Run("begin", "BEGIN"));
  const absl::Status status = body();
  if (status.ok()) return Run("commit", "COMMIT");
  RollBack();
  return status;
}

// Ignores its own error: the one that caused the rollback says more, and the
// server rolls back anyway when the connection ends.
void PgConnection::RollBack() {
  if (!broken_) Run("roll back", "ROLLBACK").IgnoreError();
}

absl::Status PgConnection::LimitLockWaits(absl::Duration timeout) {
  return Run("limit waiting", absl::StrCat("SET LOCAL lock_timeout = ",
                                           absl::ToInt64Milliseconds(timeout)));
}

absl::Status PgConnection::Prepare(const std::string& name,
                                   const std::string& sql) {
  if (broken_ ||
      PQsendPrepare(connection_, name.c_str(), sql.c_str(), 0, nullptr) == 0) {
    return Lost("prepare " + name);
  }
  return Collect("prepare " + name).status();
}

absl::StatusOr<PgResult> PgConnection::ExecPrepared(
    const std::string& name, const std::vector<PgParam>& params) {
  const RawParams raw(params);
  if (broken_ ||
      PQsendQueryPrepared(connection_, name.c_str(),
                          static_cast<int>(params.size()), raw.values.data(),
                          raw.lengths.data(), raw.formats.data(), 1) == 0) {
    return Lost(name);
  }
  return Collect(name);
}

absl::Status PgConnection::BeginCopyIn(const std::string& what,
                                       const std::string& sql) {
  copy_what_ = what;
  return Exec(what, sql).status();
}

absl::Status PgConnection::PutCopyData(absl::string_view bytes) {
  if (broken_) return Lost(copy_what_);
  while (true) {
    const int state = PQputCopyData(connection_, bytes.data(),
                                    static_cast<int>(bytes.size()));
    if (state == 1) break;
    if (state < 0) return Lost(copy_what_);
    FORETOKEN_RETURN_IF_ERROR(Flush(MonotonicNow() + timeout_, copy_what_));
  }
  return Flush(MonotonicNow() + timeout_, copy_what_);
}

absl::Status PgConnection::EndCopyIn() {
  if (broken_) return Lost(copy_what_);
  while (true) {
    const int state = PQputCopyEnd(connection_, nullptr);
    if (state == 1) break;
    if (state < 0) return Lost(copy_what_);
    FORETOKEN_RETURN_IF_ERROR(Flush(MonotonicNow() + timeout_, copy_what_));
  }
  return Collect(copy_what_).status();
}

absl::Status PgConnection::CopyOut(
    const std::string& what, const std::string& sql,
    absl::FunctionRef<absl::Status(absl::string_view)> take) {
  FORETOKEN_RETURN_IF_ERROR(Exec(what, sql).status());
  // PostgreSQL's binary COPY format: a header of 19 bytes (signature 11, flags
  // 4, extension length 4) and its extension; then per tuple the number of
  // fields (16 bits) and per field its length (32 bits) and bytes. A field
  // count of -1 ends it.
  constexpr size_t kHeaderBytes = 19;
  bool header_seen = false;
  absl::Status taken;
  while (true) {
    char* raw = nullptr;
    // -1: end of the data; -2: error; 0: nothing has arrived yet.
    const int size = PQgetCopyData(connection_, &raw, /*async=*/1);
    if (size == -1) break;
    if (size == -2) return Lost(what);
    if (size == 0) {
      FORETOKEN_RETURN_IF_ERROR(Wait(POLLIN, MonotonicNow() + timeout_, what));
      if (PQconsumeInput(connection_) == 0) return Lost(what);
      continue;
    }
    const std::unique_ptr<char, void (*)(void*)> owner(raw, &PQfreemem);
    absl::string_view row(raw, static_cast<size_t>(size));
    // The first row may come in one message with the header.
    if (!std::exchange(header_seen, true)) {
      if (row.size() < kHeaderBytes) {
        broken_ = true;
        return absl::DataLossError(
            absl::StrCat("PostgreSQL: ", what, ": short header"));
      }
      row.remove_prefix(
          std::min(row.size(),
                   kHeaderBytes + FromBigEndian(AsBytes(row.substr(15, 4)))));
    }
    constexpr size_t kFieldHead = 6;
    if (row.size() < kFieldHead) continue;  // the header alone, or the end
    row.remove_prefix(kFieldHead);
    // After an error of `take` the rest is read and dropped, which leaves the
    // connection usable.
    if (taken.ok()) taken = take(row);
  }
  FORETOKEN_RETURN_IF_ERROR(Collect(what).status());
  return taken;
}

}  // namespace foretoken::crest
