#include "common/grammar/structural_tag.h"

#include <algorithm>
#include <initializer_list>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/grammar/byte_set.h"
#include "common/grammar/gbnf.h"
#include "common/grammar/json_schema.h"
#include "common/grammar/json_value.h"
#include "common/grammar/regex.h"
#include "common/grammar/regex_syntax.h"

namespace foretoken::grammar {
namespace {

constexpr int kMaxFormats = 64;  // within each other
// Those of a schema, and the levels around it: a format is in an array of an
// object.
constexpr int kMaxDepth = 128 + 2 * kMaxFormats + 4;
constexpr int64_t kMaxValues = 500'000;
constexpr size_t kMaxTags = 1024;
constexpr size_t kMaxTriggers = 256;
// Triggers that overlap need a terminal each, which knows all the others.
constexpr size_t kMaxOverlapping = 16;
constexpr size_t kMaxOverlappingBytes = 1024;

// `place`: empty for the whole.
absl::Status Wrong(absl::string_view place, absl::string_view what) {
  return absl::InvalidArgumentError(
      absl::StrCat("structural tag: ", place, place.empty() ? "" : ": ", what));
}

// Whether `text` and `other` can end at different places of a common text and
// share bytes of it: a suffix of the one is a beginning of the other, shorter
// than both.
bool Overlap(absl::string_view text, absl::string_view other) {
  for (size_t size = 1; size < std::min(text.size(), other.size()); ++size) {
    if (absl::EndsWith(text, other.substr(0, size))) return true;
  }
  return false;
}

// Where a format stands in the whole text.
struct Position {
  bool free = true;   // free text may stand here
  bool first = true;  // nothing needs to stand before it
  int depth = 0;
};

class Reader {
 public:
  Reader(GrammarBuilder& builder, Expr first_text)
      : builder_(builder),
        regexes_(builder.regexes()),
        first_text_(first_text),
        any_text_(regexes_.Star(AnyCodePoint(TextForm::kUtf8, regexes_))) {}

  absl::StatusOr<Symbol> Whole(const JsonValue& json) {
    if (json.kind != JsonValue::kObject) return Wrong("", "want an object");
    const JsonValue* const type = json.Find("type");
    if (type == nullptr || type->text != "structural_tag") {
      return Wrong("type", "want structural_tag");
    }
    if (const JsonValue* const format = Member(json, "format")) {
      FORETOKEN_RETURN_IF_ERROR(CheckMembers(json, "", {"type", "format"}, {}));
      return Format(*format, "format", Position());
    }
    // SGLang's examples have max_new_tokens here, which does not change the
    // text.
    FORETOKEN_RETURN_IF_ERROR(CheckMembers(
        json, "", {"type", "structures", "triggers"}, {"max_new_tokens"}));
    return TriggeredTags(json, "structures", "", Position());
  }

 private:
  // Parts of a tag.
  struct Tag {
    std::string begin;
    Symbol rest = 0;  // content and end
  };

  // Null counts as absent.
  static const JsonValue* Member(const JsonValue& object,
                                 absl::string_view name) {
    const JsonValue* const value = object.Find(name);
    return value == nullptr || value->kind == JsonValue::kNull ? nullptr
                                                               : value;
  }

  // Object members: all of `required`, none but those and `optional`.
  absl::Status CheckMembers(const JsonValue& object, absl::string_view place,
                            std::initializer_list<absl::string_view> required,
                            std::initializer_list<absl::string_view> optional) {
    for (const absl::string_view name : required) {
      if (Member(object, name) == nullptr) {
        return Wrong(place, absl::StrCat(name, " is required"));
      }
    }
    const auto has = [](std::initializer_list<absl::string_view> names,
                        const std::string& key) {
      return std::find(names.begin(), names.end(), key) != names.end();
    };
    for (const JsonMember& member : object.members) {
      if (member.value.kind != JsonValue::kNull && !has(required, member.key) &&
          !has(optional, member.key)) {
        return Wrong(
            place, absl::StrCat(member.key.substr(0, 64), " is not supported"));
      }
    }
    return absl::OkStatus();
  }

  absl::StatusOr<std::string> Text(const JsonValue& object,
                                   absl::string_view member,
                                   const std::string& place) {
    const JsonValue* const value = object.Find(member);
    if (value == nullptr || value->kind != JsonValue::kString) {
      return Wrong(absl::StrCat(place, ".", member), "want a string");
    }
    return value->text;
  }

