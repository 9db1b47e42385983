"""Requests for structured output as other servers document them.

Each example has the fields of a request as a client of that server sends them
(with an SDK's `extra_body` merged in, as the SDK does), and a check of its
answer. Prompts are ours; schemas, expressions and grammars use what the
documented example uses. docs/structured_output_clients.md lists them.
"""

import json
import re

from structured_checks import (END, Example, c_code, holds, is_json_beginning,
                               lines, matches, one_of, valid)

# Schemas ----------------------------------------------------------------------

def an_object(properties, **more):
    return {"type": "object", "properties": properties,
            "required": list(properties), **more}


STRING, INTEGER = {"type": "string"}, {"type": "integer"}
# As pydantic writes them.
CAR = {
    "$defs": {"CarType": {"enum": ["sedan", "SUV", "Truck", "Coupe"],
                          "title": "CarType", "type": "string"}},
    **an_object({"brand": {"title": "Brand", **STRING},
                 "model": {"title": "Model", **STRING},
                 "car_type": {"$ref": "#/$defs/CarType"}}),
    "title": "CarDescription"}
IS_CAR = (lambda car: {"brand", "model", "car_type"} <= set(car),
          lambda car: car["car_type"] in ("sedan", "SUV", "Truck", "Coupe"))
PEOPLE = an_object({"name": STRING, "age": INTEGER}, title="People")
IS_PERSON = (lambda person: isinstance(person["name"], str),
             lambda person: isinstance(person["age"], int))
CAPITAL = an_object({
    "name": {"description": "Name of the city", "pattern": r"^\w+$",
             "title": "Name", "type": "string"},
    "population": {"title": "Population", **INTEGER}}, title="CapitalInfo")
IS_CAPITAL = (lambda city: re.fullmatch(r"\w+", city["name"]),
              lambda city: isinstance(city["population"], int))
ACTORS = {"type": "array", "minItems": 10, "maxItems": 100, "items": an_object(
    {"name": {"type": "string", "minLength": 1, "maxLength": 100},
     "age": {"type": "integer", "minimum": 0, "maximum": 150}},
    additionalProperties=False)}
SUMMARY = {
    "$defs": {"QAPair": an_object(
        {"question": STRING, "concise_answer": STRING, "justification": STRING},
        additionalProperties=True, title="QAPair")},
    **an_object({
        "key_facts": {"items": {"pattern": "^- .{5,}$", "type": "string"},
                      "title": "Key Facts", "type": "array"},
        "question_answers": {"items": {
            "items": {"$ref": "#/$defs/QAPair"}, "minItems": 5,
            "type": "array"}, "type": "array"}}, additionalProperties=True),
    "title": "Summary"}
# zod-to-json-schema's.
CONTACT = an_object(
    {"age": {"type": "number", "exclusiveMinimum": 0},
     "email": {"type": "string", "format": "email"}},
    additionalProperties=False,
    **{"$schema": "http://json-schema.org/draft-07/schema#"})


def strict(properties, **more):
    return an_object(properties, additionalProperties=False, **more)


EVENT = strict({"name": STRING, "date": STRING,
                "participants": {"type": "array", "items": STRING}})
MATH = strict({
    "steps": {"type": "array", "items": strict(
        {"explanation": STRING, "output": STRING})},
    "final_answer": STRING})
PAPER = strict({"title": STRING,
                "authors": {"type": "array", "items": STRING},
                "abstract": STRING,
                "keywords": {"type": "array", "items": STRING}})
UI = strict({
    "type": {"type": "string", "description": "The kind of component",
             "enum": ["div", "button", "header", "section", "field", "form"]},
    "label": {"type": "string", "description": "Its text, if it has one"},
    "children": {"type": "array", "items": {"$ref": "#"}},
    "attributes": {"type": "array", "items": strict(
        {"name": STRING, "value": STRING})}})
