// Template: a subset of Jinja for chat templates, bounded and without access to
// anything but its input.
//
// Output equals that of jinja2's ImmutableSandboxedEnvironment with
// trim_blocks, lstrip_blocks, loopcontrols and the functions that transformers
// adds. Integers have 64 bits. Anything else is an error, never
// ignored: include, import, extends, block, recursive loops, spread arguments,
// loop.changed, string formatting by % and format(), autoescaping.
//
// Thread-compatible: Render may be called concurrently.
#ifndef FORETOKEN_COMMON_TEXT_JINJA_TEMPLATE_H_
#define FORETOKEN_COMMON_TEXT_JINJA_TEMPLATE_H_

#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "common/text/jinja/ast.h"
#include "common/text/jinja/budget.h"
#include "common/text/jinja/value.h"

namespace foretoken::jinja {

using Variables = std::vector<std::pair<std::string, Value>>;

struct RenderOptions {
  Limits limits;
  // Time that strftime_now() formats.
  absl::Time now = absl::UnixEpoch();
  absl::TimeZone zone = absl::UTCTimeZone();
  // For the bytes of Budget.
  ReserveMemory reserve;
  // Such as a deadline, or the end of the service.
  MayGoOn may_go_on;
};

class Template {
 public:
  // The longest published templates take some 20 KiB.
  static constexpr size_t kMaxSourceBytes = size_t{1} << 20;

  // InvalidArgument: "line 3: what"; sources above kMaxSourceBytes are refused.
  static absl::StatusOr<Template> Parse(absl::string_view source);

  // InvalidArgument: the message of raise_exception() alone, or "chat template:
  // line 3: what" for any other error. An error of `reserve` or `may_go_on` as
  // it is.
  absl::StatusOr<Text> Render(const Variables& variables,
                              const RenderOptions& options) const;

 private:
  explicit Template(Body body) : body_(std::move(body)) {}

  Body body_;
};

}  // namespace foretoken::jinja

#endif  // FORETOKEN_COMMON_TEXT_JINJA_TEMPLATE_H_