  // Strings that are not empty, 1..max of them.
  absl::StatusOr<std::vector<std::string>> Texts(const JsonValue& value,
                                                 size_t max,
                                                 const std::string& place) {
    std::vector<std::string> texts;
    if (value.kind == JsonValue::kArray) {
      for (const JsonValue& item : value.items) {
        if (item.kind == JsonValue::kString) texts.push_back(item.text);
      }
    }
    if (texts.empty() || texts.size() != value.items.size() ||
        texts.size() > max ||
        std::find(texts.begin(), texts.end(), "") != texts.end()) {
      return Wrong(place, absl::StrCat("want an array of 1..", max,
                                       " texts that are not empty"));
    }
    return texts;
  }

  // `prefix`: the object's place and a point.
  absl::StatusOr<bool> Flag(const JsonValue& object, absl::string_view member,
                            const std::string& prefix) {
    const JsonValue* const value = Member(object, member);
    if (value == nullptr) return false;
    if (!value->is_bool()) {
      return Wrong(absl::StrCat(prefix, member), "want true or false");
    }
    return value->kind == JsonValue::kTrue;
  }

  absl::StatusOr<Symbol> Schema(const JsonValue& schema,
                                const std::string& place) {
    const auto result =
        AddJsonSchema(JsonText(schema), JsonSchemaOptions(), builder_);
    if (!result.ok()) {
      return Annotate(result.status(), absl::StrCat("structural tag: ", place));
    }
    return result->root;
  }

  absl::StatusOr<Symbol> Format(const JsonValue& format,
                                const std::string& place, Position at) {
    FORETOKEN_RETURN_IF_ERROR(builder_.status());
    if (at.depth >= kMaxFormats) {
      return Wrong(place, absl::StrCat("more than ", kMaxFormats,
                                       " formats within each other"));
    }
    const JsonValue* const named = format.Find("type");
    if (named == nullptr || named->kind != JsonValue::kString) {
      return Wrong(place, "want an object with a type");
    }
    const std::string& type = named->text;
    if (type == "triggered_tags") {
      if (!at.free) return FreeTextRefused(place);
      FORETOKEN_RETURN_IF_ERROR(
          CheckMembers(format, place, {"type", "triggers", "tags"},
                       {"at_least_one", "stop_after_first", "excludes"}));
      FORETOKEN_RETURN_IF_ERROR(CheckExcludesNothing(format, place));
      return TriggeredTags(format, "tags", absl::StrCat(place, "."), at);
    }
    if (type == "tags_with_separator") {
      return TagsWithSeparator(format, place, at.depth);
    }
    if (type == "tag") {
      FORETOKEN_ASSIGN_OR_RETURN(const Tag tag,
                                 ReadTag(format, place, at.depth));
      return builder_.Sequence({builder_.Literal(tag.begin), tag.rest});
    }
    if (type == "sequence" || type == "or") {
      return Elements(format, type == "or", place, at);
    }
    return Leaf(format, type, place, at);
  }

  // A format without formats in it.
  absl::StatusOr<Symbol> Leaf(const JsonValue& format, const std::string& type,
                              const std::string& place, Position at) {
    if (type == "any_text") {
      FORETOKEN_RETURN_IF_ERROR(
          CheckMembers(format, place, {"type"}, {"excludes"}));
      FORETOKEN_RETURN_IF_ERROR(CheckExcludesNothing(format, place));
      if (!at.free) return FreeTextRefused(place);
      return builder_.Terminal(At(at, any_text_));
    }
    if (type == "json_schema") {
      FORETOKEN_RETURN_IF_ERROR(
          CheckMembers(format, place, {"type", "json_schema"}, {"style"}));
      const JsonValue* const style = Member(format, "style");
      if (style != nullptr && style->text != "json") {
        return Wrong(absl::StrCat(place, ".style"), "want json");
      }
      return Schema(*format.Find("json_schema"),
                    absl::StrCat(place, ".json_schema"));
    }
    const std::string member = type == "const_string" ? "value"
                               : type == "regex"      ? "pattern"
                                                      : type;
    if (member == type && type != "grammar") {
      return Wrong(place, absl::StrCat("type: ", type.substr(0, 64),
                                       " is not supported"));
    }
    FORETOKEN_RETURN_IF_ERROR(
        CheckMembers(format, place, {"type", member}, {}));
    FORETOKEN_ASSIGN_OR_RETURN(const std::string text,
                               Text(format, member, place));
    if (type == "const_string") return builder_.Literal(text);
    const std::string here = absl::StrCat("structural tag: ", place);
    if (type == "regex") {
      const auto expr = ParseRegex(text, RegexSyntaxOptions(), regexes_);
      if (!expr.ok()) return Annotate(expr.status(), here);
      return builder_.Terminal(*expr);
    }
    const auto symbol = AddGbnf(text, builder_);
    if (!symbol.ok()) return Annotate(symbol.status(), here);
    return *symbol;
  }