MODERATION = strict({
    "is_violating": {"type": "boolean"},
    "category": {"type": ["string", "null"],
                 "enum": ["violence", "sexual", "self_harm", None]},
    "explanation_if_violating": {"type": ["string", "null"]}})
LINKED_LIST = strict(
    {"linked_list": {"$ref": "#/$defs/node"}},
    **{"$defs": {"node": strict({
        "value": {"type": "number"},
        "next": {"anyOf": [{"$ref": "#/$defs/node"}, {"type": "null"}]}})}})
USER_OR_ADDRESS = strict(
    {"item": {"anyOf": [
        strict({"name": STRING, "age": {"type": "number"}}),
        strict({"number": STRING, "street": STRING, "city": STRING})]}})
LIMITS = strict({
    "temperature": {"type": "number", "minimum": -130, "maximum": 130},
    "username": {"type": "string", "pattern": "^@[a-zA-Z0-9_]+$"},
    "email": {"type": "string", "format": "email"},
    "since": {"type": "string", "format": "date"},
    "tags": {"type": "array", "items": STRING, "minItems": 1, "maxItems": 3}})


# Grammars ---------------------------------------------------------------------

SQL = """
root ::= query

query ::= "SELECT " field " from " source " where " filter

field ::= "col_1 " | "col_2 "

source ::= "table_1 " | "table_2 "

filter ::= field "= " value

value ::= "1 " | "2 "
"""
IS_SQL = matches(r"SELECT col_[12]  from table_[12]  where col_[12] = [12] ")
CITIES = """
root ::= place | sentence
place ::= "London" | "Paris" | "Berlin" | "Rome"
sentence ::= place " is " what
what ::= "the capital of " land
land ::= "England" | "France" | "Germany" | "Italy"
"""
IS_CITY = matches(r"(London|Paris|Berlin|Rome)"
                  r"( is the capital of (England|France|Germany|Italy))?")
