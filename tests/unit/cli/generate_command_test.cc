// `foretoken generate` as a user runs it: the real binary, a tiny checkpoint.
#include <sys/wait.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "common/base/json.h"
#include "common/base/types.h"
#include "gmock/gmock.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temp_dir.h"
#include "tests/support/test_data.h"
#include "tests/support/tiny_tokenizer.h"

namespace foretoken {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr int kModelVocabulary = 72;  // of the checkpoint; the tokenizer has 50
constexpr int kContext = 512;         // set below; the checkpoint's is 128

struct Ran {
  int exit_status = -1;
  std::string out;
  std::string err;
};

class GenerateCommandTest : public ::testing::Test {
 protected:
  GenerateCommandTest() : model_(dir_.File("model")) {
    std::filesystem::copy(
        testing::SourcePath("tests/golden/models/llama_plain_fp32"), model_,
        std::filesystem::copy_options::recursive);
    dir_.Write("model/tokenizer.json", testing::TinyTokenizerJson());
    Json config = *ParseJson(Read(model_ + "/config.json"));
    config["max_position_embeddings"] = kContext;
    dir_.Write("model/config.json", DumpJson(config));
    WriteEnds(0, 2);
  }

  void WriteEnds(TokenId bos, TokenId eos) {
    dir_.Write("model/generation_config.json",
               DumpJson({{"bos_token_id", bos}, {"eos_token_id", eos}}));
  }

  static std::string Read(const std::string& path) {
    std::stringstream bytes;
    bytes << std::ifstream(path, std::ios::binary).rdbuf();
    return bytes.str();
  }

  static std::string Quoted(const std::string& argument) {
    std::string quoted = "'";
    for (const char c : argument) {
      quoted += c == '\'' ? std::string("'\\''") : std::string(1, c);
    }
    return quoted + "'";
  }

  Ran Run(std::vector<std::string> arguments) {
    std::string command = Quoted(FORETOKEN_BINARY) + " generate";
    for (const std::string& argument : arguments) {
      command += " " + Quoted(argument);
    }
    command +=
        " >" + Quoted(dir_.File("out")) + " 2>" + Quoted(dir_.File("err"));
    const int status = std::system(command.c_str());
    Ran ran;
    ran.exit_status = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
    ran.out = Read(dir_.File("out"));
    ran.err = Read(dir_.File("err"));
    return ran;
  }

  Ran Local(std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(),
                     {"--local", "--model", model_, "--precision", "fp32",
                      "--threads", "1"});
    return Run(std::move(arguments));
  }

  Json LocalJson(std::vector<std::string> arguments) {
    arguments.push_back("--json");
    const Ran ran = Local(std::move(arguments));
    EXPECT_EQ(ran.exit_status, 0) << ran.err;
    // One object in one line.
    EXPECT_EQ(ran.out.find('\n'), ran.out.size() - 1);
    auto json = ParseJson(ran.out);
    EXPECT_THAT(json, testing::IsOk());
    return json.ok() ? *json : Json::object();
  }

  void ExpectRefused(std::vector<std::string> arguments,
                     const std::string& code, const std::string& why) {
    const Ran ran = Local(std::move(arguments));
    EXPECT_EQ(ran.exit_status, 1) << why;
    EXPECT_THAT(ran.out, IsEmpty());
    EXPECT_THAT(ran.err, HasSubstr("foretoken: " + code));
    EXPECT_THAT(ran.err, HasSubstr(why));
  }

  testing::TempDir dir_;
  const std::string model_;
};

TEST_F(GenerateCommandTest, JsonHasEveryField) {
  const Json json =
      LocalJson({"--prompt", "the an", "--max-tokens", "20", "--ignore-eos",
                 "--logprobs", "2", "--mode", "off"});
  EXPECT_EQ(json["prompt_token_ids"][0], 0);  // BOS
  EXPECT_EQ(json["usage"]["prompt_tokens"], json["prompt_token_ids"].size());
  EXPECT_EQ(json["usage"]["completion_tokens"], 20);
  EXPECT_EQ(json["token_ids"].size(), 20u);
  EXPECT_EQ(json["finish_reason"], "length");
  EXPECT_EQ(json["seed"], 0);
  const Json& speculation = json["speculation"];
  EXPECT_EQ(speculation["mode"], "off");
  EXPECT_EQ(speculation["rounds"], 19);
  EXPECT_EQ(speculation["accept_length"], 1.0);
  EXPECT_EQ(speculation["drafted_tokens"], 0);
  EXPECT_EQ(speculation["accepted_tokens"], 0);
  EXPECT_EQ(speculation["by_drafter"], Json::object());
  EXPECT_GT(json["timing"]["ttft_ms"].get<double>(), 0.0);
  EXPECT_GT(json["timing"]["decode_tokens_per_s"].get<double>(), 0.0);
  ASSERT_EQ(json["logprobs"].size(), 20u);
  EXPECT_EQ(json["logprobs"][0]["token_id"], json["token_ids"][0]);
  EXPECT_EQ(json["logprobs"][0]["top"].size(), 2u);
}