  absl::Status FreeTextRefused(const std::string& place) {
    return Wrong(place,
                 "free text within a tag has to be its whole content, as "
                 "any_text");
  }

  // A list of texts that may not appear has to be empty.
  absl::Status CheckExcludesNothing(const JsonValue& format,
                                    const std::string& place) {
    const JsonValue* const excludes = Member(format, "excludes");
    if (excludes == nullptr ||
        (excludes->kind == JsonValue::kArray && excludes->items.empty())) {
      return absl::OkStatus();
    }
    return Wrong(place, "excludes is not supported");
  }

  absl::StatusOr<Symbol> Elements(const JsonValue& format, bool one_of_them,
                                  const std::string& place, Position at) {
    FORETOKEN_RETURN_IF_ERROR(
        CheckMembers(format, place, {"type", "elements"}, {}));
    const JsonValue& elements = *format.Find("elements");
    if (elements.kind != JsonValue::kArray || elements.items.empty() ||
        elements.items.size() > kMaxTags) {
      return Wrong(absl::StrCat(place, ".elements"),
                   absl::StrCat("want an array of 1..", kMaxTags, " formats"));
    }
    std::vector<Symbol> symbols;
    for (size_t i = 0; i < elements.items.size(); ++i) {
      FORETOKEN_ASSIGN_OR_RETURN(
          const Symbol symbol,
          Format(elements.items[i], absl::StrCat(place, ".elements[", i, "]"),
                 {at.free, at.first, at.depth + 1}));
      symbols.push_back(symbol);
    }
    return one_of_them ? builder_.Choice(symbols) : builder_.Sequence(symbols);
  }

  // `tag` with a content, or with a schema, as the older notation has it.
  absl::StatusOr<Tag> ReadTag(const JsonValue& tag, const std::string& place,
                              int depth) {
    const bool has_schema = Member(tag, "schema") != nullptr;
    FORETOKEN_RETURN_IF_ERROR(CheckMembers(
        tag, place, {"begin", has_schema ? "schema" : "content", "end"},
        {"type"}));
    const JsonValue* const named = Member(tag, "type");
    if (named != nullptr && named->text != "tag") {
      return Wrong(absl::StrCat(place, ".type"), "want tag");
    }
    Tag result;
    FORETOKEN_ASSIGN_OR_RETURN(result.begin, Text(tag, "begin", place));
    const JsonValue& end = *tag.Find("end");
    std::vector<std::string> ends = {end.text};
    if (end.kind != JsonValue::kString) {
      FORETOKEN_ASSIGN_OR_RETURN(
          ends, Texts(end, kMaxTriggers, absl::StrCat(place, ".end")));
    }
    const JsonValue& content = *tag.Find(has_schema ? "schema" : "content");
    const std::string content_place =
        absl::StrCat(place, has_schema ? ".schema" : ".content");
    const JsonValue* const type = content.Find("type");
    if (!has_schema && type != nullptr && type->text == "any_text" &&
        !ends[0].empty()) {
      FORETOKEN_RETURN_IF_ERROR(
          CheckMembers(content, content_place, {"type"}, {"excludes"}));
      FORETOKEN_RETURN_IF_ERROR(CheckExcludesNothing(content, content_place));
      result.rest = builder_.Terminal(FirstOf(ends, ends));
      return result;
    }
    const auto symbol =
        has_schema ? Schema(content, content_place)
                   : Format(content, content_place,
                            {/*free=*/false, /*first=*/false, depth + 1});
    FORETOKEN_RETURN_IF_ERROR(symbol.status());
    result.rest = builder_.Sequence({*symbol, builder_.Terminal(OneOf(ends))});
    return result;
  }

  absl::StatusOr<std::vector<Tag>> ReadTags(const JsonValue& format,
                                            absl::string_view member,
                                            const std::string& prefix,
                                            int depth) {
    const JsonValue& tags = *format.Find(member);
    if (tags.kind != JsonValue::kArray || tags.items.empty() ||
        tags.items.size() > kMaxTags) {
      return Wrong(absl::StrCat(prefix, member),
                   absl::StrCat("want an array of 1..", kMaxTags, " tags"));
    }
    std::vector<Tag> result;
    for (size_t i = 0; i < tags.items.size(); ++i) {
      FORETOKEN_ASSIGN_OR_RETURN(
          Tag tag,
          ReadTag(tags.items[i], absl::StrCat(prefix, member, "[", i, "]"),
                  depth + 1));
      FORETOKEN_RETURN_IF_ERROR(builder_.status());
      result.push_back(std::move(tag));
    }
    return result;
  }

