// Lints the public contracts: names, packages, and that no field number ever
// changes its meaning.
#include <google/protobuf/compiler/importer.h>
#include <google/protobuf/descriptor.h>

#include <filesystem>
#include <map>
#include <regex>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/base/file.h"
#include "common/speculation/modes.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/status_matchers.h"
#include "tests/support/test_data.h"

namespace foretoken {
namespace {

namespace pb = ::google::protobuf;

constexpr char kFolder[] = "foretoken/v1";
constexpr char kRange[] = "range ";

bool IsCamelCase(const std::string& name) {
  return std::regex_match(name, std::regex("([A-Z][a-z0-9]*)+"));
}
bool IsSnakeCase(const std::string& name) {
  return std::regex_match(name, std::regex("[a-z][a-z0-9]*(_[a-z0-9]+)*"));
}

// DrafterStats -> DRAFTER_STATS
std::string UpperSnake(const std::string& camel) {
  std::string out;
  for (char c : camel) {
    if (absl::ascii_isupper(c) && !out.empty()) out += '_';
    out += absl::ascii_toupper(c);
  }
  return out;
}

class ErrorPrinter : public pb::compiler::MultiFileErrorCollector {
 public:
  void AddError(const std::string& file, int line, int column,
                const std::string& message) override {
    ADD_FAILURE() << file << ":" << line << ":" << column << ": " << message;
  }
};

class ProtoLintTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const std::string root = testing::SourcePath("protos");
    tree_.MapPath("", root);
    for (const auto& entry :
         std::filesystem::directory_iterator(root + "/" + kFolder)) {
      if (entry.path().extension() != ".proto") continue;
      const pb::FileDescriptor* file = importer_.Import(
          absl::StrCat(kFolder, "/", entry.path().filename().string()));
      ASSERT_NE(file, nullptr) << entry.path();
      files_.push_back(file);
    }
    ASSERT_FALSE(files_.empty());
  }

  // Every message, nested ones included.
  std::vector<const pb::Descriptor*> Messages() const {
    std::vector<const pb::Descriptor*> messages;
    for (const auto* file : files_) {
      for (int i = 0; i < file->message_type_count(); ++i) {
        messages.push_back(file->message_type(i));
      }
    }
    for (size_t i = 0; i < messages.size(); ++i) {
      for (int j = 0; j < messages[i]->nested_type_count(); ++j) {
        if (messages[i]->nested_type(j)->options().map_entry()) continue;
        messages.push_back(messages[i]->nested_type(j));
      }
    }
    return messages;
  }

  std::vector<const pb::EnumDescriptor*> Enums() const {
    std::vector<const pb::EnumDescriptor*> enums;
    for (const auto* file : files_) {
      for (int i = 0; i < file->enum_type_count(); ++i) {
        enums.push_back(file->enum_type(i));
      }
    }
    for (const auto* message : Messages()) {
      for (int i = 0; i < message->enum_type_count(); ++i) {
        enums.push_back(message->enum_type(i));
      }
    }
    return enums;
  }

  ErrorPrinter errors_;
  pb::compiler::DiskSourceTree tree_;
  pb::compiler::Importer importer_{&tree_, &errors_};
  std::vector<const pb::FileDescriptor*> files_;
};

TEST_F(ProtoLintTest, EveryFileIsProto3InThePackageOfItsFolder) {
  for (const auto* file : files_) {
    EXPECT_EQ(file->package(), "foretoken.v1") << file->name();
    EXPECT_EQ(file->syntax(), pb::FileDescriptor::SYNTAX_PROTO3)
        << file->name();
  }
}

TEST_F(ProtoLintTest, NamesFollowTheStyleGuide) {
  for (const auto* message : Messages()) {
    EXPECT_TRUE(IsCamelCase(message->name())) << message->full_name();
    for (int i = 0; i < message->field_count(); ++i) {
      EXPECT_TRUE(IsSnakeCase(message->field(i)->name()))
          << message->field(i)->full_name();
    }
  }
  for (const auto* type : Enums()) {
    const std::string prefix = UpperSnake(type->name()) + "_";
    EXPECT_EQ(type->FindValueByNumber(0)->name(), prefix + "UNSPECIFIED")
        << type->full_name();
    for (int i = 0; i < type->value_count(); ++i) {
      EXPECT_THAT(type->value(i)->name(), ::testing::StartsWith(prefix));
    }
  }
}

// Clients find it by that name. CREST alone has a contract of its own.
TEST_F(ProtoLintTest, DraftingServicesOfTheModeTableHaveTheirDraftMethod) {
  std::set<std::string> drafting;
  for (const auto* file : files_) {
    for (int i = 0; i < file->service_count(); ++i) {
      const auto* draft = file->service(i)->FindMethodByName("Draft");
      if (draft == nullptr) continue;
      EXPECT_EQ(draft->input_type()->name(), "DraftRequest");
      EXPECT_EQ(draft->output_type()->name(), "DraftResponse");
      EXPECT_TRUE(draft->client_streaming() && draft->server_streaming());
      drafting.insert(
          absl::AsciiStrToLower(UpperSnake(file->service(i)->name())));
    }
  }
  drafting.insert("crest");
  EXPECT_THAT(drafting,
              ::testing::UnorderedElementsAreArray(DraftingServices()));
}