GBNF = {
    "list": ('root ::= ("- " thing)+\nthing ::= [^\\n]+ "\\n"',
             lines(r"- [^\n]+"), {"\n": 6}),
    "list of one kind of line": (
        'root ::= item+\n\n# No kind of line break within an item\n'
        'item ::= "- " [^\\r\\n\\x0b\\x0c\\x85\\u2028\\u2029]+ "\\n"\n',
        lines(r"- [^\r\n\x0b\x0c\x85\u2028\u2029]+"), {"\n": 6}),
    "chess": (
        '# A game\nroot ::= (\n  # the first move\n'
        '  "1. " move " " move "\\n"\n\n  # and more\n'
        '  ([1-9] [0-9]? ". " move " " move "\\n")+\n)\n'
        'move ::= (pawn | piece | castle) [+#]?\n'
        'piece ::= [NBKQR] [a-h]? [1-8]? "x"? [a-h] [1-8]\n'
        'pawn ::= ([a-h] "x")? [a-h] [1-8] ("=" [NBKQR])?\n'
        'castle ::= "O-O" "-O"?\n',
        lines(r"[1-9][0-9]?\.( ([a-h]x)?[a-h][1-8](=[NBKQR])?[+#]?"
              r"| [NBKQR][a-h]?[1-8]?x?[a-h][1-8][+#]?| O-O(-O)?[+#]?){2}", 2),
        {"\n": 6}),
    "arithmetic": (
        'root  ::= (sum "=" ws term "\\n")+\nsum  ::= term ([-+*/] term)*\n'
        'term  ::= name | number | "(" ws sum ")" ws\n'
        'name ::= [a-z] [a-z0-9_]* ws\nnumber ::= [0-9]+ ws\n'
        'ws    ::= [ \\t\\n]*\n',
        matches(r"[-+*/()a-z0-9_ \t\n]+=[-+*/()a-z0-9_ \t\n=]+\n",
                r"[-+*/()a-z0-9_ \t\n=]*"), {"=": 6}),
    "json": (
        'root ::= object\n'
        'value ::= object | array | string | number | '
        '("true" | "false" | "null") ws\n\n'
        'object ::=\n  "{" ws (\n            string ":" ws value\n'
        '    ("," ws string ":" ws value)*\n  )? "}" ws\n\n'
        'array  ::=\n  "[" ws (\n            value\n    ("," ws value)*\n'
        '  )? "]" ws\n\n'
        'string ::=\n  "\\"" (\n    [^"\\\\\\x7F\\x00-\\x1F] |\n'
        '    "\\\\" (["\\\\bfnrt] | "u" [0-9a-fA-F]{4}) # escapes\n'
        '  )* "\\"" ws\n\n'
        'number ::= ("-"? ([0-9] | [1-9] [0-9]{0,15})) ("." [0-9]+)? '
        '([eE] [-+]? [0-9] [1-9]{0,15})? ws\n\n'
        '# Bounded, so that the model cannot go on with spaces\n'
        'ws ::= | " " | "\\n" [ \\t]{0,20}\n',
        holds(lambda value: isinstance(value, dict)), {}),
    "json of code points": (
        'root ::= object\nobject ::= "{" ws (text ":" ws value '
        '("," ws text ":" ws value)*)? "}"\n'
        'value ::= object | text | ("true" | "false") ws\n'
        'text ::= "\\"" ([\\x20\\x21\\x23-\\x5b\\x5d-\\U0010FFFF] | '
        '# all but \\x22 and \\x5c\n  "\\\\" (["\\\\/bfnrt] | "u" '
        '[0-9a-fA-F] [0-9a-fA-F] [0-9a-fA-F] [0-9a-fA-F]))* "\\""\n'
        'ws ::= ([ \\t\\n] ws)?\n',
        holds(lambda value: isinstance(value, dict)), {}),
    "json array": (
        'root ::= rows\nrows ::=\n  "[\\n" ws (\n    value\n'
        '    (",\\n" ws value)*\n  )? "]"\n'
        'value ::= text | number | ("true" | "false" | "null") ws\n'
        'text ::= "\\"" ([^"\\\\\\x7F\\x00-\\x1F])* "\\"" ws\n'
        'number ::= "-"? ([0-9] | [1-9] [0-9]*) ws\nws ::= ([ \\t\\n] ws)?\n',
        holds(lambda value: isinstance(value, list)), {"]": 6}),
    "c": (
        'root ::= (declaration)*\n\n'
        'declaration ::= type name "(" parameter? ")" "{" statement* "}"\n'
        'type ::= "int" ws | "float" ws | "char" ws\n'
        'name ::= [a-zA-Z_] [a-zA-Z_0-9]*\nparameter ::= type name\n'
        'statement ::=\n    ( type name ws "=" ws expression ";" ) |\n'
        '    ( name ws "(" arguments? ")" ";" ) |\n'
        '    ( "return" ws expression ";" ) |\n'
        '    ( "while" "(" test ")" "{" statement* "}" ) |\n'
        '    ( "if" "(" test ")" "{" statement* "}" '
        '("else" "{" statement* "}")? ) |\n'
        '    ( lineComment ) |\n    ( comment )\n'
        'test ::= expression ("<=" | "<" | "==" | "!=" | ">=" | ">") '
        'expression\n'
        'expression ::= term (("+" | "-") term)*\n'
        'term ::= factor(("*" | "/") factor)*\n'
        'factor ::= name | number | "-" factor | name "(" arguments? ")" | '
        '"(" ws expression ws ")"\n'
        'arguments ::= expression ("," ws expression)*\nnumber ::= [0-9]+\n'
        'lineComment ::= "//" [^\\n]* "\\n"\n'
        'comment ::= "/*" ( [^*] | ("*" [^/]) )* "*/"\n'
        'ws ::= ([ \\t\\n]+)\n', c_code,
        {END: 0, "(": 8, ")": 8, "{": 8, "}": 8}),
    "english": (
        'root ::= character+ ([ \\t\\n] character+)*\n'
        'character ::= letter | digit | mark\nletter ::= [a-zA-Z]\n'
        'digit ::= [0-9]\n'
        'mark ::= [!"#$%&\'()*+,-./:;<=>?@[\\\\\\]^_`{|}~]\n',
        matches(r"[!-~]+([ \t\n][!-~]+)*", r"([!-~]+[ \t\n]?)*"), {END: 9}),
    "japanese": (
        'root ::= character+ ([ \\t\\n] character+)*\n'
        'character ::= hiragana | katakana | mark | han\n'
        'hiragana ::= [ぁ-ゟ]\nkatakana ::= [ァ-ヿ]\nmark ::= [、-〾]\n'
        'han ::= [一-鿿]\n',
        # A cut within a character ends with U+FFFD.
        matches(r"[ぁ-ゟァ-ヿ、-〾一-鿿]+([ \t\n][ぁ-ゟァ-ヿ、-〾一-鿿]+)*",
                r"([ぁ-ゟァ-ヿ、-〾一-鿿]+[ \t\n]?)*�?"), {END: 9}),
}