  Symbol WholeTag(const Tag& tag) {
    return builder_.Sequence({builder_.Literal(tag.begin), tag.rest});
  }
  Symbol OneTag(const std::vector<Tag>& tags) {
    std::vector<Symbol> symbols;
    for (const Tag& tag : tags) symbols.push_back(WholeTag(tag));
    return builder_.Choice(symbols);
  }

  // `prefix`: of the places within `format`.
  absl::StatusOr<Symbol> TriggeredTags(const JsonValue& format,
                                       absl::string_view member,
                                       const std::string& prefix, Position at) {
    FORETOKEN_ASSIGN_OR_RETURN(const std::vector<std::string> triggers,
                               Texts(*format.Find("triggers"), kMaxTriggers,
                                     absl::StrCat(prefix, "triggers")));
    FORETOKEN_ASSIGN_OR_RETURN(const bool at_least_one,
                               Flag(format, "at_least_one", prefix));
    FORETOKEN_ASSIGN_OR_RETURN(const bool stop_after_first,
                               Flag(format, "stop_after_first", prefix));
    FORETOKEN_ASSIGN_OR_RETURN(const std::vector<Tag> tags,
                               ReadTags(format, member, prefix, at.depth));
    if (at_least_one && stop_after_first) return OneTag(tags);
    FORETOKEN_ASSIGN_OR_RETURN(
        const TagsOfTriggers by_trigger,
        Sort(triggers, tags, absl::StrCat(prefix, member)));
    FORETOKEN_ASSIGN_OR_RETURN(
        const bool overlapping,
        CheckTriggers(triggers, absl::StrCat(prefix, "triggers")));
    // Text that may be the beginning of the whole one is narrowed.
    const auto part = [&](bool first) {
      const Position here = {at.free, at.first && first, at.depth};
      return overlapping ? ExactTextAndTag(here, triggers, by_trigger)
                         : TextAndTag(here, triggers, by_trigger);
    };
    const auto rest = [&](bool first) {
      return builder_.Terminal(
          At({at.free, at.first && first, at.depth}, Without(triggers)));
    };
    if (stop_after_first) return builder_.Choice({rest(true), part(true)});
    const Symbol further = builder_.Sequence(
        {builder_.Repeat(part(false), 0, kNoLimit), rest(false)});
    if (at_least_one) return builder_.Sequence({OneTag(tags), further});
    if (!at.first || first_text_ == Regexes::kAnything) return further;
    return builder_.Choice(
        {rest(true), builder_.Sequence({part(true), further})});
  }

  // By trigger: the rest of its tags.
  using TagsOfTriggers = std::vector<std::vector<Symbol>>;

  absl::StatusOr<TagsOfTriggers> Sort(const std::vector<std::string>& triggers,
                                      const std::vector<Tag>& tags,
                                      const std::string& place) {
    TagsOfTriggers behind(triggers.size());
    for (size_t i = 0; i < tags.size(); ++i) {
      const auto begins_with = [&](const std::string& trigger) {
        return absl::StartsWith(tags[i].begin, trigger);
      };
      const auto trigger =
          std::find_if(triggers.begin(), triggers.end(), begins_with);
      if (trigger == triggers.end() ||
          std::any_of(trigger + 1, triggers.end(), begins_with)) {
        return Wrong(absl::StrCat(place, "[", i, "].begin"),
                     "want a text that starts with one of the triggers, and "
                     "with one only");
      }
      behind[trigger - triggers.begin()].push_back(builder_.Sequence(
          {builder_.Literal(tags[i].begin.substr(trigger->size())),
           tags[i].rest}));
    }
    return behind;
  }

  // Whether some of them overlap. InvalidArgument if one contains another,
  // which would always come first; ResourceExhausted if too many overlap.
  absl::StatusOr<bool> CheckTriggers(const std::vector<std::string>& triggers,
                                     const std::string& place) {
    size_t bytes = 0;
    bool overlapping = false;
    for (size_t i = 0; i < triggers.size(); ++i) {
      bytes += triggers[i].size();
      for (size_t k = 0; k < triggers.size(); ++k) {
        if (i != k && absl::StrContains(triggers[i], triggers[k])) {
          return Wrong(absl::StrCat(place, "[", i, "]"),
                       "contains another trigger");
        }
        overlapping = overlapping || Overlap(triggers[i], triggers[k]);
      }
    }
    if (overlapping &&
        (triggers.size() > kMaxOverlapping || bytes > kMaxOverlappingBytes)) {
      return absl::ResourceExhaustedError(absl::StrCat(
          "structural tag: ", place, ": overlapping triggers, want at most ",
          kMaxOverlapping, " of ", kMaxOverlappingBytes, " bytes together"));
    }
    return overlapping;
  }

