// The place of a request in a distributed trace, as it travels between
// processes in the header `traceparent`.
//
// Source: W3C Trace Context, "traceparent Header".
#ifndef FORETOKEN_COMMON_TRACING_TRACE_CONTEXT_H_
#define FORETOKEN_COMMON_TRACING_TRACE_CONTEXT_H_

#include <array>
#include <cstdint>
#include <optional>
#include <string>

#include "absl/strings/string_view.h"

namespace foretoken {

using TraceId = std::array<uint8_t, 16>;
using SpanId = std::array<uint8_t, 8>;

inline constexpr char kTraceHeader[] = "traceparent";

struct TraceContext {
  TraceId trace{};
  SpanId span{};         // of the sender: the parent of what the receiver does
  bool sampled = false;  // the sender records its spans

  // nullopt for anything but a valid header; it comes from the network.
  static std::optional<TraceContext> Parse(absl::string_view header);
  std::string Header() const;
  // The same trace with a new span.
  TraceContext Child() const;
};

}  // namespace foretoken

#endif  // FORETOKEN_COMMON_TRACING_TRACE_CONTEXT_H_
