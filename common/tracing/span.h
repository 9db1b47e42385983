// Span: one piece of work of a trace; SpanSink: where spans go.
#ifndef FORETOKEN_COMMON_TRACING_SPAN_H_
#define FORETOKEN_COMMON_TRACING_SPAN_H_

#include <cstdint>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "common/tracing/trace_context.h"

namespace foretoken {

struct Span {
  // As OTLP numbers them.
  enum class Kind { kInternal = 1, kServer = 2 };

  TraceId trace{};
  SpanId id{};
  SpanId parent{};
  Kind kind = Kind::kInternal;
  absl::string_view name;  // a literal
  absl::Time start, end;   // on MonotonicNow
  // Numbers and names from closed sets; never text of a request. Keys are
  // literals: copies of them would be most of a span's memory.
  std::vector<std::pair<absl::string_view, std::variant<int64_t, std::string>>>
      attributes;
  std::string error;  // empty: none
};

// Thread-safe.
class SpanSink {
 public:
  virtual ~SpanSink() = default;
  // Takes spans that have ended. Never blocks.
  virtual void Take(std::vector<Span> spans) = 0;
};

}  // namespace foretoken

#endif  // FORETOKEN_COMMON_TRACING_SPAN_H_
