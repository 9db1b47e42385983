// FakeExchange: a client for tests of the gateway's core, which keeps what it
// is sent; with it, the generator that writes when the test says so.
#ifndef FORETOKEN_TESTS_UNIT_SERVICES_GATEWAY_FAKES_H_
#define FORETOKEN_TESTS_UNIT_SERVICES_GATEWAY_FAKES_H_

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "common/base/json.h"
#include "gtest/gtest.h"
#include "services/gateway/core/http.h"
#include "tests/support/fake_generator.h"

namespace foretoken::gateway {

using ::foretoken::testing::FakeCall;
using ::foretoken::testing::FakeGenerator;

class FakeExchange final : public HttpExchange {
 public:
  bool Watch(std::weak_ptr<HttpObserver> watcher) override {
    observer = std::move(watcher);
    return !left;
  }
  bool gone() override { return left; }
  void Respond(HttpResponse answer) override {
    response = std::move(answer);
    ++ends;
  }
  void StartStream(HttpResponse head) override {
    response = std::move(head);
    ++streams;
  }
  bool Write(absl::string_view bytes) override {
    response.body.append(bytes.data(), bytes.size());
    return room;
  }
  void EndStream() override { ++ends; }
  // A client that reads at once, unless it is slow.
  void HoldUntilSent(ByteBudget::Share memory) override {
    if (slow) held = std::move(memory);
  }

  Json Body() const { return Json::parse(response.body); }
  // The data of each typed event, which has its type's name.
  std::vector<Json> Events() const {
    std::vector<Json> events;
    for (absl::string_view frame :
         absl::StrSplit(response.body, "\n\n", absl::SkipEmpty())) {
      const std::vector<absl::string_view> lines = absl::StrSplit(frame, '\n');
      EXPECT_EQ(lines.size(), 2u) << frame;
      absl::string_view name = lines.front(), data = lines.back();
      EXPECT_TRUE(absl::ConsumePrefix(&name, "event: ")) << frame;
      EXPECT_TRUE(absl::ConsumePrefix(&data, "data: ")) << frame;
      events.push_back(Json::parse(data.begin(), data.end()));
      EXPECT_EQ(events.back()["type"], std::string(name));
      EXPECT_EQ(events.back()["sequence_number"], events.size() - 1);
    }
    return events;
  }
  // The data of each frame; "[DONE]" as a string.
  std::vector<Json> Frames() const {
    std::vector<Json> frames;
    for (absl::string_view frame :
         absl::StrSplit(response.body, "\n\n", absl::SkipEmpty())) {
      EXPECT_TRUE(absl::ConsumePrefix(&frame, "data: ")) << frame;
      frames.push_back(frame == "[DONE]"
                           ? Json("[DONE]")
                           : Json::parse(frame.begin(), frame.end()));
    }
    return frames;
  }
  std::string Header(const std::string& name) const {
    for (const auto& [key, value] : response.headers) {
      if (key == name) return value;
    }
    return "";
  }

  std::weak_ptr<HttpObserver> observer;
  HttpResponse response;
  bool room = true;
  bool left = false;       // the client, before the answer begins
  bool slow = false;       // the client, to read
  ByteBudget::Share held;  // until a slow client has read
  int streams = 0;
  int ends = 0;
};

}  // namespace foretoken::gateway

#endif  // FORETOKEN_TESTS_UNIT_SERVICES_GATEWAY_FAKES_H_
