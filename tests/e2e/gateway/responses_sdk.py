"""Calls of OpenAI's Responses API by OpenAI's SDK; see sdk_checks.py."""

import json

import openai

from sdk_checks import (KEY, MODEL, TOOLS_MODEL, TOOLS_URL, URL, check, main,
                        refused, run)

INPUT = "Tell me a story about a cat."
client = openai.OpenAI(base_url=URL, api_key=KEY, max_retries=0, timeout=60)
tools_client = openai.OpenAI(base_url=TOOLS_URL, api_key=KEY, max_retries=0)
WEATHER_TOOL = {"type": "function", "name": "get_weather", "strict": False,
                "description": "The weather of a city.",
                "parameters": {"type": "object", "required": ["city"],
                               "properties": {"city": {"type": "string"}}}}


def respond(**arguments):
    return client.responses.create(**{
        "model": MODEL, "input": INPUT, "max_output_tokens": 12,
        "temperature": 0, **arguments})


def respond_with_tools(**arguments):
    return tools_client.responses.create(**{
        "model": TOOLS_MODEL, "temperature": 0, "max_output_tokens": 200,
        "tools": [WEATHER_TOOL], **arguments})


@check
def an_answer():
    answer = respond()
    assert answer.object == "response" and answer.id.startswith("resp_")
    assert answer.output_text and answer.output[0].role == "assistant"
    assert answer.status == "incomplete"
    assert answer.incomplete_details.reason == "max_output_tokens"
    assert answer.usage.output_tokens == 12
    assert answer.usage.input_tokens_details.cached_tokens >= 0
    assert answer.usage.output_tokens_details.reasoning_tokens == 0
    assert answer.usage.total_tokens == answer.usage.input_tokens + 12
    assert answer.tools == [] and answer.parallel_tool_calls
    assert answer.foretoken["accept_length"] >= 1


@check
def it_is_what_a_chat_answers():
    chat = client.chat.completions.create(
        model=MODEL, max_tokens=12, temperature=0.8, seed=7,
        messages=[{"role": "system", "content": "You answer briefly."},
                  {"role": "user", "content": INPUT}])
    answer = respond(temperature=0.8, instructions="You answer briefly.",
                     extra_body={"seed": 7})
    assert answer.output_text == chat.choices[0].message.content
    assert answer.usage.input_tokens == chat.usage.prompt_tokens


@check
def a_stream():
    whole = respond(extra_body={"seed": 1}, temperature=0.8)
    events = list(respond(extra_body={"seed": 1}, temperature=0.8,
                          stream=True))
    assert [event.sequence_number for event in events] == \
        list(range(len(events)))
    assert events[0].type == "response.created"
    assert events[1].type == "response.in_progress"
    assert events[-1].type == "response.incomplete"
    deltas = [event.delta for event in events
              if event.type == "response.output_text.delta"]
    assert len(deltas) > 2 and "".join(deltas) == whole.output_text
    assert events[-1].response.output_text == whole.output_text
    assert events[-1].response.usage.total_tokens == whole.usage.total_tokens


@check
def the_streaming_helper():
    with client.responses.stream(model=MODEL, input=INPUT, temperature=0,
                                 max_output_tokens=12,
                                 extra_body={"foretoken": {"tokens": True}}
                                 ) as stream:
        snapshot, pieces = "", ""
        for event in stream:
            if event.type == "response.output_text.delta":
                snapshot = event.snapshot
            if event.type == "response.foretoken.delta":
                pieces += "".join(token["text"]
                                  for token in event.foretoken["tokens"])
    assert snapshot == respond().output_text
    assert pieces.startswith(snapshot)


@check
def a_stop_string_completes_it():
    words = respond(max_output_tokens=40).output_text.split()
    extra = {"stop": [words[3]]}
    answer = respond(max_output_tokens=40, extra_body=extra)
    assert answer.status == "completed" and answer.error is None
    with client.responses.stream(model=MODEL, input=INPUT, temperature=0,
                                 max_output_tokens=40,
                                 extra_body=extra) as stream:
        assert stream.get_final_response().output_text == answer.output_text


@check
def an_answer_is_sent_back():
    first = respond()
    answer = respond(input=[{"role": "user", "content": INPUT},
                            *first.output,
                            {"role": "user", "content": [
                                {"type": "input_text", "text": "And then?"}]}])
    assert answer.output_text
    assert answer.usage.input_tokens > first.usage.input_tokens + 12


@check
def results_of_calls_are_taken():
    answer = respond(input=[
        {"role": "user", "content": "How warm is it?"},
        {"type": "function_call", "call_id": "call_1", "name": "warmth",
         "arguments": "{}"},
        {"type": "function_call_output", "call_id": "call_1",
         "output": "20 degrees"}])
    assert answer.output_text


