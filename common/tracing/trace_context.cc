#include "common/tracing/trace_context.h"

#include <algorithm>
#include <random>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"

namespace foretoken {
namespace {

// W3C Trace Context, "traceparent": "00-" trace "-" span "-" flags, in
// lower-case hex digits.
constexpr size_t kHeaderBytes = 2 + 1 + 32 + 1 + 16 + 1 + 2;
constexpr uint8_t kSampledFlag = 1;

template <size_t kBytes>
bool ReadHex(absl::string_view text, std::array<uint8_t, kBytes>& out) {
  for (size_t i = 0; i < kBytes; ++i) {
    int value = 0;
    for (const char digit : text.substr(2 * i, 2)) {
      // Upper case is refused, as the specification says.
      const bool number = digit >= '0' && digit <= '9';
      if (!number && (digit < 'a' || digit > 'f')) return false;
      value = value * 16 + (number ? digit - '0' : digit - 'a' + 10);
    }
    out[i] = static_cast<uint8_t>(value);
  }
  return true;
}

template <size_t kBytes>
bool IsZero(const std::array<uint8_t, kBytes>& id) {
  return std::all_of(id.begin(), id.end(), [](uint8_t b) { return b == 0; });
}

template <size_t kBytes>
std::string Hex(const std::array<uint8_t, kBytes>& id) {
  return absl::BytesToHexString(
      {reinterpret_cast<const char*>(id.data()), id.size()});
}

}  // namespace

std::optional<TraceContext> TraceContext::Parse(absl::string_view header) {
  if (header.size() < kHeaderBytes || header[2] != '-' || header[35] != '-' ||
      header[52] != '-') {
    return std::nullopt;
  }
  TraceContext context;
  std::array<uint8_t, 1> version, flags;
  if (!ReadHex(header, version) || !ReadHex(header.substr(3), context.trace) ||
      !ReadHex(header.substr(36), context.span) ||
      !ReadHex(header.substr(53), flags)) {
    return std::nullopt;
  }
  // Version 0 has exactly these fields, a later one may append others after a
  // dash; version 255 is invalid, and so is an id of zeros.
  const bool exact = header.size() == kHeaderBytes;
  if (version[0] == 255 || (version[0] == 0 && !exact) ||
      (!exact && header[kHeaderBytes] != '-') || IsZero(context.trace) ||
      IsZero(context.span)) {
    return std::nullopt;
  }
  // Other flags are of later versions and are not passed on.
  context.sampled = (flags[0] & kSampledFlag) != 0;
  return context;
}

std::string TraceContext::Header() const {
  return absl::StrCat("00-", Hex(trace), "-", Hex(span),
                      sampled ? "-01" : "-00");
}

TraceContext TraceContext::Child() const {
  // Seeded per thread: no lock on the path of a request. Ids must be distinct,
  // not secret.
  thread_local std::mt19937_64 random = [] {
    std::random_device device;
    std::seed_seq seed{device(), device(), device(), device()};
    return std::mt19937_64(seed);
  }();
  TraceContext child = *this;
  // All zeros is the invalid id.
  do {
    uint64_t bits = random();
    for (uint8_t& byte : child.span) {
      byte = static_cast<uint8_t>(bits);
      bits >>= 8;
    }
  } while (IsZero(child.span));
  return child;
}

}  // namespace foretoken
