// Every string operation keeps apart what the template wrote and what the
// request gave.
#include <string>

#include "common/text/jinja/json_value.h"
#include "common/text/jinja/template.h"
#include "gmock/gmock.h"
#include "tests/support/status_matchers.h"

namespace foretoken::jinja {
namespace {

// Text of the request in brackets.
std::string Marked(const Text& text) {
  std::string out;
  size_t begin = 0;
  for (const Text::Run& run : text.runs()) {
    const std::string part = text.bytes().substr(begin, run.end - begin);
    out += run.origin == Origin::kRequest ? "[" + part + "]" : part;
    begin = run.end;
  }
  return out;
}

std::string Render(absl::string_view source) {
  const auto parsed = Template::Parse(source);
  if (!parsed.ok()) return parsed.status().ToString();
  const auto user = ParseJsonValue(
      R"({"u": " a\u00dfC ", "n": 7, "f": 0.5, "t": true, "w": "x-y z",
          "list": ["p", "q"], "dict": {"k": "v"}})",
      Origin::kRequest);
  const auto text = parsed->Render({{"r", *user}}, RenderOptions());
  return text.ok() ? Marked(*text) : text.status().ToString();
}

TEST(OriginTest, StringOperationsKeepTheOriginOfEveryCharacter) {
  const std::pair<const char*, const char*> cases[] = {
      {"<{{ r.u }}>", "<[ a\u00dfC ]>"},
      {"{{ '<' + r.u + '>' }}", "<[ a\u00dfC ]>"},
      {"{{ '<' ~ r.u ~ 1 }}", "<[ a\u00dfC ]1"},
      {"{{ ('<' + r.u) | trim }}", "<[ a\u00dfC]"},
      {"{{ r.u.strip() }}", "[a\u00dfC]"},
      {"{{ ('<' + r.u + '>') | upper }}", "<[ ASSC ]>"},
      {"{{ ('a' + r.u) | lower }}", "a[ a\u00dfc ]"},
      {"{{ ('ab' + r.w) | title }}", "Ab[x-Y Z]"},
      {"{{ (r.w + 'AB') | capitalize }}", "[X-y z]ab"},
      {"{{ ('<' + r.w + '>')[0:2] }}", "<[x]"},
      {"{{ ('<' + r.w + '>')[::-1] }}", ">[z y-x]<"},
      {"{{ ('<' + r.w)[1] }}", "[x]"},
      {"{{ ('<' + r.w + '>').split('-') | join('|') }}", "<[x]|[y z]>"},
      {"{{ ('a b' + r.w).rsplit(none, 1) | join('|') }}", "a b[x-y]|[z]"},
      {"{{ ('<' + r.w).partition('y') | last }}", "[ z]"},
      {"{{ ('<x' + r.w).replace('x', '#') }}", "<##[-y z]"},
      {"{{ '<x>'.replace('x', r.w) }}", "<[x-y z]>"},
      {"{{ r.w | replace('y', '') | replace('x', '') }}", "[- z]"},
      {"{{ r.list | join('<s>') }}", "[p]<s>[q]"},
      {"{{ ('a\n' + r.w) | indent(1, true) }}", " a\n [x-y z]"},
      {"{{ ('<' + r.w) | e }}", "&lt;[x-y z]"},
      {"{{ ('<' + r.w) | list | join }}", "<[x-y z]"},
      {"{{ ('<' + r.w) | reverse }}", "[z y-x]<"},
      {"{{ (r.list | map('upper') | list)[0] }}", "[P]"},
      {"{{ r.dict.items() | list | first | join('=') }}", "[k]=[v]"},
      {"{% for k in r.dict %}{{ k }}:{% endfor %}", "[k]:"},
      {"{% set x %}<{{ r.w }}>{% endset %}{{ x }}", "<[x-y z]>"},
      {"{% macro m(a) %}<{{ a }}>{% endmacro %}{{ m(r.w) | upper }}",
       "<[X-Y Z]>"},
      {"{% set ns = namespace(t='') %}{% for c in r.list %}"
       "{% set ns.t = ns.t + '<' + c %}{% endfor %}{{ ns.t }}",
       "<[p]<[q]"},
      {"{{ (r.w * 2)[:7] }}", "[x-y zx-]"},
      {"{{ r.w | default('d') }}{{ r.none | default('d') }}", "[x-y z]d"},
      {"{{ r.w.splitlines()[0].removeprefix('x') }}", "[-y z]"},
      {"{{ 'true' if r.w else 'false' }}", "true"},
      {"{{ r.w | length }}", "5"},
  };
  for (const auto& [source, want] : cases) {
    EXPECT_EQ(Render(source), want) << source;
  }
}

TEST(OriginTest, NumbersOfTheRequestStayItsText) {
  EXPECT_EQ(Render("{{ r.n }}|{{ r.f }}|{{ r.t }}|{{ 7 }}"),
            "[7]|[0.5]|[True]|7");
  EXPECT_EQ(Render("{{ r.n + 1 }}|{{ -r.n }}|{{ r.n | string }}|"
                   "{{ (r.n ~ '') | int }}|{{ r.n / 2 }}|{{ r.n | float }}"),
            "[8]|[-7]|[7]|[7]|[3.5]|[7.0]");
}

TEST(OriginTest, DumpsOfContainersAreTextOfTheRequest) {
  EXPECT_EQ(Render("<{{ r.dict | tojson }}>"), "<[{\"k\": \"v\"}]>");
  EXPECT_EQ(Render("<{{ r.dict }}>"), "<[{'k': 'v'}]>");
  EXPECT_EQ(Render("<{{ {'x': r.n} | tojson(indent=1) }}>"),
            "<[{\n \"]x[\": 7\n}]>");
}

}  // namespace
}  // namespace foretoken::jinja
