"""OpenAI's SDK parses answers into pydantic models; see sdk_checks.py.

Every model goes through `chat.completions.parse` and `responses.parse`. An answer
that ended has to come back as an instance: pydantic reads it by the model's own
rules.
"""

import datetime
import enum
import ipaddress
import uuid
from typing import Annotated, Literal, Optional, Union

import openai
import pydantic
from pydantic import BaseModel, Field

from sdk_checks import KEY, MODEL, TOOLS_MODEL, TOOLS_URL, URL, ask, check, main

client = openai.OpenAI(base_url=URL, api_key=KEY, max_retries=0, timeout=120)
tools_client = openai.OpenAI(base_url=TOOLS_URL, api_key=KEY, max_retries=0,
                             timeout=120)
MESSAGES = [{"role": "user", "content": "Fill in the form."}]
MAX_TOKENS = 400
# Seeds to try until an answer ends: the model knows nothing.
SEEDS = range(4)


class Plain(BaseModel):
    """Scalars."""
    name: str
    age: int
    height: float
    alive: bool


class Step(BaseModel):
    explanation: str
    output: str


class MathReasoning(BaseModel):
    """A list of other models."""
    steps: list[Step]
    final_answer: str


class Nested(BaseModel):
    """Models within models."""
    class Place(BaseModel):
        class Point(BaseModel):
            latitude: float
            longitude: float
        city: str
        point: Point
    home: Place
    work: Place


class MayBeAbsent(BaseModel):
    """Optional members, which strict schemas require as null."""
    nickname: Optional[str]
    age: int | None
    step: Optional[Step]


class Sentiment(BaseModel):
    label: Literal["positive", "negative", "neutral"]


class OneVersion(BaseModel):
    """A literal of one value, which is a `const`."""
    version: Literal[3]
    kind: Literal["report"]


class Colour(str, enum.Enum):
    RED = "red"
    GREEN = "green"
    BLUE = "blue"


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 10


class Painted(BaseModel):
    """Enumerations of texts and numbers."""
    colours: list[Colour]
    level: Level


class Cat(BaseModel):
    kind: Literal["cat"]
    lives: int


class Dog(BaseModel):
    kind: Literal["dog"]
    tricks: list[str]


class Owner(BaseModel):
    """A union of models."""
    pet: Union[Cat, Dog]


class Mixed(BaseModel):
    """Unions of scalars."""
    value: Union[int, str, None]
    values: list[Union[bool, float]]


class Bounded(BaseModel):
    """Lists with bounds."""
    three: Annotated[list[int], Field(min_length=3, max_length=3)]
    some: Annotated[list[Colour], Field(min_length=1, max_length=4)]


class Node(BaseModel):
    """A model that has itself as a member."""
    value: int
    next: Optional["Node"]


class Tree(BaseModel):
    """A model that is a list of itself."""
    name: Literal["leaf", "branch"]
    children: list["Tree"]


class Expression(BaseModel):
    """Two models that have each other."""
    class Sum(BaseModel):
        left: "Expression"
        right: "Expression"
    number: int
    sum: Optional[Sum]


class Dates(BaseModel):
    """Formats of dates and times."""
    day: datetime.date
    at: datetime.datetime
    clock: datetime.time


class Numbers(BaseModel):
    """Numbers with bounds."""
    percent: Annotated[int, Field(ge=0, le=100)]
    positive: Annotated[float, Field(gt=0, lt=10)]
    tens: Annotated[int, Field(multiple_of=10, ge=-50, le=50)]


class Texts(BaseModel):
    """Texts with a pattern, as it has to be for pydantic: whole."""
    code: Annotated[str, Field(pattern=r"^[A-Z]{3}-\d{4}$")]
    handle: Annotated[str, Field(pattern=r"^@[a-z0-9_]{1,15}$")]


class Lengths(BaseModel):
    """Texts with a length."""
    title: Annotated[str, Field(min_length=1, max_length=20)]
    initials: Annotated[str, Field(min_length=2, max_length=2)]


class Identified(BaseModel):
    """Formats that are no dates."""
    id: uuid.UUID
    address: ipaddress.IPv4Address


class Described(BaseModel):
    """Titles, descriptions, other names, and a text that JSON escapes."""
    model_config = pydantic.ConfigDict(populate_by_name=True)
    first: str = Field(description="The first \"name\"", title="First")
    other_name: Literal["a\nb", "c\"d", "\u00e9\u4e2d"] = Field(
        alias="otherName")


class Table(BaseModel):
    """Lists of lists."""
    header: Annotated[list[Literal["a", "b"]], Field(max_length=2)]
    rows: Annotated[list[Annotated[list[int], Field(max_length=3)]],
                    Field(min_length=1, max_length=3)]


class Form(BaseModel):
    """All of it together."""
    owner: Owner
    moods: Annotated[list[Sentiment], Field(max_length=2)]
    since: Optional[datetime.date]
    colour: Colour
    share: Annotated[int, Field(ge=1, le=99)]
    note: Optional[Annotated[str, Field(max_length=12)]]


