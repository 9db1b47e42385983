// GatewayService between a fake client and a fake generator, with a tiny
// tokenizer and chat template.
#ifndef FORETOKEN_TESTS_UNIT_SERVICES_GATEWAY_SERVICE_FIXTURE_H_
#define FORETOKEN_TESTS_UNIT_SERVICES_GATEWAY_SERVICE_FIXTURE_H_

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/byte_budget.h"
#include "common/text/chat/model_chat.h"
#include "common/text/tokenizer.h"
#include "gtest/gtest.h"
#include "services/gateway/core/gateway_service.h"
#include "tests/support/temp_dir.h"
#include "tests/support/tiny_tokenizer.h"
#include "tests/unit/services/gateway/fakes.h"

namespace foretoken::gateway {

// Every message is <s> and its text. Tools are taught as Hermes does.
inline constexpr char kTemplate[] =
    "{% for message in messages %}"
    "{% if message.role == 'function' %}{{ raise_exception('no such role') }}"
    "{% endif %}<s>{{ message.content }}{% endfor %}"
    "{% if tools %}<tools>{{ tools | tojson }}</tools>"
    "<tool_call>{% endif %}";

class CountingObserver final : public GatewayObserver {
 public:
  void OnEnd(Route, int status, absl::Duration) override {
    statuses.push_back(status);
  }
  void OnPause() override { ++pauses; }
  std::vector<int> statuses;
  int pauses = 0;
};

class GatewayServiceTest : public ::testing::Test {
 protected:
  GatewayServiceTest()
      : chat_(ModelChat::Create(Tokenizer::LoadShared(
                                    dir_.Write("tokenizer.json",
                                               testing::TinyTokenizerJson()))
                                    .value(),
                                kTemplate)
                  .value()) {}
  // Serves another template from the next Make on.
  void UseTemplate(const std::string& source) {
    chat_ = ModelChat::Create(chat_->shared_tokenizer(), source).value();
  }

  void Make(GatewayOptions options = {}, bool with_keys = false) {
    GatewayParts parts;
    parts.tokenizer = &chat_->tokenizer();
    parts.chat = chat_.get();
    parts.page = {"<p>", "default-src 'none'"};
    if (with_keys) {
      parts.find_caller =
          [this](absl::string_view authorization) -> std::optional<Caller> {
        if (authorization != "Bearer right") return std::nullopt;
        return caller_;
      };
    }
    service_ = std::make_unique<GatewayService>(
        options, std::move(parts), generator_, observer_,
        [] { return absl::FromUnixSeconds(1700000000); },
        [this] { return now_ += tick_; });
  }

  std::shared_ptr<FakeExchange> Send(HttpRequest request,
                                     std::shared_ptr<FakeExchange> exchange =
                                         std::make_shared<FakeExchange>()) {
    if (service_ == nullptr) Make();
    request.memory = memory_.Take("client", 1).value();
    service_->Handle(std::move(request), exchange);
    if (awaits_bodies_) service_->AwaitBodies();
    generator_.AnswerRest();
    return exchange;
  }
  std::shared_ptr<FakeExchange> Get(const std::string& path,
                                    HttpHeaders headers = {},
                                    const std::string& peer = "") {
    HttpRequest request;
    request.headers = std::move(headers);
    request.peer = peer;
    request.method = "GET";
    request.path = path;
    return Send(std::move(request));
  }
  std::shared_ptr<FakeExchange> Post(const std::string& path,
                                     const std::string& body,
                                     HttpHeaders headers = {}) {
    HttpRequest request;
    request.method = "POST";
    request.path = path;
    request.peer = "192.0.2.1";
    request.headers = std::move(headers);
    request.headers.emplace_back("content-type",
                                 "application/json; charset=utf-8");
    request.body = body;
    return Send(std::move(request));
  }
  std::shared_ptr<FakeExchange> Complete(const std::string& fields) {
    return Post("/v1/completions",
                absl::StrCat(R"({"prompt": "ab")", fields, "}"));
  }
  std::shared_ptr<FakeExchange> Chat(const std::string& fields) {
    return Post(
        "/v1/chat/completions",
        absl::StrCat(R"({"messages": [{"role": "user", "content": "ab"}])",
                     fields, "}"));
  }
  FakeCall& call(size_t i = 0) { return *generator_.calls.at(i); }

  const testing::TempDir dir_;
  std::unique_ptr<ModelChat> chat_;
  // With the right key.
  Caller caller_ = {
      .name = "alice", .authenticated = true, .requests_per_minute = 3};
  // Send returns once the body has been read.
  bool awaits_bodies_ = true;
  absl::Time now_ = absl::FromUnixSeconds(1000);
  absl::Duration tick_;    // between two looks at the clock
  int64_t most_held_ = 0;  // of memory_, at any time
  ByteBudget memory_{int64_t{1} << 20, [this](int64_t used) {
                       most_held_ = std::max(most_held_, used);
                     }};
  FakeGenerator generator_;
  CountingObserver observer_;
  std::unique_ptr<GatewayService> service_;
};

}  // namespace foretoken::gateway

#endif  // FORETOKEN_TESTS_UNIT_SERVICES_GATEWAY_SERVICE_FIXTURE_H_
