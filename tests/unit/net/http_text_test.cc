#include "common/net/http_text.h"

#include "gtest/gtest.h"

namespace foretoken::net {
namespace {

TEST(HttpTextTest, AStatusHasItsReason) {
  EXPECT_EQ(StatusLine(200), "HTTP/1.1 200 OK\r\n");
  EXPECT_EQ(StatusLine(404), "HTTP/1.1 404 Not Found\r\n");
  EXPECT_EQ(StatusLine(429), "HTTP/1.1 429 Too Many Requests\r\n");
}

TEST(HttpTextTest, ALastAnswerSaysSoAndHasALength) {
  EXPECT_EQ(LastAnswer(403, "text/plain", "no\n"),
            "HTTP/1.1 403 Forbidden\r\nContent-Type: text/plain\r\n"
            "Content-Length: 3\r\nConnection: close\r\n\r\nno\n");
}

}  // namespace
}  // namespace foretoken::net
