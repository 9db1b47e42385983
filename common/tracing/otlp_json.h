// Spans as the body of an OTLP/HTTP request in JSON.
//
// Source: OpenTelemetry Protocol Specification, "OTLP/HTTP", "JSON Protobuf
// Encoding". Thread-safe: a pure function.
#ifndef FORETOKEN_COMMON_TRACING_OTLP_JSON_H_
#define FORETOKEN_COMMON_TRACING_OTLP_JSON_H_

#include <string>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "common/tracing/span.h"

namespace foretoken {

// An ExportTraceServiceRequest; `service` becomes `service.name`. `to_wall` is
// what the wall clock is ahead of the spans' clock.
std::string OtlpJson(absl::string_view service, absl::Span<const Span> spans,
                     absl::Duration to_wall);

}  // namespace foretoken

#endif  // FORETOKEN_COMMON_TRACING_OTLP_JSON_H_