# Structural tags --------------------------------------------------------------

WEATHER = an_object({"city": STRING, "state": STRING, "unit": {
    "type": "string", "enum": ["celsius", "fahrenheit"]}})
DATE = an_object({"timezone": STRING})
TAGS = {"<function=get_current_weather>": WEATHER,
        "<function=get_current_date>": DATE}


def tagged(text, ended):
    """Every trigger begins one of the two calls, with valid arguments."""
    free, *calls = text.split("<function=")
    for i, call in enumerate(calls):
        name, arguments, rest = re.fullmatch(
            r"(get_current_weather>|get_current_date>|[a-z_]*$)"
            r"(.*?)(</function>.*|$)", call, re.DOTALL).groups()
        schema = TAGS.get(f"<function={name}")
        if not rest:
            assert not ended and i == len(calls) - 1, text
            assert is_json_beginning(arguments), text
            continue
        valid(schema)(arguments, True)


def structural(**more):
    return {"type": "structural_tag", **more}


OLD_TAGS = structural(
    structures=[{"begin": begin, "schema": schema, "end": "</function>"}
                for begin, schema in TAGS.items()],
    triggers=["<function="])
NEW_TAGS = structural(format={
    "type": "triggered_tags", "triggers": ["<function="],
    "tags": [{"begin": begin, "end": "</function>", "content": {
        "type": "json_schema", "json_schema": schema}}
        for begin, schema in TAGS.items()],
    "at_least_one": False, "stop_after_first": False})
# A model that knows nothing writes a short trigger; a long one is luck.
SHORT_TRIGGER = {**OLD_TAGS, "triggers": ["<"]}
ONE_TAG = structural(format={**NEW_TAGS["format"], "at_least_one": True,
                             "stop_after_first": True})


def calls(text, ended):
    tagged(text, ended)
    free, call, _ = text.partition("<function=")
    assert call and "<" not in free, text


def one_call(text, ended):
    assert not ended or text.endswith("</function>"), text
    assert text.count("<function=") <= 1, text
    tagged(text, ended)
    assert any(begin.startswith(text[:len(begin)]) for begin in TAGS), text


# The examples -----------------------------------------------------------------

def schema_format(schema, **named):
    return {"response_format": {"type": "json_schema", "json_schema": {
        "name": "answer", **named, "schema": schema}}}


SENTIMENTS = ["positive", "negative"]
IS_SENTIMENT = one_of(*SENTIMENTS)
EMAIL = r"\w+@\w+\.com\n"
# Without the line feed at which the answer stops.
IS_EMAIL = matches(r"\w+@\w+\.com", r"\w*(@(\w+(\.(c(om?)?)?)?)?)?\n?")
SHORT_EMAIL = r"[a-z0-9.]{1,20}@\w{6,10}\.com\n"