@check
def logprobs_of_the_text():
    answer = respond(include=["message.output_text.logprobs"], top_logprobs=2)
    logprobs = answer.output[0].content[0].logprobs
    assert len(logprobs) == 12
    assert all(len(token.top_logprobs) == 2 for token in logprobs)
    streamed = []
    for event in respond(include=["message.output_text.logprobs"],
                         top_logprobs=2, stream=True):
        if event.type == "response.output_text.done":
            streamed = event.logprobs
    assert [token.token for token in streamed] == \
        [token.token for token in logprobs]


@check
def what_was_asked_is_repeated():
    answer = respond(instructions="Be brief.", metadata={"a": "b"},
                     store=False, user="somebody", truncation="disabled",
                     text={"format": {"type": "text"}})
    assert answer.instructions == "Be brief." and answer.metadata == {"a": "b"}
    assert answer.max_output_tokens == 12 and answer.user == "somebody"
    assert answer.store is False and answer.previous_response_id is None
    assert respond().store is False


@check
def what_is_not_served_is_named():
    bad = openai.BadRequestError
    refused(lambda: respond(previous_response_id="resp_1"), bad,
            "previous_response_id")
    refused(lambda: respond(background=True), bad, "background")
    refused(lambda: respond(store=True), bad, "store")
    refused(lambda: respond(extra_body={"prompt_cache_retention": "24h"}), bad,
            "prompt_cache_retention")
    refused(lambda: respond(tools=[{"type": "web_search_preview"}]), bad,
            "tools[0].type")
    refused(lambda: respond(text={"format": {"type": "lark"}}), bad,
            "text.format.type")
    refused(lambda: respond(reasoning={"effort": "huge"}), bad,
            "reasoning.effort")
    refused(lambda: respond(input=[{"role": "user", "content": [
        {"type": "input_image", "image_url": "data:x"}]}]), bad,
        "input[0].content[0].type")
    refused(lambda: respond(model="gpt-4"), openai.NotFoundError)
    refused(lambda: respond(stream=True, max_output_tokens=10**6), bad,
            "max_output_tokens")
    refused(lambda: client.responses.retrieve("resp_1"), openai.NotFoundError)


@check
def a_tool_is_called_and_its_result_read():
    turns = [{"role": "user", "content": "The weather in Paris?"}]
    answer = respond_with_tools(input=turns)
    (call,) = answer.output
    assert call.type == "function_call" and call.name == "get_weather"
    assert json.loads(call.arguments) == {"city": "Paris"}
    assert answer.status == call.status == "completed"
    assert answer.tools[0].name == "get_weather"
    told = respond_with_tools(input=[*turns, call, {
        "type": "function_call_output", "call_id": call.call_id,
        "output": "18 C, dry"}])
    assert told.output_text == "It is 18 degrees in Paris."


@check
def calls_are_streamed():
    events = list(respond_with_tools(input="Look at both.", stream=True))
    text, arguments = "", {}
    for event in events:
        if event.type == "response.output_text.delta":
            text += event.delta
        if event.type == "response.function_call_arguments.delta":
            index = event.output_index
            arguments[index] = arguments.get(index, "") + event.delta
    assert text == "I look at both."
    assert [json.loads(each)["city"] for each in arguments.values()] == \
        ["Oslo", "Rome"]
    output = events[-1].response.output
    assert [item.type for item in output] == \
        ["message", "function_call", "function_call"]
    assert [item.arguments for item in output[1:]] == [*arguments.values()]


@check
def one_call_at_most():
    answer = respond_with_tools(input="Look at both.",
                                parallel_tool_calls=False)
    assert [item.type for item in answer.output] == ["message",
                                                     "function_call"]


@check
def no_tool_is_called_against_the_choice():
    answer = respond_with_tools(input="The weather?", tool_choice="none")
    assert answer.output_text == "I have no tools for that."


@check
def a_strict_tool_is_called_as_the_choice_says():
    strict = {**WEATHER_TOOL, "strict": True}
    named = {"type": "function", "name": "get_weather"}
    for tool_choice in ("auto", "required", named):
        answer = respond_with_tools(input="The weather in Paris?",
                                    tools=[strict], tool_choice=tool_choice)
        call, = answer.output
        assert json.loads(call.arguments) == {"city": "Paris"}


@check
def the_asynchronous_client():
    async def talk():
        async with openai.AsyncOpenAI(base_url=URL, api_key=KEY,
                                      max_retries=0) as asynchronous:
            stream = await asynchronous.responses.create(
                model=MODEL, input=INPUT, max_output_tokens=8, stream=True)
            return [event async for event in stream]
    assert run(talk())[-1].response.usage.output_tokens <= 8


@check
def a_stream_is_left():
    stream = respond(stream=True, max_output_tokens=200)
    next(iter(stream))
    stream.close()
    assert respond().output_text  # the server goes on


main("openai", openai.__version__)