TEST_F(GenerateCommandTest, PromptIdsAreTakenAsTheyAre) {
  const Json json = LocalJson({"--prompt-ids", "5,6,71", "--max-tokens", "3"});
  EXPECT_EQ(json["prompt_token_ids"], Json({5, 6, 71}));
}

TEST_F(GenerateCommandTest, APromptFileIsThePromptsText) {
  const std::string path = dir_.Write("prompt.txt", "the an");
  EXPECT_EQ(LocalJson({"--prompt-file", path})["token_ids"],
            LocalJson({"--prompt", "the an"})["token_ids"]);
}

TEST_F(GenerateCommandTest, TextStreamsToStdoutAndALineAboutItToStderr) {
  const std::vector<std::string> arguments = {"--prompt", "the", "--max-tokens",
                                              "30"};
  const Ran ran = Local(arguments);
  EXPECT_EQ(ran.exit_status, 0);
  EXPECT_EQ(ran.out, LocalJson(arguments)["text"].get<std::string>() + "\n");
  EXPECT_THAT(ran.err, ::testing::MatchesRegex(
                           "30 tokens, [0-9.]+ tokens/s, [0-9.]+ tokens a "
                           "round, mode auto, seed 0\n"));
}

TEST_F(GenerateCommandTest, PromptLookupEqualsOff) {
  for (const char* temperature : {"0", "0.8"}) {
    const std::vector<std::string> arguments = {"--prompt-ids",
                                                "5,6,7,5,6,7,5,6",
                                                "--temperature",
                                                temperature,
                                                "--seed",
                                                "7",
                                                "--top-p",
                                                "0.9",
                                                "--frequency-penalty",
                                                "-0.3",
                                                "--max-tokens",
                                                "100",
                                                "--ignore-eos"};
    std::vector<std::string> off = arguments;
    off.insert(off.end(), {"--mode", "off"});
    std::vector<std::string> lookup = arguments;
    lookup.insert(lookup.end(), {"--mode", "prompt_lookup:max_n=2,tokens=6"});
    const Json want = LocalJson(off);
    const Json got = LocalJson(lookup);
    EXPECT_EQ(got["token_ids"], want["token_ids"]);
    EXPECT_EQ(got["seed"], 7);
    const Json& speculation = got["speculation"];
    EXPECT_EQ(speculation["mode"], "prompt_lookup:max_n=2,tokens=6");
    EXPECT_GT(speculation["drafted_tokens"], 0);
    EXPECT_EQ(speculation["rounds"].get<int>() +
                  speculation["accepted_tokens"].get<int>(),
              99);
    EXPECT_EQ(speculation["by_drafter"]["prompt_lookup"]["drafted"],
              speculation["drafted_tokens"]);
  }
}

TEST_F(GenerateCommandTest, ADrawnSeedIsPrintedAndRepeatsTheText) {
  const std::vector<std::string> arguments = {
      "--prompt", "the", "--temperature", "1.5", "--max-tokens", "40"};
  const Json first = LocalJson(arguments);
  std::vector<std::string> again = arguments;
  again.insert(again.end(),
               {"--seed", std::to_string(first["seed"].get<uint64_t>())});
  EXPECT_EQ(LocalJson(again)["token_ids"], first["token_ids"]);
  EXPECT_NE(LocalJson(arguments)["seed"], first["seed"]);
}

TEST_F(GenerateCommandTest, BiasStopIdsAndMinTokensReachTheSampler) {
  const Json json =
      LocalJson({"--prompt-ids", "5", "--logit-bias", "9=100", "--logit-bias",
                 "8=-100", "--stop-token-ids", "9", "--min-tokens", "3"});
  EXPECT_EQ(json["token_ids"].size(), 4u);
  EXPECT_EQ(json["token_ids"][3], 9);
  EXPECT_EQ(json["finish_reason"], "stop");
}

