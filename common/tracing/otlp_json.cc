#include "common/tracing/otlp_json.h"

#include <algorithm>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "common/base/json.h"

namespace foretoken {
namespace {

// STATUS_CODE_ERROR of opentelemetry.proto.trace.v1.
constexpr int kStatusError = 2;

// OTLP's JSON writes ids in hex, unlike the base64 of proto3's JSON for other
// bytes.
template <typename Id>
std::string Hex(const Id& id) {
  return absl::BytesToHexString(
      {reinterpret_cast<const char*>(id.data()), id.size()});
}

// 64-bit integers are strings in proto3's JSON.
std::string Nanos(absl::Time time) {
  return absl::StrCat(absl::ToUnixNanos(time));
}

Json Attribute(absl::string_view key,
               const std::variant<int64_t, std::string>& value) {
  Json json;
  json["key"] = std::string(key);
  if (const auto* number = std::get_if<int64_t>(&value)) {
    json["value"]["intValue"] = absl::StrCat(*number);
  } else {
    json["value"]["stringValue"] = std::get<std::string>(value);
  }
  return json;
}

Json SpanJson(const Span& span, absl::Duration to_wall) {
  Json json;
  json["traceId"] = Hex(span.trace);
  json["spanId"] = Hex(span.id);
  json["parentSpanId"] = Hex(span.parent);
  json["name"] = std::string(span.name);
  json["kind"] = static_cast<int>(span.kind);
  // Spans are timed by the monotonic clock, which no step of the wall clock can
  // reorder; one offset for all keeps their distances.
  json["startTimeUnixNano"] = Nanos(span.start + to_wall);
  // A collector may reject a span that ends before it begins.
  json["endTimeUnixNano"] = Nanos(std::max(span.start, span.end) + to_wall);
  json["attributes"] = Json::array();
  for (const auto& [key, value] : span.attributes) {
    json["attributes"].push_back(Attribute(key, value));
  }
  if (!span.error.empty()) {
    json["status"]["code"] = kStatusError;
    json["status"]["message"] = span.error;
  }
  return json;
}

}  // namespace

std::string OtlpJson(absl::string_view service, absl::Span<const Span> spans,
                     absl::Duration to_wall) {
  Json scope;
  scope["scope"]["name"] = "foretoken";
  scope["spans"] = Json::array();
  for (const Span& span : spans) {
    scope["spans"].push_back(SpanJson(span, to_wall));
  }
  Json resource;
  resource["resource"]["attributes"] =
      Json::array({Attribute("service.name", std::string(service))});
  resource["scopeSpans"] = Json::array({std::move(scope)});
  Json request;
  request["resourceSpans"] = Json::array({std::move(resource)});
  return DumpJson(request);
}

}  // namespace foretoken
