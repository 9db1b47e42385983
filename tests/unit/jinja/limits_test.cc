// Hostile templates and hostile input end in an error, not in exhaustion.
#include <string>

#include "absl/strings/str_cat.h"
#include "common/text/jinja/json_value.h"
#include "common/text/jinja/template.h"
#include "gmock/gmock.h"
#include "tests/support/status_matchers.h"

namespace foretoken::jinja {
namespace {

using ::foretoken::testing::StatusIs;
using ::testing::HasSubstr;

constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;

absl::Status RenderStatus(absl::string_view source, const Limits& limits = {}) {
  const auto parsed = Template::Parse(source);
  if (!parsed.ok()) return parsed.status();
  RenderOptions options;
  options.limits = limits;
  return parsed->Render({}, options).status();
}

std::string Repeated(absl::string_view text, int times) {
  std::string out;
  for (int i = 0; i < times; ++i) absl::StrAppend(&out, text);
  return out;
}

TEST(LimitsTest, LoopsInLoopsEndAtTheStepLimit) {
  EXPECT_THAT(RenderStatus("{% for a in range(99999) %}{% for b in range(99999)"
                           " %}{% endfor %}{% endfor %}"),
              StatusIs(kInvalid, HasSubstr("steps")));
}

TEST(LimitsTest, ValuesEndAtTheByteLimit) {
  Limits limits;
  limits.max_bytes = 1 << 20;
  for (const char* source :
       {"{{ ('x' * 1000000) * 1000000 }}", "{{ [1] * 100000000 }}",
        "{{ 'a' | indent(2000000000) | length }}",
        "{{ 'a'.center(9223372036854775807) | length }}",
        "{% set ns = namespace(x='ab') %}{% for i in range(64) %}"
        "{% set ns.x = ns.x + ns.x %}{% endfor %}",
        "{% set ns = namespace(x='ab') %}{% for i in range(64) %}"
        "{% set ns.x = ns.x.replace('', ns.x) %}{% endfor %}",
        "{% set ns = namespace(x=[1]) %}{% for i in range(64) %}"
        "{% set ns.x = [ns.x, ns.x] %}{% endfor %}{{ ns.x | tojson }}",
        "{% set ns = namespace(x=['a']) %}{% for i in range(64) %}"
        "{% set ns.x = [ns.x | join('abcdefgh')] * 9 %}{% endfor %}"}) {
    EXPECT_THAT(RenderStatus(source, limits),
                StatusIs(kInvalid, HasSubstr("bytes")))
        << source;
  }
}

TEST(LimitsTest, SearchesCountByTheSizesOfBothTexts) {
  // Each search alone takes as many comparisons as the product of the sizes.
  for (const char* search :
       {"(a ~ 'b') in x", "x.find(a ~ 'b')", "x.count(a ~ 'b')",
        "x.split(a ~ 'b') | length", "x.replace(a ~ 'b', '') | length",
        "x.partition(a ~ 'b') | length"}) {
    EXPECT_THAT(
        RenderStatus(absl::StrCat("{% set a = 'a' * 300000 %}{% set x = a * 3 "
                                  "%}{{ ",
                                  search, " }}")),
        StatusIs(kInvalid, HasSubstr("steps")))
        << search;
  }
}

TEST(LimitsTest, NamesCountWhereTheyAreManyToSearch) {
  std::string source;
  for (int i = 0; i < 2000; ++i)
    absl::StrAppend(&source, "{% set v", i, "=1 %}");
  FORETOKEN_EXPECT_OK(RenderStatus(source));
  EXPECT_THAT(RenderStatus(source + "{% for i in range(50000) %}{{ v0 }}"
                                    "{% endfor %}"),
              StatusIs(kInvalid, HasSubstr("steps")));
}

TEST(LimitsTest, LargeSourcesAreRefused) {
  const std::string most(Template::kMaxSourceBytes, 'x');
  FORETOKEN_EXPECT_OK(RenderStatus(most));
  EXPECT_THAT(RenderStatus(most + "x"),
              StatusIs(kInvalid, HasSubstr("more than 1048576 bytes")));
}

TEST(LimitsTest, OutputEndsAtItsOwnLimit) {
  Limits limits;
  limits.max_output_bytes = 1000;
  EXPECT_THAT(RenderStatus("{% for i in range(300) %}abcd{% endfor %}", limits),
              StatusIs(kInvalid, HasSubstr("output of more than 1000")));
  FORETOKEN_EXPECT_OK(
      RenderStatus("{% for i in range(250) %}abcd{% endfor %}", limits));
}

TEST(LimitsTest, RecursionEnds) {
  EXPECT_THAT(RenderStatus("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}"),
              StatusIs(kInvalid, HasSubstr("nested too deep")));
  EXPECT_THAT(RenderStatus("{% macro f(x=f()) %}{% endmacro %}{{ f() }}"),
              StatusIs(kInvalid, HasSubstr("nested too deep")));
}

TEST(LimitsTest, DeepSyntaxIsRefused) {
  const int deep = 20000;
  for (const std::string& source :
       {"{{ " + Repeated("(", deep) + "1" + Repeated(")", deep) + " }}",
        "{{ " + Repeated("[", deep) + Repeated("]", deep) + " }}",
        "{{ " + Repeated("not ", deep) + "1 }}",
        "{{ " + Repeated("-", deep) + "1 }}",
        "{{ 1" + Repeated(" + 1", deep) + " }}",
        "{{ 1" + Repeated(" | abs", deep) + " }}",
        "{{ a" + Repeated(".a", deep) + " }}",
        "{{ 1" + Repeated(" if 1 else 1", deep) + " }}",
        Repeated("{% if 1 %}", deep) + Repeated("{% endif %}", deep),
        "{% set " + Repeated("(", deep) + "a" + Repeated(")", deep) +
            " = 1 %}"}) {
    EXPECT_THAT(RenderStatus(source),
                StatusIs(kInvalid, HasSubstr("nested too deep")))
        << source.substr(0, 20);
  }
}

TEST(LimitsTest, DeepValuesAreRefused) {
  for (const char* step : {"[ns.x]", "(ns.x,)", "{'a': ns.x}",
                           "[ns.x] | reverse", "dict(a=ns.x)", "[ns.x].copy"}) {
    EXPECT_THAT(
        RenderStatus(absl::StrCat("{% set ns = namespace(x=1) %}{% for i in "
                                  "range(5000) %}{% set ns.x = ",
                                  step, " %}{% endfor %}")),
        StatusIs(kInvalid, HasSubstr("nested")))
        << step;
  }
}

TEST(LimitsTest, CirclesOfNamespacesAndMacrosAreReleased) {
  // The leak checker of the sanitizer builds is the judge.
  FORETOKEN_EXPECT_OK(RenderStatus(
      "{% set ns = namespace() %}{% set ns.self = [ns] %}"
      "{% macro m() %}{{ ns.f }}{% endmacro %}{% set ns.f = m %}"));
}

TEST(LimitsTest, LargeIntegersAreErrorsNotOverflows) {
  for (const char* source :
       {"{{ 9223372036854775807 + 1 }}", "{{ -9223372036854775807 - 2 }}",
        "{{ 9223372036854775807 * 2 }}", "{{ 3 ** 64 }}",
        "{{ -(-9223372036854775807 - 1) }}",
        "{{ (-9223372036854775807 - 1) // -1 }}"}) {
    EXPECT_THAT(RenderStatus(source), StatusIs(kInvalid, HasSubstr("64 bits")))
        << source;
  }
  EXPECT_THAT(RenderStatus("{{ 9223372036854775808 }}"),
              StatusIs(kInvalid, HasSubstr("too large number")));
  FORETOKEN_EXPECT_OK(RenderStatus("{{ (-9223372036854775807 - 1) % -1 }}"));
}

}  // namespace
}  // namespace foretoken::jinja