TEST_F(GenerateCommandTest, AStopStringEndsTheText) {
  const std::vector<std::string> arguments = {
      "--prompt-ids", "5",  "--logit-bias",        "9=100",
      "--max-tokens", "10", "--frequency-penalty", "2"};
  // 'h' (9) again and again.
  EXPECT_EQ(LocalJson(arguments)["text"], "hhhhhhhhhh");
  std::vector<std::string> stopped = arguments;
  stopped.insert(stopped.end(), {"--stop", "-x,y", "--stop", "hh"});
  const Json json = LocalJson(stopped);
  EXPECT_EQ(json["text"], "");
  EXPECT_EQ(json["token_ids"], Json::array());
  EXPECT_EQ(json["finish_reason"], "stop");
}

TEST_F(GenerateCommandTest, BadInputIsRefusedByNameAndStatus) {
  const std::string invalid = "INVALID_ARGUMENT";
  ExpectRefused({"--prompt", "a", "--temperature", "nan"}, invalid,
                "temperature is nan, want 0..100");
  ExpectRefused({"--prompt", "a", "--temperature", "-1"}, invalid,
                "temperature is -1");
  ExpectRefused({"--prompt", "a", "--top-p", "0"}, invalid, "top_p is 0");
  ExpectRefused({"--prompt", "a", "--logprobs", "21"}, invalid,
                "logprobs is 21");
  ExpectRefused({"--prompt", "a", "--max-tokens", "0"}, invalid,
                "max_tokens is 0");
  ExpectRefused({"--prompt", "a", "--max-tokens", "9223372036854775807"},
                invalid, "context length is 512");
  ExpectRefused({"--prompt", "a", "--max-tokens", std::to_string(kContext - 1)},
                invalid, "with the prompt's 2 tokens");
  ExpectRefused({"--prompt", std::string(600, 'a')}, invalid,
                "the prompt's 601 tokens");
  ExpectRefused({"--prompt", ""}, invalid, "prompt: it is empty");
  ExpectRefused({"--prompt-ids", ""}, invalid, "prompt: it is empty");
  ExpectRefused({"--prompt-ids", "1,x"}, invalid, "--prompt-ids: 'x'");
  ExpectRefused({"--prompt-ids", std::to_string(kModelVocabulary)}, invalid,
                "prompt: token 0 is 72, the vocabulary is 0..71");
  ExpectRefused({"--prompt-ids", "-1"}, invalid, "token 0 is -1");
  ExpectRefused({"--prompt", "a", "--logit-bias", "5"}, invalid,
                "--logit-bias: '5'");
  ExpectRefused({"--prompt", "a", "--logit-bias", "72=1"}, invalid,
                "token of logit_bias is 72");
  ExpectRefused({"--prompt", "a", "--mode", "magic"}, invalid,
                "unknown mode 'magic'");
  ExpectRefused({"--prompt", "a", "--mode", "off:x=1"}, invalid, "'x'");
  ExpectRefused({"--prompt", "a", "--mode", "ouroboros"}, "INVALID_ARGUMENT",
                "ouroboros");
  ExpectRefused({"--prompt", "a", "--stop", ""}, invalid, "stop");
  ExpectRefused({"--prompt", "a", "--prompt-ids", "1"}, invalid,
                "2 prompts given");
  ExpectRefused({}, invalid, "0 prompts given");
  ExpectRefused({"--prompt", "a", "--server", "x:1"}, invalid,
                "--server: the model is the server's");
}

TEST_F(GenerateCommandTest, BadConstraintsAreRefusedByName) {
  const std::string invalid = "INVALID_ARGUMENT";
  ExpectRefused({"--prompt", "a", "--regex", "a("}, invalid, "--regex: ");
  ExpectRefused({"--prompt", "a", "--regex", ""}, invalid,
                "--regex: it is empty");
  ExpectRefused({"--prompt", "a", "--choice", "b", "--choice", "\xFF"}, invalid,
                "--choice: invalid UTF-8 at byte 0");
  ExpectRefused({"--prompt", "a", "--grammar", dir_.File("none")}, "NOT_FOUND",
                "--grammar: ");
  const std::string schema = dir_.Write("schema.json", R"({"type": 3})");
  ExpectRefused({"--prompt", "a", "--json-schema", schema}, invalid,
                "--json-schema: ");
  const Ran two =
      Local({"--prompt", "a", "--json-schema", schema, "--regex", "a"});
  EXPECT_NE(two.exit_status, 0);
  EXPECT_THAT(two.err, HasSubstr("--json-schema"));
}

