#include "services/gateway/page/page.h"

#include <string>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "common/base/digest.h"
#include "common/base/file.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/status_matchers.h"
#include "tests/support/test_data.h"

namespace foretoken::gateway {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

// What a browser compares with the policy: the hash of the text between tags.
std::string HashBetween(const std::string& opening,
                        const std::string& closing) {
  const std::string page(PageHtml());
  const size_t begin = page.find(opening) + opening.size();
  const Sha256Digest digest =
      Sha256().Update(page.substr(begin, page.find(closing) - begin)).Finish();
  return absl::StrCat(
      "'sha256-",
      absl::Base64Escape(absl::string_view(
          reinterpret_cast<const char*>(digest.data()), digest.size())),
      "'");
}

// index.html with its lines {{name}} replaced by the files of these names.
TEST(PageTest, IsTheFileWithItsParts) {
  const auto file =
      ReadFile(testing::SourcePath("services/gateway/page/index.html"));
  FORETOKEN_ASSERT_OK(file);
  std::string joined;
  int parts = 0;
  for (absl::string_view line : absl::StrSplit(*file, '\n')) {
    if (!absl::ConsumePrefix(&line, "{{")) {
      absl::StrAppend(&joined, line, "\n");
      continue;
    }
    ASSERT_TRUE(absl::ConsumeSuffix(&line, "}}")) << line;
    const auto part = ReadFile(
        testing::SourcePath(absl::StrCat("services/gateway/page/", line)));
    FORETOKEN_ASSERT_OK(part);
    joined += *part;
    ++parts;
  }
  // The text ends with a line feed, after which StrSplit finds another line.
  EXPECT_EQ(absl::StrCat(PageHtml(), "\n"), joined);
  EXPECT_GT(parts, 1);
}

TEST(PageTest, ThePolicyAllowsItsOwnScriptAndStyleAlone) {
  EXPECT_EQ(PagePolicy(),
            absl::StrCat("default-src 'none'; script-src ",
                         HashBetween("<script type=\"module\">", "</script>"),
                         "; style-src ", HashBetween("<style>", "</style>"),
                         "; connect-src 'self'; img-src data:; base-uri 'none';"
                         " form-action 'none'; frame-ancestors 'none';"
                         " require-trusted-types-for 'script';"
                         " trusted-types 'none'"));
}

// What the policy would refuse, and what would set strings as HTML.
TEST(PageTest, UsesNothingThatThePolicyRefuses) {
  const std::string page(PageHtml());
  for (const char* refused :
       {" style=\"", " onclick=", " onload=", "innerHTML", "outerHTML",
        "insertAdjacentHTML", "document.write", "eval(", "new Function",
        "DOMParser", "src=\"", "@import"}) {
    EXPECT_THAT(page, Not(HasSubstr(refused)));
  }
}

}  // namespace
}  // namespace foretoken::gateway