VLLM = [
    ("choice", {"structured_outputs": {"choice": SENTIMENTS}}, IS_SENTIMENT),
    ("guided_choice", {"guided_choice": SENTIMENTS}, IS_SENTIMENT),
    ("regex and stop", {"structured_outputs": {"regex": EMAIL},
                        "stop": ["\n"]}, IS_EMAIL, {"@": 6, ".": 6}),
    ("guided_regex and stop", {"guided_regex": EMAIL, "stop": ["\n"]},
     IS_EMAIL, {"@": 6, ".": 6}),
    ("regex", {"structured_outputs": {"regex": SHORT_EMAIL}},
     matches(SHORT_EMAIL)),
    ("guided_regex", {"guided_regex": SHORT_EMAIL}, matches(SHORT_EMAIL)),
    ("json", {"structured_outputs": {"json": CAR}}, valid(CAR, *IS_CAR)),
    ("json as a string", {"structured_outputs": {"json": json.dumps(CAR)}},
     valid(CAR, *IS_CAR)),
    ("guided_json", {"guided_json": CAR}, valid(CAR, *IS_CAR)),
    ("response_format", schema_format(CAR), valid(CAR, *IS_CAR)),
    ("reasoning's response_format", schema_format(PEOPLE),
     valid(PEOPLE, *IS_PERSON)),
    ("json_object", {"structured_outputs": {"json_object": True}},
     holds(lambda value: isinstance(value, dict))),
    ("grammar", {"structured_outputs": {"grammar": SQL}}, IS_SQL),
    ("guided_grammar", {"guided_grammar": SQL}, IS_SQL),
    ("options", {"structured_outputs": {
        "json": CAR, "disable_any_whitespace": True,
        "disable_additional_properties": False}}, valid(CAR, *IS_CAR)),
    ("guided options", {"guided_json": CAR,
                        "guided_decoding_backend": "xgrammar"},
     valid(CAR, *IS_CAR)),
    ("structural_tag", {"response_format": structural(
        structures=[{"begin": "<function=get_current_date>", "schema": DATE,
                     "end": "</function>"}],
        triggers=["<function="])}, tagged),
    ("structural_tag as a string",
     {"structured_outputs": {"structural_tag": json.dumps(NEW_TAGS)}}, tagged),
]
SGLANG = [
    ("response_format", schema_format(CAPITAL), valid(CAPITAL, *IS_CAPITAL)),
    ("json_schema as a string", {"json_schema": json.dumps(CAPITAL)},
     valid(CAPITAL, *IS_CAPITAL)),
    ("ebnf", {"ebnf": CITIES}, IS_CITY),
    ("regex", {"regex": "(Paris|London)"}, one_of("Paris", "London")),
    ("structural_tag of structures", {"response_format": OLD_TAGS}, tagged),
    ("structural_tag with max_new_tokens",
     {"response_format": {**OLD_TAGS, "max_new_tokens": 2048}}, tagged),
    ("structural_tag of a format", {"response_format": NEW_TAGS}, tagged),
    ("structural_tag of one call", {"response_format": ONE_TAG}, one_call),
    ("structural_tag of a short trigger", {"response_format": SHORT_TRIGGER},
     calls, {"<": 12, END: 10, '"': 6}),
]
LLAMA = [
    ("json_object", {"response_format": {"type": "json_object"}},
     holds(lambda value: isinstance(value, dict))),
    ("json_object with a schema", {"response_format": {
        "type": "json_object",
        "schema": {"type": "string", "minLength": 10, "maxLength": 100}}},
     holds(lambda value: 10 <= len(value) <= 100)),
    ("json_schema with a schema", {"response_format": {
        "type": "json_schema", "schema": {"properties": {
            "name": {"title": "Name", **STRING},
            "date": {"title": "Date", **STRING},
            "participants": {"items": STRING, "title": "Participants",
                             "type": "string"}}}}}, valid({})),
    ("response_format", schema_format(CAR), valid(CAR, *IS_CAR)),
    ("json_schema", {"json_schema": ACTORS},
     valid(ACTORS, lambda actors: 10 <= len(actors) <= 100)),
    ("json_schema of pydantic", {"json_schema": SUMMARY}, valid(SUMMARY)),
    ("json_schema of zod", {"json_schema": CONTACT},
     valid(CONTACT, lambda contact: contact["age"] > 0)),
]
OPENAI = [
    ("events", EVENT), ("math", MATH), ("papers", PAPER), ("UI", UI),
    ("moderation", MODERATION), ("linked list", LINKED_LIST),
    ("anyOf", USER_OR_ADDRESS), ("limits", LIMITS)]

