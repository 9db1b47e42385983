// Macros for early return on error. Debian 12's Abseil does not have them.
#ifndef FORETOKEN_COMMON_BASE_STATUS_MACROS_H_
#define FORETOKEN_COMMON_BASE_STATUS_MACROS_H_

#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"

#define FORETOKEN_CONCAT_INNER_(a, b) a##b
#define FORETOKEN_CONCAT_(a, b) FORETOKEN_CONCAT_INNER_(a, b)

// Evaluates a Status expression; returns it from the enclosing function unless
// it is OK.
#define FORETOKEN_RETURN_IF_ERROR(expr)                    \
  do {                                                     \
    absl::Status foretoken_status_ = (expr);               \
    if (!foretoken_status_.ok()) return foretoken_status_; \
  } while (false)

// FORETOKEN_ASSIGN_OR_RETURN(auto file, MappedFile::Open(path));
#define FORETOKEN_ASSIGN_OR_RETURN(lhs, expr) \
  FORETOKEN_ASSIGN_OR_RETURN_IMPL_(           \
      FORETOKEN_CONCAT_(foretoken_status_or_, __LINE__), lhs, expr)

#define FORETOKEN_ASSIGN_OR_RETURN_IMPL_(statusor, lhs, expr) \
  auto statusor = (expr);                                     \
  if (!statusor.ok()) return std::move(statusor).status();    \
  lhs = *std::move(statusor)

namespace foretoken {

// Prefixes the message with "what: " (a file, a field, a row); keeps the code.
inline absl::Status Annotate(const absl::Status& status,
                             const std::string& what) {
  if (status.ok()) return status;
  return absl::Status(status.code(),
                      absl::StrCat(what, ": ", status.message()));
}

}  // namespace foretoken

#endif  // FORETOKEN_COMMON_BASE_STATUS_MACROS_H_