TEST_F(GenerateCommandTest, AServerAndAModelAreRefused) {
  const Ran ran = Run({"--server", "x:1", "--model", model_, "--prompt", "a"});
  EXPECT_EQ(ran.exit_status, 1);
  EXPECT_THAT(ran.out, IsEmpty());
  EXPECT_THAT(ran.err, HasSubstr("foretoken: INVALID_ARGUMENT: --server: the "
                                 "model is the server's"));
  EXPECT_THAT(Run({"--prompt", "a"}).err,
              HasSubstr("want --model PATH, or --server ADDR"));
}

TEST_F(GenerateCommandTest, WhatAServerConfiguresItselfIsRefusedByFlag) {
  for (const std::string flag : {"--draft-model", "--prior", "--crest"}) {
    const Ran ran = Run({"--server", "x:1", "--prompt", "a", flag, model_});
    EXPECT_EQ(ran.exit_status, 1);
    EXPECT_THAT(ran.out, IsEmpty());
    EXPECT_THAT(ran.err, HasSubstr("foretoken: INVALID_ARGUMENT: " + flag +
                                   ": a server uses its own"));
  }
}

TEST_F(GenerateCommandTest, HowADraftModelIsLoadedIsForOneInThisProcess) {
  const std::pair<std::string, std::string> flags[] = {
      {"--draft-weights", "q4_0"}, {"--draft-vocabulary", "100"}};
  for (const auto& [flag, value] : flags) {
    const Ran ran = Run({"--server", "x:1", "--prompt", "a", flag, value});
    EXPECT_EQ(ran.exit_status, 1);
    EXPECT_THAT(ran.err, HasSubstr("foretoken: INVALID_ARGUMENT: " + flag +
                                   ": a server uses its own"));
  }
  const Ran bad = Local({"--prompt", "a", "--draft-weights", "q4_k"});
  EXPECT_EQ(bad.exit_status, 2);
  EXPECT_THAT(bad.err, HasSubstr("--draft-weights"));
}

TEST_F(GenerateCommandTest, ATraceHasALineForEveryRoundAndNoText) {
  const Ran ran = Local({"--prompt-ids", "5,6,7,5,6,7,5", "--max-tokens", "40",
                         "--ignore-eos", "--mode", "lookahead", "--trace"});
  EXPECT_EQ(ran.exit_status, 0) << ran.err;
  EXPECT_THAT(ran.err, HasSubstr("round 1 length 8 nodes 0 probes 17 from "
                                 "lookahead=0/answered/"));
  EXPECT_THAT(ran.err, HasSubstr("round 2 length "));
  EXPECT_THAT(Local({"--prompt", "a", "--max-tokens", "3"}).err,
              ::testing::Not(HasSubstr("round 1")));
}

TEST_F(GenerateCommandTest, AForeignTokenizerIsRefused) {
  Json json = *ParseJson(testing::TinyTokenizerJson());
  for (int id = testing::kTinyVocabulary; id < kModelVocabulary + 3; ++id) {
    json["model"]["vocab"]["zz" + std::to_string(id)] = id;
  }
  dir_.Write("model/tokenizer.json", DumpJson(json));
  ExpectRefused({"--prompt", "a"}, "INVALID_ARGUMENT",
                "the tokenizer has 75 tokens and the model's vocab_size is 72");
}

TEST_F(GenerateCommandTest, EndTokensOfTheFilesMustAgree) {
  dir_.Write("model/tokenizer_config.json",
             R"({"bos_token": "<s>", "eos_token": "<s>"})");
  ExpectRefused({"--prompt", "a"}, "INVALID_ARGUMENT",
                "the tokenizer's EOS token is 0 and the model's eos_token_id "
                "is 2");
  WriteEnds(1, 0);
  ExpectRefused({"--prompt", "a"}, "INVALID_ARGUMENT",
                "the tokenizer's BOS token is 0 and the model's bos_token_id "
                "is 1");
}

TEST_F(GenerateCommandTest, WhatIsNoNumberOrTooLargeIsRefusedByOption) {
  const auto refused = [&](const std::string& option, const std::string& value,
                           const std::string& want) {
    const Ran ran = Local({"--prompt", "a", option, value});
    EXPECT_EQ(ran.exit_status, 2) << option << " " << value;
    EXPECT_THAT(ran.out, IsEmpty());
    EXPECT_THAT(ran.err, HasSubstr(option + ": '" + value + "', want " + want));
  };
  refused("--seed", "-1", "a whole number, 0..18446744073709551615");
  refused("--seed", "18446744073709551616", "a whole number");
  refused("--max-tokens", "9223372036854775808", "a whole number");
  refused("--max-tokens", "", "a whole number");
  refused("--temperature", "", "a number");
  refused("--temperature", "0.5x", "a number");
  refused("--top-k", "4294967297", "a whole number");
  EXPECT_EQ(LocalJson({"--prompt", "a", "--max-tokens", "1", "--seed",
                       "18446744073709551615"})["seed"],
            18446744073709551615u);
}

