// Hostile templates and hostile input end in an error, not in exhaustion.
#include <cstdint>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/text/jinja/json_value.h"
#include "common/text/jinja/template.h"
#include "gmock/gmock.h"
#include "tests/support/status_matchers.h"

namespace foretoken::jinja {
namespace {

using ::foretoken::testing::StatusIs;
using ::testing::_;
using ::testing::AnyOf;
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

TEST(LimitsTest, VariablesThatMacrosKeepEndAtTheByteLimit) {
  Limits limits;
  limits.max_bytes = 1 << 20;
  std::string sets;
  for (int i = 0; i < 100; ++i) sets += absl::StrCat("{% set a", i, "=1 %}");
  const std::string macro = "{% macro m() %}{% endmacro %}";
  const auto loop = [](const std::string& body) {
    return "{% for i in range(1000) %}" + body + "{% endfor %}";
  };
  EXPECT_THAT(RenderStatus(loop(macro + sets), limits),
              StatusIs(kInvalid, HasSubstr("bytes")));
  FORETOKEN_EXPECT_OK(RenderStatus(loop(sets), limits));
}

TEST(LimitsTest, ValuesEndAtTheByteLimit) {
  Limits limits;
  limits.max_bytes = 1 << 20;
  for (const char* source :
       {"{{ ('x' * 1000000) * 1000000 }}", "{{ [1] * 100000000 }}",
        "{{ 'a' | indent(2000000000) | length }}",
        "{{ 'a' | center(9223372036854775807) | length }}",
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

TEST(LimitsTest, ManyNamesAreFoundAsSoonAsFew) {
  std::string source;
  for (int i = 0; i < 20'000; ++i)
    absl::StrAppend(&source, "{% set v", i, "=1 %}");
  FORETOKEN_EXPECT_OK(RenderStatus(source +
                                   "{% for i in range(99999) %}{{ v0 }}"
                                   "{% endfor %}"));
}

TEST(LimitsTest, ManyVariablesOfTheCallerArePaidForOneByOne) {
  Variables variables;
  for (int i = 0; i < 100'000; ++i) {
    variables.emplace_back(absl::StrCat("v", i), Value::Integer(i));
  }
  const auto parsed = Template::Parse("{{ v99999 }}");
  FORETOKEN_ASSERT_OK(parsed);
  RenderOptions options;
  const auto text = parsed->Render(variables, options);
  FORETOKEN_ASSERT_OK(text);
  EXPECT_EQ(text->bytes(), "99999");
  options.limits.max_steps = 1000;
  EXPECT_THAT(parsed->Render(variables, options),
              StatusIs(kInvalid, HasSubstr("line 1: more than 1000 steps")));
  // The search of a macro's parameters among its arguments is paid for, too.
  std::string parameters;
  std::string arguments;
  for (int i = 0; i < 20'000; ++i) {
    absl::StrAppend(&parameters, i == 0 ? "" : ",", "p", i);
    absl::StrAppend(&arguments, i == 0 ? "" : ",", "p", i, "=1");
  }
  EXPECT_THAT(
      RenderStatus(absl::StrCat("{% macro m(", parameters, ") %}{% endmacro %}",
                                "{{ m(", arguments, ") }}")),
      StatusIs(kInvalid, HasSubstr("steps")));
}

TEST(LimitsTest, LoopsOverALargeTextEnd) {
  // Ten million bytes, looked at a hundred thousand times. Fewer steps than
  // usual, to save time.
  Limits limits;
  limits.max_steps = 2'000'000;
  for (const char* expression : {"b | length",
                                 "b in {}",
                                 "{}[b]",
                                 "{}.get(b)",
                                 "d[b]",
                                 "dict(d)",
                                 "{b: 1}",
                                 "(1 if b is filter else 2)",
                                 "b | int",
                                 "b | float",
                                 "[b] | unique | list",
                                 "([b] * 1000) | unique | list",
                                 "[b] | sort",
                                 "([b] * 1000) | sort",
                                 "[b, b] | max",
                                 "{'k': b} | dictsort(by='value')",
                                 "b[9999999]",
                                 "b[-1]",
                                 "b[5:6]",
                                 "b[::2]",
                                 "b == c",
                                 "b < c",
                                 "[b] == [c]",
                                 "c in [b]",
                                 "b | trim('x')",
                                 "b.strip('xyz')",
                                 "b.strip(c)",
                                 "b | title",
                                 "b | string | lower",
                                 "b.startswith(c)",
                                 "b.endswith((c, c))",
                                 "b.removeprefix(c)",
                                 "b.find('y', 5)",
                                 "b.count('x', 1, 5)",
                                 "b.split()",
                                 "b.split('x')",
                                 "b.splitlines()",
                                 "b.partition('y')",
                                 "b | indent",
                                 "b | escape",
                                 "b | replace('', '')",
                                 "b | replace('x', '')",
                                 "[b] | join",
                                 "b ~ ''",
                                 "b | tojson",
                                 "[b] | string",
                                 "1 | tojson(indent=b)",
                                 "1 | tojson(separators=(b, b))",
                                 "[] | map(b) | list",
                                 "[] | select(b) | list",
                                 "[1] | map(attribute=b) | list",
                                 "b.isdigit()",
                                 "b is lower",
                                 "s.split()",
                                 "s | indent",
                                 "s.splitlines()",
                                 "s.rsplit()"}) {
    EXPECT_THAT(
        RenderStatus(
            absl::StrCat(
                "{% set b = 'x' * 10000000 %}{% set c = 'x' * 9999999 ~ 'x' %}"
                "{% set s = '\n ' * 5000000 %}{% set d = {c: 1} %}"
                "{% for i in range(99999) %}{% if ",
                expression, " %}{% endif %}{% endfor %}"),
            limits),
        StatusIs(kInvalid, AnyOf(HasSubstr("steps"), HasSubstr("bytes"))))
        << expression;
  }
}

TEST(LimitsTest, KeysOfASortCountAsMemory) {
  // Each item has a key of its own, in small letters: ten gigabytes.
  EXPECT_THAT(RenderStatus("{% set b = 'X' * 10000000 %}"
                           "{{ ([b] * 1000) | sort | length }}",
                           {.max_steps = int64_t{1} << 40}),
              StatusIs(kInvalid, HasSubstr("bytes")));
  EXPECT_THAT(RenderStatus("{{ ([1] * 1000000) | sort | length }}",
                           {.max_steps = int64_t{1} << 40,
                            .max_bytes = int64_t{100} << 20}),
              StatusIs(kInvalid, HasSubstr("bytes")));
}

TEST(LimitsTest, ChangesOfOriginCountAsMemory) {
  // Two bytes with an origin each are little text and many runs.
  const auto parsed =
      Template::Parse("{% set ab = r ~ 'b' %}{{ (ab * 30000000) | length }}");
  FORETOKEN_ASSERT_OK(parsed);
  EXPECT_THAT(
      parsed->Render({{"r", Value::String(Text("a", Origin::kRequest))}},
                     RenderOptions()),
      StatusIs(kInvalid, HasSubstr("bytes")));
}

TEST(LimitsTest, MessagesOfErrorsAreShort) {
  for (const char* source :
       {"{{ raise_exception(b) }}", "{{ [1] | map(b) | list }}",
        "{{ [1] | select(b) | list }}", "{{ {}[b].x }}", "{{ 1['__' ~ b].x }}",
        "{{ strftime_now(b) }}"}) {
    const absl::Status status =
        RenderStatus(absl::StrCat("{% set b = 'é' * 1000000 %}", source));
    EXPECT_THAT(status, StatusIs(kInvalid, _)) << source;
    EXPECT_LT(status.message().size(), 300u) << source;
  }
}

TEST(LimitsTest, TheCallerIsAskedWhetherARenderingMayGoOn) {
  const auto parsed =
      Template::Parse("{% for i in range(99999) %}{{ i + 1 }}{% endfor %}");
  FORETOKEN_ASSERT_OK(parsed);
  int questions = 0;
  RenderOptions options;
  options.may_go_on = [&questions] {
    ++questions;
    return absl::OkStatus();
  };
  FORETOKEN_EXPECT_OK(parsed->Render({}, options));
  EXPECT_GE(questions, 50);  // half a million steps
  const int all = questions;
  questions = 0;
  options.may_go_on = [&questions] {
    if (++questions < 3) return absl::OkStatus();
    return absl::DeadlineExceededError("time is up");
  };
  EXPECT_THAT(parsed->Render({}, options),
              StatusIs(absl::StatusCode::kDeadlineExceeded, "time is up"));
  EXPECT_EQ(questions, 3);
  EXPECT_GT(all, 3);
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
