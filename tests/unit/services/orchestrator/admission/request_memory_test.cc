// The constants of request_memory.h, against the heap.
#include "services/orchestrator/core/admission/request_memory.h"

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <new>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "common/base/byte_budget.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "services/orchestrator/core/generation_service.h"
#include "tests/support/counted_heap.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temp_dir.h"
#include "tests/support/test_data.h"
#include "tests/support/tiny_tokenizer.h"

namespace foretoken::orchestrator {
namespace {

// Beyond a power of two, where a list that doubles has most to spare.
constexpr size_t kTextBytes = (1 << 20) + 2;
// What does not grow with the text.
constexpr int64_t kSlack = 64 << 10;

std::vector<std::string> Texts() {
  std::mt19937 random(7);
  std::vector<std::string> texts = {std::string(kTextBytes, 'a'),
                                    std::string(kTextBytes, ' '),
                                    std::string(kTextBytes, '\xff')};
  std::string words, letters, accents;
  while (words.size() < kTextBytes) words += "the man in here ";
  while (accents.size() < kTextBytes) accents += "\xC3\xA9\xD0\xB4";
  while (letters.size() < kTextBytes) {
    letters.push_back(static_cast<char>('!' + random() % 94));
  }
  texts.push_back(words);
  texts.push_back(letters);
  texts.push_back(accents);
  return texts;
}

std::vector<std::unique_ptr<Tokenizer>> Tokenizers() {
  const foretoken::testing::TempDir dir;
  std::vector<std::string> paths = {
      dir.Write("tokenizer.json", foretoken::testing::TinyTokenizerJson())};
  for (const char* name :
       {"tools/demo/target", "tests/golden/tokenizers/llama3.json.gz",
        "tests/golden/tokenizers/llama2_json.json.gz",
        "tests/golden/tokenizers/sp_bytes.model"}) {
    paths.push_back(foretoken::testing::SourcePath(name));
  }
  std::vector<std::unique_ptr<Tokenizer>> tokenizers;
  for (const std::string& path : paths) {
    auto loaded = Tokenizer::Load(path);
    EXPECT_THAT(loaded, foretoken::testing::IsOk()) << path;
    if (loaded.ok()) tokenizers.push_back(*std::move(loaded));
  }
  return tokenizers;
}

TEST(RequestMemoryTest, EncodingTakesNoMoreThanItIsChargedFor) {
  int64_t most = 0;
  for (const auto& tokenizer : Tokenizers()) {
    for (const std::string& text : Texts()) {
      std::vector<TokenId> ids;
      const int64_t peak = foretoken::testing::HeapPeakOf(
          [&] { ids = tokenizer->EncodePrompt(text); });
      EXPECT_LE(peak, EncodingBytesOf(text) + kSlack)
          << text.substr(0, 16) << " by " << tokenizer->vocab_size();
      most = std::max(most, 100 * peak / EncodingBytesOf(text));
    }
  }
  RecordProperty("percent_of_charge", std::to_string(most));
}

TEST(RequestMemoryTest, DecodingTakesNoMoreThanItIsChargedFor) {
  for (const auto& tokenizer : Tokenizers()) {
    std::mt19937 random(3);
    std::vector<TokenId> ids(kTextBytes / sizeof(TokenId));
    for (TokenId& id : ids) {
      id = static_cast<TokenId>(random() %
                                static_cast<uint32_t>(tokenizer->vocab_size()));
    }
    const int64_t peak = foretoken::testing::HeapPeakOf([&] {
      const auto text = tokenizer->Decode(ids);
      EXPECT_TRUE(text.ok() || absl::IsInvalidArgument(text.status()));
    });
    EXPECT_LE(peak, DetokenizeBytes(ids, tokenizer.get()) + kSlack)
        << tokenizer->vocab_size();
  }
}

TEST(RequestMemoryTest, MalformedTextIsChargedForItsReplacements) {
  EXPECT_EQ(EncodingBytesOf("abc"), EncodingBytes(3));
  EXPECT_EQ(EncodingBytesOf(""), 0);
  EXPECT_EQ(EncodingBytesOf("a\xFF\xFE\xC3\xA9"), EncodingBytes(1 + 6 + 2));
}

TEST(RequestMemoryTest, ThePartsLeaveNothingOfTheBudgetOver) {
  for (const int64_t budget :
       {int64_t{1} << 30, (int64_t{1} << 30) + 7, int64_t{1234567891}}) {
    const MemoryParts parts = DivideMemory(budget);
    EXPECT_EQ(parts.receiving + parts.encoding + parts.requests, budget);
    EXPECT_EQ(parts.encoding, parts.requests);
    EXPECT_GE(parts.receiving, budget / 4);
  }
  EXPECT_GE(MaxWireBytes(1 << 20, 0), 5 << 18);  // ids of five bytes
  EXPECT_EQ(MaxWireBytes(100, 1 << 20) - MaxWireBytes(100, 0), 1 << 20);
}

TEST(RequestMemoryTest, EverythingARequestHoldsIsCharged) {
  const GenerationRequest small{};
  GenerationRequest request;
  request.text = std::string(1000, 'a');
  EXPECT_GE(GenerateBytes(request) - GenerateBytes(small), 5000);
  request = small;
  request.prompt.assign(1000, 1);
  EXPECT_GE(GenerateBytes(request) - GenerateBytes(small), 16000);
  request = small;
  request.max_tokens = 1000;
  EXPECT_EQ(GenerateBytes(request) - GenerateBytes(small),
            8 * (1000 - small.max_tokens));
  request.max_tokens = int64_t{1} << 62;
  EXPECT_LE(GenerateBytes(request) - GenerateBytes(small), 8 << 20);
  request.max_tokens = -1;
  EXPECT_LE(GenerateBytes(request), GenerateBytes(small));
  request = small;
  request.stop_strings.assign(64, std::string(1024, 's'));
  EXPECT_GE(GenerateBytes(request) - GenerateBytes(small), 64 * 10 * 1024);
  request = small;
  request.constraint = {
      Constraint::Kind::kJsonSchema, std::string(1000, 's'), {}};
  EXPECT_GE(GenerateBytes(request) - GenerateBytes(small), (2 << 20) + 5000);
  request.constraint = {Constraint::Kind::kChoice, "",
                        std::vector<std::string>(1000, "")};
  EXPECT_GE(GenerateBytes(request) - GenerateBytes(small),
            5000 * static_cast<int64_t>(sizeof(std::string)));
  request = small;
  request.sampling.logprobs = 0;
  EXPECT_GT(GenerateBytes(request), GenerateBytes(small) + kUnsentBytes);
}

// The defaults of the flags fit together.
TEST(RequestMemoryTest, TheDefaultBudgetAdmitsTheDefaultNumberOfRequests) {
  const GenerationOptions defaults{};
  const MemoryParts parts = DivideMemory(defaults.memory_budget);
  const int64_t requests =
      defaults.max_requests + defaults.max_waiting_requests;
  EXPECT_LE(requests * GenerateBytes({}),
            ByteBudget(parts.requests).max_share());
  EXPECT_LE(LargestRequestBytes(defaults.max_prompt_bytes,
                                defaults.grammars.max_constraint_bytes, true),
            ByteBudget(parts.requests).max_share());
  EXPECT_LE(EncodingBytes(defaults.max_prompt_bytes),
            ByteBudget(parts.encoding).max_share());
}

}  // namespace
}  // namespace foretoken::orchestrator
