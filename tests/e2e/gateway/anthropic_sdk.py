"""Calls of Anthropic's SDK against a gateway; see sdk_checks.py."""

import asyncio
import json

import anthropic

from sdk_checks import (KEY, MODEL, TOOLS_MODEL, TOOLS_URL, URL, ask, check,
                        main, run)

QUESTION = [{"role": "user", "content": "Tell me a story about a cat."}]
PARIS = [{"role": "user", "content": "The weather in Paris?"}]
WEATHER = {"name": "get_weather", "description": "The weather of a city.",
           "input_schema": {"type": "object", "required": ["city"],
                            "properties": {"city": {"type": "string"}}}}


def base(url):
    """The SDK adds /v1 itself."""
    return url.removesuffix("/v1")


client = anthropic.Anthropic(base_url=base(URL), api_key=KEY, max_retries=0,
                             timeout=60)
tools_client = anthropic.Anthropic(base_url=base(TOOLS_URL), api_key=KEY,
                                   max_retries=0, timeout=60)


def arguments_of(arguments, extra):
    """Sampling goes into the extra body: newer SDKs have no arguments for it."""
    return {"max_tokens": 12, "messages": QUESTION, "model": MODEL,
            "extra_body": {"temperature": 0, **(extra or {})}, **arguments}


def create(extra=None, **arguments):
    return client.messages.create(**arguments_of(arguments, extra))


def stream(extra=None, **arguments):
    return client.messages.stream(**arguments_of(arguments, extra))


def with_tools(messages, **arguments):
    return tools_client.messages.create(
        model=TOOLS_MODEL, max_tokens=200, messages=messages, tools=[WEATHER],
        **arguments)


def text_of(message):
    return "".join(block.text for block in message.content
                   if block.type == "text")


def refused(call, kind, words):
    try:
        call()
    except kind as error:
        assert words in str(error), error
        return error
    raise AssertionError(f"not refused: {kind}")


# Text.

@check
def a_message():
    message = create()
    assert message.type == "message" and message.role == "assistant"
    assert message.id.startswith("msg_") and message.model == MODEL
    assert text_of(message) and message.stop_reason == "max_tokens"
    assert message.usage.output_tokens == 12
    assert message.foretoken["accept_length"] >= 1


@check
def it_is_what_a_chat_answers():
    chat = ask(URL, "/v1/chat/completions", {
        "messages": QUESTION, "max_tokens": 12, "temperature": 0.8, "seed": 7})
    message = create({"temperature": 0.8, "seed": 7})
    assert text_of(message) == chat["choices"][0]["message"]["content"]
    assert message.usage.input_tokens + message.usage.cache_read_input_tokens \
        == chat["usage"]["prompt_tokens"]


@check
def a_stream_of_events():
    whole = create({"temperature": 0.8, "seed": 1})
    text, kinds = "", []
    for event in create({"temperature": 0.8, "seed": 1}, stream=True):
        kinds.append(event.type)
        if event.type == "content_block_delta":
            text += event.delta.text
    assert text == text_of(whole)
    assert kinds[0] == "message_start" and kinds[-1] == "message_stop"
    assert kinds.count("content_block_delta") > 2


@check
def the_streaming_helper():
    with stream() as events:
        text = "".join(events.text_stream)
        message = events.get_final_message()
    whole = create()
    assert text == text_of(message) == text_of(whole)
    assert message.stop_reason == whole.stop_reason
    assert message.usage.output_tokens == whole.usage.output_tokens == 12


@check
def events_of_extensions_are_passed_on():
    with stream({"foretoken": {"tokens": True}}) as events:
        pieces = "".join(token["text"] for event in events
                         if event.type == "foretoken_delta"
                         for token in event.foretoken["tokens"])
        assert pieces.startswith(text_of(events.get_final_message()))


@check
def a_stop_sequence():
    words = text_of(create(max_tokens=40)).split()
    message = create(max_tokens=40, stop_sequences=[words[3]])
    assert message.stop_reason == "stop_sequence"
    assert message.stop_sequence == words[3]
    with stream(max_tokens=40, stop_sequences=[words[3]]) as events:
        final = events.get_final_message()
    assert final.stop_sequence == words[3]
    assert text_of(final) == text_of(message)


@check
def a_system_prompt():
    one = create(system="You answer briefly.")
    two = create(system=[{"type": "text", "text": "You answer briefly.",
                          "cache_control": {"type": "ephemeral"}}])
    assert text_of(one) == text_of(two)
    assert one.usage.input_tokens + one.usage.cache_read_input_tokens > \
        create().usage.input_tokens


@check
def content_in_blocks():
    blocks = [{"role": "user", "content": [
        {"type": "text", "text": QUESTION[0]["content"]}]}]
    assert text_of(create(messages=blocks)) == text_of(create())


@check
def an_answer_is_sent_back():
    first = create()
    second = create(messages=QUESTION + [
        {"role": "assistant", "content": first.content},
        {"role": "user", "content": "And then?"}])
    assert text_of(second)


@check
def tokens_are_counted():
    counted = client.messages.count_tokens(
        model=MODEL, messages=QUESTION, system="You answer briefly.")
    usage = create(system="You answer briefly.").usage
    assert counted.input_tokens == (usage.input_tokens +
                                    usage.cache_read_input_tokens)


@check
def a_format_of_json():
    schema = {"type": "object", "additionalProperties": False,
              "required": ["found"],
              "properties": {"found": {"type": "boolean"}}}
    message = create(max_tokens=200, output_config={
        "format": {"type": "json_schema", "schema": schema}})
    assert set(json.loads(text_of(message))) == {"found"}


