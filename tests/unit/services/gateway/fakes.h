// A client and a writer for tests of the gateway's core: what is sent is kept,
// what is written comes when the test says so.
#ifndef FORETOKEN_TESTS_UNIT_SERVICES_GATEWAY_FAKES_H_
#define FORETOKEN_TESTS_UNIT_SERVICES_GATEWAY_FAKES_H_

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "common/base/json.h"
#include "gtest/gtest.h"
#include "services/gateway/core/generations.h"
#include "services/gateway/core/http.h"

namespace foretoken::gateway {

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

// A request as a writer sees it.
class FakeCall final : public GenerationCall {
 public:
  void Resume() override { ++resumed; }
  void Cancel() override { ++cancelled; }

  GenerationRequest request;
  std::shared_ptr<GenerationListener> listener;
  int resumed = 0;
  int cancelled = 0;

  bool Write(const std::string& text, std::vector<TokenId> tokens = {}) {
    GenerationDelta delta;
    delta.text = text;
    delta.drafters.assign(tokens.size(), DrafterId::kTarget);
    delta.token_ids = std::move(tokens);
    return listener->OnDelta(delta);
  }
  // The usual end.
  void Finish(int64_t tokens = 2) {
    GenerationSummary summary;
    summary.mode = "auto";
    summary.seed = 5;
    summary.finish = FinishReason::kStop;
    summary.prompt_tokens = 3;
    summary.reused_tokens = 1;
    summary.completion_tokens = tokens;
    summary.rounds = 1;
    summary.drafted = 4;
    summary.accepted = 1;
    summary.by_drafter = {{DrafterId::kPromptLookup, 4, 1, 1, 0}};
    listener->OnResult(summary);
    End(absl::OkStatus());
  }
  void End(const absl::Status& status) {
    listener->OnEnd(status);
    listener.reset();
  }
};

class FakeGenerations final : public Generations {
 public:
  ~FakeGenerations() override {
    // A call that has not ended and its exchange own each other.
    for (const auto& call : calls) call->listener.reset();
  }

  absl::StatusOr<ServedModel> Model() override {
    if (on_model) on_model();
    if (!ready) return absl::UnavailableError("nobody is there");
    return ServedModel{
        "demo", 100, {"off", "auto"}, "auto", tokenizer_fingerprint};
  }
  bool Ready() override { return ready; }
  std::shared_ptr<GenerationCall> Start(
      GenerationRequest request,
      std::shared_ptr<GenerationListener> listener) override {
    calls.push_back(std::make_shared<FakeCall>());
    calls.back()->request = std::move(request);
    calls.back()->listener = std::move(listener);
    if (!refusal.ok()) calls.back()->End(refusal);
    return calls.back();
  }
  void Tokenize(const Caller&, std::string text, bool add_special_tokens,
                absl::Time, OnTokens done) override {
    if (on_text) on_text();
    std::vector<TokenId> tokens;
    if (add_special_tokens) tokens.push_back(0);
    tokens.insert(tokens.end(), text.begin(), text.end());
    done(std::move(tokens));
  }
  void Detokenize(const Caller&, std::vector<TokenId> tokens, absl::Time,
                  OnText done) override {
    if (on_text) on_text();
    done(std::string(tokens.begin(), tokens.end()));
  }

  std::function<void()> on_model;  // is asked for
  std::function<void()> on_text;   // is to be encoded or decoded
  bool ready = true;
  std::string tokenizer_fingerprint;  // of the model
  absl::Status refusal;               // of every request
  std::vector<std::shared_ptr<FakeCall>> calls;
};

}  // namespace foretoken::gateway

#endif  // FORETOKEN_TESTS_UNIT_SERVICES_GATEWAY_FAKES_H_