MODELS = (Plain, MathReasoning, Nested, MayBeAbsent, Sentiment, OneVersion,
          Painted, Owner, Mixed, Bounded, Node, Tree, Expression, Dates,
          Numbers, Texts, Lengths, Identified, Described, Table, Form)


def biases(url, texts):
    """Makes texts of one token likelier, so that answers end."""
    found = {}
    for text, bias in texts.items():
        tokens = ask(url, "/tokenize", {"prompt": text,
                                        "add_special_tokens": False})["tokens"]
        if len(tokens) == 1:
            found[str(tokens[0])] = bias
    return found


ENDS = {'"': 3, "}": 3, "]": 3, "n": 3}


def parsed_chat(model, seed):
    """The instance, or None if the answer was cut off."""
    try:
        answer = client.chat.completions.parse(
            model=MODEL, messages=MESSAGES, response_format=model, seed=seed,
            max_tokens=MAX_TOKENS, temperature=1, logit_bias=biases(URL, ENDS))
    except openai.LengthFinishReasonError:
        return None
    choice = answer.choices[0]
    assert choice.finish_reason == "stop" and choice.message.refusal is None
    return choice.message.parsed


def parsed_response(model, seed):
    try:
        answer = client.responses.parse(
            model=MODEL, input=MESSAGES, text_format=model,
            max_output_tokens=MAX_TOKENS, temperature=1, top_p=0.9,
            extra_body={"seed": seed, "logit_bias": biases(URL, ENDS)})
    except pydantic.ValidationError:
        # The SDK parses an answer that was cut off as if it were whole.
        answer = client.responses.create(
            model=MODEL, input=MESSAGES, max_output_tokens=MAX_TOKENS,
            temperature=1, top_p=0.9, text={"format": format_of(model)},
            extra_body={"seed": seed, "logit_bias": biases(URL, ENDS)})
        assert answer.status == "incomplete", answer.output_text
        return None
    return answer.output_parsed


def format_of(model):
    schema = openai.lib._pydantic.to_strict_json_schema(model)
    return {"type": "json_schema", "name": model.__name__, "strict": True,
            "schema": schema}


def comes_back(parse, model):
    for seed in SEEDS:
        found = parse(model, seed)
        if found is None:
            continue
        assert isinstance(found, model), found
        # Its own JSON is valid as well.
        again = model.model_validate_json(found.model_dump_json(by_alias=True))
        assert again == found, (again, found)
        return
    raise AssertionError(f"no answer of {model.__name__} ended")


def register(parse, model):
    def call():
        comes_back(parse, model)
    call.__name__ = f"{parse.__name__}_{model.__name__}"
    check(call)


for each in MODELS:
    register(parsed_chat, each)
    register(parsed_response, each)


# Older documentation has the helper under `beta`, where it still is.
if hasattr(client.beta, "chat"):
    @check
    def the_helper_has_its_older_name():
        for seed in SEEDS:
            try:
                answer = client.beta.chat.completions.parse(
                    model=MODEL, messages=MESSAGES, seed=seed,
                    response_format=MathReasoning, max_tokens=MAX_TOKENS,
                    logit_bias=biases(URL, ENDS))
            except openai.LengthFinishReasonError:
                continue
            assert isinstance(answer.choices[0].message.parsed, MathReasoning)
            return
        raise AssertionError("no answer ended")


@check
def an_answer_that_is_cut_off_says_so():
    try:
        client.chat.completions.parse(
            model=MODEL, messages=MESSAGES, response_format=Plain, max_tokens=3)
    except openai.LengthFinishReasonError:
        return
    raise AssertionError("not cut off")


@check
def a_stream_is_parsed():
    for seed in SEEDS:
        with client.chat.completions.stream(
                model=MODEL, messages=MESSAGES, response_format=Form, seed=seed,
                max_tokens=MAX_TOKENS, logit_bias=biases(URL, ENDS)) as stream:
            try:
                final = stream.get_final_completion()
            except openai.LengthFinishReasonError:
                continue
        assert isinstance(final.choices[0].message.parsed, Form)
        return
    raise AssertionError("no answer ended")


@check
def a_function_of_a_model_is_parsed():
    for seed in SEEDS:
        answer = tools_client.chat.completions.create(
            model=TOOLS_MODEL, messages=MESSAGES, tool_choice="required",
            tools=[openai.pydantic_function_tool(Form)], seed=seed,
            max_tokens=MAX_TOKENS, temperature=1,
            logit_bias=biases(TOOLS_URL, ENDS))
        if answer.choices[0].finish_reason == "length":
            continue
        for call in answer.choices[0].message.tool_calls:
            assert isinstance(Form.model_validate_json(call.function.arguments),
                              Form)
        return
    raise AssertionError("no answer ended")


main("openai", f"{openai.__version__}, pydantic {pydantic.__version__}")