TEST_F(ProtoLintTest, MethodsAreNamedAfterTheirMessages) {
  std::set<std::string> services;
  for (const auto* file : files_) {
    for (int i = 0; i < file->service_count(); ++i) {
      const pb::ServiceDescriptor* service = file->service(i);
      services.insert(service->name());
      for (int j = 0; j < service->method_count(); ++j) {
        const pb::MethodDescriptor* method = service->method(j);
        EXPECT_THAT(method->input_type()->name(),
                    ::testing::EndsWith("Request"))
            << method->full_name();
        EXPECT_THAT(method->output_type()->name(),
                    ::testing::EndsWith("Response"))
            << method->full_name();
      }
    }
  }
  EXPECT_THAT(services,
              ::testing::ElementsAre("Crest", "DraftWorker", "Generation",
                                     "TrieDrafter", "Verifier"));
}

// field_numbers.golden holds "message number name type" for every field and
// "enum number name value" for every value ever published, and the ranges
// below. One may go only if its number becomes reserved, or with its message,
// whose name then stays unused.
TEST_F(ProtoLintTest, NoFieldNumberChangesItsMeaning) {
  const std::string path =
      testing::SourcePath("tests/unit/protos/field_numbers.golden");
  const auto golden = ReadFile(path);
  FORETOKEN_ASSERT_OK(golden);
  std::map<std::string, const pb::Descriptor*> by_name;
  std::set<std::string> present;
  for (const auto* message : Messages()) {
    by_name[message->full_name()] = message;
    for (int i = 0; i < message->field_count(); ++i) {
      const pb::FieldDescriptor* field = message->field(i);
      present.insert(absl::StrCat(message->full_name(), " ", field->number(),
                                  " ", field->name(), " ", field->type_name()));
    }
  }
  std::map<std::string, const pb::EnumDescriptor*> enum_by_name;
  for (const auto* type : Enums()) {
    enum_by_name[type->full_name()] = type;
    for (int i = 0; i < type->value_count(); ++i) {
      present.insert(absl::StrCat(type->full_name(), " ",
                                  type->value(i)->number(), " ",
                                  type->value(i)->name(), " value"));
    }
  }
  std::set<std::string> known;
  for (const absl::string_view line :
       absl::StrSplit(*golden, '\n', absl::SkipEmpty())) {
    if (absl::StartsWith(line, kRange)) continue;
    known.insert(std::string(line));
    if (present.count(std::string(line)) > 0) continue;
    const std::vector<std::string> parts = absl::StrSplit(line, ' ');
    ASSERT_EQ(parts.size(), 4u) << line;
    int number = 0;
    ASSERT_TRUE(absl::SimpleAtoi(parts[1], &number)) << line;
    const auto message = by_name.find(parts[0]);
    const auto type = enum_by_name.find(parts[0]);
    EXPECT_TRUE(
        (message == by_name.end() ||
         message->second->IsReservedNumber(number)) &&
        (type == enum_by_name.end() || type->second->IsReservedNumber(number)))
        << "gone without `reserved`: " << line;
  }
  for (const std::string& line : present) {
    EXPECT_TRUE(known.count(line) > 0) << "add to " << path << ": " << line;
  }
}

// "range file first last topic": numbers that changes under way at the same
// time may use in every message of the file without a conflict. Numbers from
// 100 on belong to a range.
TEST_F(ProtoLintTest, RangesOfNumbersAreKept) {
  const auto golden =
      ReadFile(testing::SourcePath("tests/unit/protos/field_numbers.golden"));
  FORETOKEN_ASSERT_OK(golden);
  std::map<std::string, std::set<int>> given;  // by file
  for (const absl::string_view line :
       absl::StrSplit(*golden, '\n', absl::SkipEmpty())) {
    if (!absl::StartsWith(line, kRange)) continue;
    const std::vector<std::string> parts = absl::StrSplit(line, ' ');
    int first = 0, last = 0;
    ASSERT_EQ(parts.size(), 5u) << line;
    ASSERT_TRUE(absl::SimpleAtoi(parts[2], &first)) << line;
    ASSERT_TRUE(absl::SimpleAtoi(parts[3], &last)) << line;
    EXPECT_TRUE(100 <= first && first <= last) << line;
    for (int number = first; number <= last; ++number) {
      EXPECT_TRUE(given[parts[1]].insert(number).second)
          << "given twice: " << number << " in " << line;
    }
  }
  for (const auto* message : Messages()) {
    const std::set<int>& numbers = given[message->file()->name()];
    for (int i = 0; i < message->field_count(); ++i) {
      const int number = message->field(i)->number();
      EXPECT_TRUE(number < 100 || numbers.count(number) > 0)
          << message->field(i)->full_name() << " is in no range: " << number;
    }
  }
}

}  // namespace
}  // namespace foretoken