TEST_F(GenerateCommandTest, APromptFileIsNotUnpackedAndMustBeUtf8) {
  ExpectRefused(
      {"--prompt-file", dir_.Write("packed", "\x1f\x8b\x08 the text")},
      "INVALID_ARGUMENT", "prompt: invalid UTF-8 at byte 1");
  ExpectRefused({"--prompt", "ab\xc3"}, "INVALID_ARGUMENT",
                "prompt: invalid UTF-8 at byte 2");
  ExpectRefused({"--prompt-file", dir_.File("none")}, "NOT_FOUND",
                "cannot be opened");
}

TEST_F(GenerateCommandTest, AModelWithoutANumberIsAnError) {
  // Every weight that the file holds, behind the header: NaN.
  std::string bytes = Read(model_ + "/model.safetensors");
  uint64_t header = 0;
  std::memcpy(&header, bytes.data(), sizeof header);
  ASSERT_LT(header + 8, bytes.size());
  std::fill(bytes.begin() + 8 + header, bytes.end(), '\xff');
  dir_.Write("model/model.safetensors", bytes);
  ExpectRefused({"--prompt", "a"}, "UNAVAILABLE",
                "the model's logits are not finite");
  ExpectRefused({"--prompt", "a", "--temperature", "1"}, "UNAVAILABLE",
                "the model's logits are not finite");
}

TEST_F(GenerateCommandTest, AMissingModelOrTokenizerIsNamed) {
  EXPECT_THAT(
      Run({"--local", "--model", dir_.File("none"), "--prompt", "a"}).err,
      HasSubstr(dir_.File("none") + ": no such file or directory"));
  std::filesystem::remove(model_ + "/tokenizer.json");
  ExpectRefused({"--prompt", "a"}, "NOT_FOUND", model_);
  EXPECT_EQ(Local({"--prompt-ids", "5", "--json"}).exit_status, 0);
}

TEST_F(GenerateCommandTest, WhatIsNoModelOrIsNotSupportedIsNamed) {
  const std::string text = dir_.Write("notes.txt", "root:x:0:0");
  EXPECT_THAT(Run({"--model", text, "--prompt", "a"}).err,
              HasSubstr(text + ": not a GGUF file or model directory"));
  const std::string blocks =
      testing::SourcePath("tests/golden/gguf/blocks.gguf");
  const std::string why =
      "foretoken: UNIMPLEMENTED: model not supported: " + blocks +
      ": general.architecture is \"none\"";
  // Whatever needs its tokenizer first.
  for (const char* chat : {"none", "auto", "chatml"}) {
    EXPECT_THAT(Run({"--model", blocks, "--prompt", "a", "--chat", chat}).err,
                HasSubstr(why))
        << chat;
  }
  EXPECT_THAT(
      Run({"--model", model_, "--draft-model", blocks, "--prompt", "a"}).err,
      HasSubstr(why));
}

TEST_F(GenerateCommandTest, AModeWithoutItsDraftModelNamesTheFlag) {
  ExpectRefused({"--prompt", "a", "--mode", "draft_model"}, "INVALID_ARGUMENT",
                "mode 'draft_model' needs a draft model: give --draft-model");
  ExpectRefused({"--prompt", "a", "--mode", "crest"}, "INVALID_ARGUMENT",
                "mode 'crest' needs a datastore: give --crest");
}

TEST_F(GenerateCommandTest, ACertificateWithoutTlsIsRefused) {
  for (const std::vector<std::string>& flags :
       {std::vector<std::string>{"--server-tls-name", "x"},
        {"--server-tls-cert", "c", "--server-tls-key", "k"}}) {
    std::vector<std::string> all = {"--prompt", "a", "--server", "h:1"};
    all.insert(all.end(), flags.begin(), flags.end());
    const Ran ran = Run(all);
    EXPECT_EQ(ran.exit_status, 2) << flags[0];
    EXPECT_THAT(ran.err, HasSubstr(flags[0] + " requires --server-tls-ca"));
  }
}

TEST_F(GenerateCommandTest, HelpExitsZero) {
  const Ran ran = Run({"--help"});
  EXPECT_EQ(ran.exit_status, 0);
  EXPECT_THAT(ran.out, HasSubstr("--prompt-ids"));
}

}  // namespace
}  // namespace foretoken
