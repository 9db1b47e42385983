// What the golden files cannot hold: messages, their lines, and what is
// refused although jinja2 accepts it.
#include "common/text/jinja/template.h"

#include <string>

#include "absl/time/civil_time.h"
#include "common/text/jinja/json_value.h"
#include "gmock/gmock.h"
#include "tests/support/status_matchers.h"

namespace foretoken::jinja {
namespace {

using ::foretoken::testing::StatusIs;
using ::testing::HasSubstr;

constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;

absl::StatusOr<std::string> Render(absl::string_view source,
                                   const Variables& variables = {},
                                   const RenderOptions& options = {}) {
  const auto parsed = Template::Parse(source);
  if (!parsed.ok()) return parsed.status();
  const auto text = parsed->Render(variables, options);
  if (!text.ok()) return text.status();
  return text->bytes();
}

TEST(TemplateTest, ParseErrorsNameTheLine) {
  EXPECT_THAT(
      Render("a\n{% if x %}\nb\n{% endfor %}"),
      StatusIs(kInvalid, "line 4: unknown or unsupported tag 'endfor'"));
  EXPECT_THAT(Render("{{ 1 +\n }}"), StatusIs(kInvalid, HasSubstr("line 2")));
  EXPECT_THAT(Render("\n\n{# open"), StatusIs(kInvalid, HasSubstr("line 3")));
  EXPECT_THAT(Render("{{ 'a\xFF' }}"), StatusIs(kInvalid, HasSubstr("UTF-8")));
}

TEST(TemplateTest, RenderErrorsNameTheLineOfTheInnermostExpression) {
  EXPECT_THAT(Render("a\n{% for x in [1] %}\n{{ x.y.z }}{% endfor %}"),
              StatusIs(kInvalid,
                       "chat template: line 3: 'int object' has no attribute "
                       "'y'"));
  EXPECT_THAT(Render("{{ nothing.a }}"),
              StatusIs(kInvalid,
                       "chat template: line 1: 'nothing' is "
                       "undefined"));
}

TEST(TemplateTest, RaisedMessagesArePassedOnAlone) {
  EXPECT_THAT(Render("\n{{ raise_exception('roles must alternate') }}"),
              StatusIs(kInvalid, "roles must alternate"));
}

TEST(TemplateTest, WhatIsNotSupportedIsRefused) {
  for (const char* source :
       {"{% include 'x' %}", "{% import 'x' as y %}", "{% extends 'x' %}",
        "{% block a %}{% endblock %}", "{% autoescape true %}",
        "{% for x in [] recursive %}{% endfor %}", "{{ f(*x) }}",
        "{{ f(**x) }}", "{{ '%s' % 1 }}", "{{ 'a{}'.format(1) }}",
        "{{ [namespace()] }}", "{% break %}",
        "{% for i in [1] %}{{ loop.changed(i) }}{% endfor %}"}) {
    EXPECT_THAT(Render(source), StatusIs(kInvalid, HasSubstr("line 1")))
        << source;
  }
}

TEST(TemplateTest, TheDateIsThatOfTheOptionsInTheirZone) {
  RenderOptions options;
  options.now = absl::FromCivil(absl::CivilSecond(2024, 2, 29, 23, 30, 0),
                                absl::UTCTimeZone());
  options.zone = absl::FixedTimeZone(3600);
  EXPECT_EQ(Render("{{ strftime_now('%d %b %Y %H:%M') }}", {}, options).value(),
            "01 Mar 2024 00:30");
}

TEST(TemplateTest, JsonKeepsItsOrderAndItsNumbers) {
  const auto value = ParseJsonValue(
      R"({"b": 1, "a": [1.0, 2e3, true, null], "b": 3,
          "max": 9223372036854775807, "big": 18446744073709551615})",
      Origin::kRequest);
  FORETOKEN_ASSERT_OK(value);
  EXPECT_EQ(Render("{{ x | tojson }}", {{"x", *value}}).value(),
            R"({"b": 3, "a": [1.0, 2000.0, true, null], )"
            R"("max": 9223372036854775807, "big": 1.8446744073709552e+19})");
}

TEST(TemplateTest, MalformedJsonIsRefused) {
  for (const char* json : {"", "{", "[1,]", "\"\xFF\"", "{\"a\" 1}"}) {
    EXPECT_THAT(ParseJsonValue(json, Origin::kRequest),
                StatusIs(kInvalid, HasSubstr("bad JSON")));
  }
  EXPECT_THAT(ParseJsonValue(std::string(100, '[') + std::string(100, ']'),
                             Origin::kRequest),
              StatusIs(kInvalid, HasSubstr("nested deeper")));
}

}  // namespace
}  // namespace foretoken::jinja