EXAMPLES = [
    *(Example("vllm", *each) for each in VLLM),
    Example("vllm", "choice of a completion", VLLM[0][1], IS_SENTIMENT,
            endpoint="completions"),
    Example("vllm", "choice of a response", VLLM[0][1], IS_SENTIMENT,
            endpoint="responses"),
    *(Example("sglang", *each) for each in SGLANG),
    *(Example("llama.cpp", *each) for each in LLAMA),
    *(Example("llama.cpp", f"grammar: {name}", {"grammar": grammar}, *rest)
      for name, (grammar, *rest) in GBNF.items()),
    *(Example("llama.cpp", f"completion's {name}", {"grammar": GBNF[name][0]},
              *GBNF[name][1:], endpoint="completions")
      for name in ("chess", "json")),
    *(Example("openai", f"{name} of a chat", schema_format(schema, strict=True),
              valid(schema), {"n": 6} if name == "linked list" else {})
      for name, schema in OPENAI),
    *(Example("openai", f"{name} of a response", {"text": {"format": {
        "type": "json_schema", "name": "answer", "strict": True,
        "schema": schema}}}, valid(schema), endpoint="responses")
      for name, schema in OPENAI),
    Example("openai", "JSON mode", {"response_format": {"type": "json_object"}},
            holds(lambda value: isinstance(value, dict))),
    Example("openai", "JSON mode of a response",
            {"text": {"format": {"type": "json_object"}}},
            holds(lambda value: isinstance(value, dict)), endpoint="responses"),
]

# OpenAI's examples of strict functions.
TOOLS = {
    "get_weather": strict({
        "location": {"type": "string", "description": "City and country"},
        "units": {"type": "string", "enum": ["celsius", "fahrenheit"]}}),
    "send_email": strict({"to": STRING, "subject": STRING, "body": STRING}),
    "search_knowledge_base": strict({"query": STRING, "options": strict({
        "num_results": {"type": "number"},
        "domain_filter": {"type": ["string", "null"]},
        "sort_by": {"type": ["string", "null"],
                    "enum": ["relevance", "date", "popularity", "alphabetical",
                             None]}})}),
    "query": strict({
        "table_name": {"type": "string", "enum": ["orders"]},
        "columns": {"type": "array", "items": {
            "type": "string", "enum": ["id", "status", "ordered_at"]}},
        "conditions": {"type": "array", "items": strict({
            "column": STRING,
            "operator": {"type": "string", "enum": ["=", ">", "<", "!="]},
            "value": {"anyOf": [STRING, {"type": "number"}, strict(
                {"column_name": STRING})]}})},
        "order_by": {"type": "string", "enum": ["asc", "desc"]}}),
}

# What is documented elsewhere and refused here, with the field that is named.
REFUSED = [
    ("llama.cpp: tokens in a grammar",
     {"grammar": "root ::= <think> thinking </think> .*\n"
                 "thinking ::= !</think>*"}, "grammar"),
    ("vllm: whitespace_pattern", {"structured_outputs": {
        "json": CAR, "whitespace_pattern": "[\n ]*"}},
     "structured_outputs.whitespace_pattern"),
    ("vllm: disable_additional_properties", {"structured_outputs": {
        "json": CAR, "disable_additional_properties": True}},
     "structured_outputs.disable_additional_properties"),
    ("vllm: a grammar in Lark's notation",
     {"guided_grammar": '?start: "SELECT " name\n?name: /[a-z]+/'},
     "guided_grammar"),
]
