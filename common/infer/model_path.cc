#include "common/infer/model_path.h"

#include <filesystem>
#include <system_error>

#include "absl/algorithm/container.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "common/base/json.h"
#include "common/base/mapped_file.h"
#include "common/base/status_macros.h"
#include "common/gguf/gguf.h"
#include "common/gguf/gguf_files.h"
#include "common/infer/model_weights.h"

namespace foretoken {
namespace {

namespace fs = std::filesystem;

// Protocol buffers take UTF-8 alone; the replacement character stands for what
// is not.
bool IsUtf8(absl::string_view text) {
  return !absl::StrContains(DumpJson(Json(std::string(text))), "\uFFFD");
}

// A name that shows a path tells strangers about the machine.
bool IsName(absl::string_view name) {
  return !name.empty() && name.size() <= kMaxModelNameBytes && name != "." &&
         name != ".." && IsUtf8(name) && absl::c_none_of(name, [](char c) {
           return c == '/' || c == '\\' ||
                  absl::ascii_iscntrl(static_cast<unsigned char>(c));
         });
}

// general.name; empty without one, or for a damaged file, which loading
// reports.
std::string GgufName(const std::string& path) {
  const auto map = MappedFile::Open(path);
  if (!map.ok()) return "";
  const auto gguf = ParseGguf(map->bytes(), path);
  if (!gguf.ok()) return "";
  const auto name = gguf->metadata.String("general.name");
  if (!name.ok() || !name->has_value()) return "";
  return std::string(absl::StripAsciiWhitespace(**name));
}

// "model" of "model-00001-of-00003", as gguf-split names its files.
absl::string_view WithoutSplit(absl::string_view stem) {
  constexpr absl::string_view kFirst = "-00001-of-";
  const size_t at = stem.rfind(kFirst);
  if (at == absl::string_view::npos) return stem;
  const absl::string_view count = stem.substr(at + kFirst.size());
  const bool is_split =
      count.size() == 5 && absl::c_all_of(count, absl::ascii_isdigit);
  return is_split ? stem.substr(0, at) : stem;
}

}  // namespace

absl::Status CheckModelPath(const std::string& path) {
  std::error_code error;
  const bool exists = fs::exists(path, error);
  if (error) {
    return absl::PermissionDeniedError(
        absl::StrCat(path, ": ", error.message()));
  }
  if (!exists) {
    return absl::NotFoundError(
        absl::StrCat(path, ": no such file or directory"));
  }
  if (fs::is_directory(path, error)) {
    if (fs::exists(path + "/config.json", error)) return absl::OkStatus();
    return absl::NotFoundError(
        absl::StrCat(path, ": not a model directory: it has no config.json"));
  }
  if (IsGgufFile(path)) return absl::OkStatus();
  FORETOKEN_RETURN_IF_ERROR(MappedFile::Open(path).status());
  return absl::InvalidArgumentError(
      absl::StrCat(path, ": not a GGUF file or model directory"));
}

absl::Status CheckModel(const std::string& path) {
  const absl::Status status = ModelWeights::Load(path).status();
  if (!absl::IsUnimplemented(status)) return status;
  return absl::UnimplementedError(
      absl::StrCat("model not supported: ", status.message()));
}

std::string ModelNameOf(const std::string& path) {
  std::error_code error;
  if (IsGgufFile(path)) {
    std::string own = GgufName(path);
    if (IsName(own)) return own;
  }
  // "." and a trailing slash have no name of their own. Links keep theirs: what
  // they point to may be called by a hash.
  fs::path whole = fs::absolute(path, error).lexically_normal();
  if (error) whole = path;
  if (!whole.has_filename()) whole = whole.parent_path();
  const std::string file = whole.filename().string();
  absl::string_view name = file;
  if (absl::ConsumeSuffix(&name, ".gguf")) name = WithoutSplit(name);
  return IsName(name) ? std::string(name) : "model";
}

}  // namespace foretoken