@check
def thinking_is_as_the_model_has_it():
    for kind in ("adaptive", "disabled"):
        message = create(thinking={"type": kind})
        assert text_of(message) == text_of(create())


# Tools.

@check
def a_tool_is_called():
    message = with_tools(PARIS)
    (block,) = message.content
    assert block.type == "tool_use" and block.name == "get_weather"
    assert block.input == {"city": "Paris"}
    assert message.stop_reason == "tool_use"


@check
def two_tools_are_called_in_a_stream():
    with tools_client.messages.stream(
            model=TOOLS_MODEL, max_tokens=200, tools=[WEATHER], messages=[
                {"role": "user", "content": "The weather in both?"}]) as events:
        pieces = [event.partial_json for event in events
                  if event.type == "input_json"]
        message = events.get_final_message()
    assert text_of(message).strip() == "I look at both."
    calls = [block for block in message.content if block.type == "tool_use"]
    assert [call.input["city"] for call in calls] == ["Oslo", "Rome"]
    assert calls[0].id != calls[1].id and pieces
    assert message.stop_reason == "tool_use"


@check
def the_result_of_a_tool_is_read():
    message = with_tools(PARIS)
    answer = with_tools(PARIS + [
        {"role": "assistant", "content": message.content},
        {"role": "user", "content": [
            {"type": "tool_result", "tool_use_id": message.content[0].id,
             "content": [{"type": "text", "text": "18 C, dry"}]}]}])
    assert text_of(answer) == "It is 18 degrees in Paris."
    assert answer.stop_reason == "end_turn"


@check
def tools_are_called_as_the_choice_says():
    for choice in ({"type": "any"}, {"type": "tool", "name": "get_weather"}):
        message = with_tools(PARIS, tool_choice={
            **choice, "disable_parallel_tool_use": True})
        (block,) = message.content
        assert block.input == {"city": "Paris"}
    message = with_tools(PARIS, tool_choice={"type": "none"})
    assert text_of(message) == "I have no tools for that."
    refused(lambda: with_tools(PARIS, tool_choice={
        "type": "tool", "name": "get_time"}),
        anthropic.BadRequestError, "tool_choice.name")


@check
def only_one_tool_is_called_where_that_is_wanted():
    message = with_tools([{"role": "user", "content": "In both?"}],
                         tool_choice={"type": "auto",
                                      "disable_parallel_tool_use": True})
    assert [block.type for block in message.content].count("tool_use") == 1


# Refusals.

@check
def pictures_and_tools_of_the_server_are_refused():
    picture = {"type": "image", "source": {"type": "url", "url": "x"}}
    error = refused(
        lambda: create(messages=[{"role": "user", "content": [picture]}]),
        anthropic.BadRequestError, "'image' is not supported")
    assert error.type == "invalid_request_error" and error.request_id
    refused(lambda: create(tools=[{"type": "web_search_20250305",
                                   "name": "web_search"}]),
            anthropic.BadRequestError, "tools[0].type")


@check
def an_answer_that_has_begun_is_refused():
    refused(lambda: create(messages=QUESTION + [
        {"role": "assistant", "content": "A cat"}]),
        anthropic.BadRequestError, "prefill")


@check
def unknown_fields_are_refused():
    refused(lambda: create({"no_such": 1}), anthropic.BadRequestError,
            "no_such")
    refused(lambda: create({"top_p": 2}), anthropic.BadRequestError, "top_p")


@check
def too_long_an_answer_is_refused():
    refused(lambda: list(create(max_tokens=10**6, stream=True)),
            anthropic.BadRequestError, "maximum context length")


@check
def another_model_is_not_found():
    error = refused(lambda: create(model="claude-nothing"),
                    anthropic.NotFoundError, "claude-nothing")
    assert error.type == "not_found_error"


@check
def another_key_is_refused():
    stranger = client.with_options(api_key="a-key-of-nobody-0123")
    error = refused(
        lambda: stranger.messages.create(model=MODEL, max_tokens=1,
                                         messages=QUESTION),
        anthropic.AuthenticationError, "")
    assert error.type == "authentication_error" and "0123" not in str(error)


@check
def models_are_listed():
    assert client.models.list().data[0].id == MODEL


# Ends that are not the usual ones.

@check
def a_stream_is_left():
    with stream(max_tokens=200) as events:
        next(iter(events))
    assert text_of(create())  # the server goes on


@check
def answers_are_named():
    message = client.messages.create(
        model=MODEL, max_tokens=2, messages=QUESTION,
        extra_headers={"X-Request-Id": "my-request"})
    assert message._request_id == "my-request"


# The asynchronous client.

@check
def many_at_once():
    async def talk():
        async with anthropic.AsyncAnthropic(
                base_url=base(URL), api_key=KEY, max_retries=0) as asynchronous:
            return await asyncio.gather(*(
                asynchronous.messages.create(
                    model=MODEL, max_tokens=8, messages=QUESTION,
                    extra_body={"seed": i}) for i in range(16)))
    assert len(run(talk())) == 16


@check
def a_stream_of_the_asynchronous_client():
    async def talk():
        async with anthropic.AsyncAnthropic(
                base_url=base(URL), api_key=KEY, max_retries=0) as asynchronous:
            async with asynchronous.messages.stream(
                    model=MODEL, max_tokens=8, messages=QUESTION) as events:
                return await events.get_final_message()
    assert run(talk()).usage.output_tokens == 8


main("anthropic", anthropic.__version__)