  // Text up to the first trigger, and a tag of this trigger. A trigger that
  // overlaps with none, itself included, cannot be complete before the one
  // that begins after the text.
  Symbol TextAndTag(Position at, const std::vector<std::string>& triggers,
                    const TagsOfTriggers& behind) {
    std::vector<Symbol> tags;
    for (size_t i = 0; i < triggers.size(); ++i) {
      if (behind[i].empty()) continue;
      tags.push_back(builder_.Sequence(
          {builder_.Literal(triggers[i]), builder_.Choice(behind[i])}));
    }
    return builder_.Sequence(
        {builder_.Terminal(At(at, Without(triggers))), builder_.Choice(tags)});
  }
  Symbol ExactTextAndTag(Position at, const std::vector<std::string>& triggers,
                         const TagsOfTriggers& behind) {
    std::vector<Symbol> parts;
    for (size_t i = 0; i < triggers.size(); ++i) {
      if (behind[i].empty()) continue;
      parts.push_back(builder_.Sequence(
          {builder_.Terminal(At(at, FirstOf(triggers, {triggers[i]}))),
           builder_.Choice(behind[i])}));
    }
    return builder_.Choice(parts);
  }

  absl::StatusOr<Symbol> TagsWithSeparator(const JsonValue& format,
                                           const std::string& place,
                                           int depth) {
    FORETOKEN_RETURN_IF_ERROR(
        CheckMembers(format, place, {"type", "tags", "separator"},
                     {"at_least_one", "stop_after_first"}));
    FORETOKEN_ASSIGN_OR_RETURN(const std::string separator,
                               Text(format, "separator", place));
    const std::string prefix = absl::StrCat(place, ".");
    FORETOKEN_ASSIGN_OR_RETURN(const bool at_least_one,
                               Flag(format, "at_least_one", prefix));
    FORETOKEN_ASSIGN_OR_RETURN(const bool stop_after_first,
                               Flag(format, "stop_after_first", prefix));
    FORETOKEN_ASSIGN_OR_RETURN(const std::vector<Tag> tags,
                               ReadTags(format, "tags", prefix, depth));
    ListRule list;
    list.has_rest = true;
    list.rest = OneTag(tags);
    list.separator = builder_.Literal(separator);
    list.min = at_least_one ? 1 : 0;
    list.max = stop_after_first ? 1 : kNoLimit;
    return builder_.List(std::move(list));
  }

  // Free text at this position.
  Expr At(Position at, Expr text) {
    return at.first ? regexes_.And(text, first_text_) : text;
  }

  Expr OneOf(const std::vector<std::string>& texts) {
    std::vector<Expr> literals;
    for (const std::string& text : texts) {
      literals.push_back(regexes_.Literal(text));
    }
    return regexes_.Or(literals);
  }
  // Any text that contains none of them.
  Expr Without(const std::vector<std::string>& texts) {
    return regexes_.And(
        any_text_,
        regexes_.Not(regexes_.Concat(
            {Regexes::kAnything, OneOf(texts), Regexes::kAnything})));
  }
  // Any text that ends with one of `last`, and in which none of `texts` ends
  // before that.
  Expr FirstOf(const std::vector<std::string>& texts,
               const std::vector<std::string>& last) {
    const Expr earlier =
        regexes_.Concat({Regexes::kAnything, OneOf(texts),
                         regexes_.Bytes(ByteSet::All()), Regexes::kAnything});
    return regexes_.And(regexes_.Concat(any_text_, OneOf(last)),
                        regexes_.Not(earlier));
  }

  GrammarBuilder& builder_;
  Regexes& regexes_;
  const Expr first_text_;
  const Expr any_text_;
};

}  // namespace

absl::StatusOr<Symbol> AddStructuralTag(absl::string_view source,
                                        GrammarBuilder& builder,
                                        Expr first_text) {
  const absl::StatusOr<JsonValue> json =
      ParseJsonValue(source, kMaxDepth, kMaxValues);
  if (!json.ok()) return Annotate(json.status(), "structural tag");
  FORETOKEN_ASSIGN_OR_RETURN(const Symbol whole,
                             Reader(builder, first_text).Whole(*json));
  FORETOKEN_RETURN_IF_ERROR(builder.status());
  return whole;
}

}  // namespace foretoken::grammar
