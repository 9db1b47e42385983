"""Calls of OpenAI's SDK against a gateway; see sdk_checks.py."""

import asyncio
import json
import math

import openai

from sdk_checks import (KEY, MESSAGES, MODEL, TOOLS_MODEL, TOOLS_URL, URL,
                        WEATHER_TOOL, check, main, refused, run,
                        token_ids)

client = openai.OpenAI(base_url=URL, api_key=KEY, max_retries=0, timeout=60)
tools_client = openai.OpenAI(base_url=TOOLS_URL, api_key=KEY, max_retries=0)


def complete(**arguments):
    arguments = {"model": MODEL, "prompt": "Once upon a time",
                 "max_tokens": 12, "temperature": 0, **arguments}
    return client.completions.create(**arguments)


def chat(**arguments):
    arguments = {"model": MODEL, "messages": MESSAGES, "max_tokens": 12,
                 "temperature": 0, **arguments}
    return client.chat.completions.create(**arguments)


def chat_with_tools(messages, **arguments):
    return tools_client.chat.completions.create(
        model=TOOLS_MODEL, messages=messages, tools=[WEATHER_TOOL], **arguments)


# Models.

@check
def models_are_listed():
    model = client.models.list().data[0]
    assert model.object == "model" and model.owned_by == "foretoken"
    assert model.max_model_len > 0


@check
def a_model_is_found():
    assert client.models.retrieve(MODEL).id == MODEL


@check
def another_model_is_not():
    refused(lambda: client.models.retrieve("nothing"), openai.NotFoundError)


# Completions.

@check
def a_completion():
    answer = complete()
    assert answer.choices[0].text and answer.usage.completion_tokens == 12
    assert answer.choices[0].finish_reason == "length"


@check
def a_completion_streamed():
    whole = complete(seed=1, temperature=0.8).choices[0].text
    parts = [chunk.choices[0].text
             for chunk in complete(seed=1, temperature=0.8, stream=True)]
    assert "".join(parts) == whole and len(parts) > 2


@check
def a_completion_of_token_ids():
    assert complete(prompt=token_ids("Once upon a time")).choices[0].text == \
        complete().choices[0].text


@check
def several_prompts():
    answer = complete(prompt=["Once", "There was"], n=2)
    assert [choice.index for choice in answer.choices] == [0, 1, 2, 3]


@check
def an_echo():
    assert complete(echo=True).choices[0].text.startswith("Once upon a time")


@check
def completion_logprobs():
    logprobs = complete(logprobs=3).choices[0].logprobs
    assert len(logprobs.tokens) == len(logprobs.token_logprobs) == 12
    assert all(len(top) <= 4 for top in logprobs.top_logprobs)
    # Greedy: the token is the likeliest one.
    for logprob, top in zip(logprobs.token_logprobs, logprobs.top_logprobs):
        assert math.isclose(logprob, max(top.values()), abs_tol=1e-6)


@check
def a_stop_string():
    text = complete(max_tokens=40).choices[0].text
    stop = text.split()[3]
    answer = complete(max_tokens=40, stop=[stop])
    assert answer.choices[0].finish_reason == "stop"
    assert answer.choices[0].text == text[:text.index(stop)]


@check
def a_bias_forbids_a_token():
    first = complete(max_tokens=1, logprobs=1)
    token = token_ids("Once upon a time" + first.choices[0].text)[-1]
    other = complete(max_tokens=1, logit_bias={str(token): -100})
    assert other.choices[0].text != first.choices[0].text


@check
def seeds_repeat():
    one, two = (complete(seed=5, temperature=1).choices[0].text
                for _ in range(2))
    assert one == two != complete(seed=6, temperature=1).choices[0].text


@check
def penalties_hold_repetition_down():
    def words(**arguments):
        text = complete(max_tokens=100, **arguments).choices[0].text
        return len(set(text.split()))
    assert words(frequency_penalty=2, presence_penalty=2) > words()


@check
def best_of_is_refused():
    refused(lambda: complete(best_of=3), openai.BadRequestError, "best_of")


@check
def a_suffix_is_refused():
    refused(lambda: complete(suffix="x"), openai.BadRequestError, "suffix")


# Chat.

@check
def a_chat():
    answer = chat()
    message = answer.choices[0].message
    assert message.role == "assistant" and message.content
    assert answer.usage.total_tokens == (answer.usage.prompt_tokens +
                                         answer.usage.completion_tokens)
    assert answer.usage.prompt_tokens_details.cached_tokens >= 0


@check
def a_chat_streamed():
    whole = chat(seed=2, temperature=0.7).choices[0].message.content
    chunks = list(chat(seed=2, temperature=0.7, stream=True))
    assert chunks[0].choices[0].delta.role == "assistant"
    assert "".join(chunk.choices[0].delta.content or ""
                   for chunk in chunks) == whole
    assert chunks[-1].choices[0].finish_reason in ("stop", "length")


@check
def usage_of_a_stream():
    chunks = list(chat(stream=True, stream_options={"include_usage": True}))
    assert chunks[-1].choices == [] and chunks[-1].usage.completion_tokens == 12
    assert all(chunk.usage is None for chunk in chunks[:-1])


@check
def several_choices():
    answer = chat(n=3, temperature=1, seed=1)
    texts = {choice.message.content for choice in answer.choices}
    assert len(answer.choices) == 3 and len(texts) > 1


@check
def several_choices_streamed():
    whole = chat(n=2, temperature=1, seed=3)
    texts = ["", ""]
    for chunk in chat(n=2, temperature=1, seed=3, stream=True):
        for choice in chunk.choices:
            texts[choice.index] += choice.delta.content or ""
    assert texts == [choice.message.content for choice in whole.choices]


@check
def chat_logprobs():
    content = chat(logprobs=True, top_logprobs=2).choices[0].logprobs.content
    assert len(content) == 12
    for token in content:
        assert len(token.top_logprobs) == 2
        assert bytes(token.bytes).decode(errors="replace") == token.token


@check
def chat_logprobs_streamed():
    tokens = 0
    for chunk in chat(logprobs=True, stream=True):
        if chunk.choices[0].logprobs is not None:
            tokens += len(chunk.choices[0].logprobs.content)
    assert tokens == 12


@check
def the_newer_limit():
    answer = client.chat.completions.create(
        model=MODEL, messages=MESSAGES, max_completion_tokens=5, temperature=0)
    assert answer.usage.completion_tokens <= 5


@check
def content_in_parts():
    parts = [{"role": "user", "content": [
        {"type": "text", "text": "Tell me"},
        {"type": "text", "text": "a story."}]}]
    assert chat(messages=parts).choices[0].message.content


@check
def several_turns():
    turns = MESSAGES + [{"role": "assistant", "content": "A cat sat."},
                        {"role": "user", "content": "And then?"}]
    assert chat(messages=turns).choices[0].message.content


@check
def a_format_of_text():
    assert chat(response_format={"type": "text"}).choices


@check
def schemas_that_are_wrong_are_refused():
    named = {"name": "wrong", "schema": {"type": 3}}
    refused(lambda: chat(response_format={"type": "json_schema",
                                          "json_schema": named}),
            openai.BadRequestError, "response_format.json_schema.schema")


@check
def pictures_are_refused():
    picture = {"type": "image_url", "image_url": {"url": "data:x"}}
    refused(lambda: chat(messages=[{"role": "user", "content": [picture]}]),
            openai.BadRequestError)


@check
def unknown_fields_are_refused():
    refused(lambda: chat(extra_body={"no_such": 1}), openai.BadRequestError,
            "no_such")


@check
def values_out_of_range_are_refused():
    refused(lambda: chat(temperature=-1), openai.BadRequestError,
            "temperature")
    refused(lambda: chat(top_p=2), openai.BadRequestError, "top_p")


@check
def another_model_is_refused():
    refused(lambda: chat(model="gpt-4"), openai.NotFoundError)


@check
def too_long_a_chat_is_refused():
    error = refused(lambda: chat(max_tokens=10**6), openai.BadRequestError,
                    "max_tokens")
    assert error.code == "context_length_exceeded"


@check
def another_key_is_refused():
    stranger = client.with_options(api_key="a-key-of-nobody-0123")
    error = refused(stranger.models.list, openai.AuthenticationError)
    assert error.status_code == 401 and "0123" not in str(error)


# Tools.

@check
def a_tool_is_called():
    choice = chat_with_tools(
        [{"role": "user", "content": "The weather in Paris?"}]).choices[0]
    assert choice.finish_reason == "tool_calls" and not choice.message.content
    (call,) = choice.message.tool_calls
    assert call.type == "function" and call.function.name == "get_weather"
    assert json.loads(call.function.arguments) == {"city": "Paris"}


@check
def two_tools_are_called_in_a_stream():
    text, calls, ends = "", {}, []
    for chunk in chat_with_tools(
            [{"role": "user", "content": "The weather in both?"}], stream=True):
        text += chunk.choices[0].delta.content or ""
        ends.append(chunk.choices[0].finish_reason)
        for part in chunk.choices[0].delta.tool_calls or []:
            call = calls.setdefault(part.index, {"arguments": ""})
            if part.id:
                call |= {"id": part.id, "name": part.function.name}
            call["arguments"] += part.function.arguments or ""
    assert text == "I look at both." and ends[-1] == "tool_calls"
    assert [json.loads(calls[i]["arguments"]) for i in (0, 1)] == \
        [{"city": "Oslo"}, {"city": "Rome"}]
    assert {call["name"] for call in calls.values()} == {"get_weather"}
    assert calls[0]["id"] != calls[1]["id"]


@check
def the_result_of_a_tool_is_read():
    messages = [{"role": "user", "content": "The weather in Paris?"}]
    message = chat_with_tools(messages).choices[0].message
    messages += [message, {"role": "tool", "content": "18 C, dry",
                           "tool_call_id": message.tool_calls[0].id}]
    choice = chat_with_tools(messages).choices[0]
    assert choice.message.content == "It is 18 degrees in Paris."
    assert choice.finish_reason == "stop" and not choice.message.tool_calls


@check
def no_tool_is_called_against_the_choice():
    choice = chat_with_tools([{"role": "user", "content": "The weather?"}],
                             tool_choice="none").choices[0]
    assert choice.message.content == "I have no tools for that."


@check
def a_tool_is_called_as_the_choice_says():
    question = [{"role": "user", "content": "The weather in Paris?"}]
    named = {"type": "function", "function": {"name": "get_weather"}}
    for tool_choice in ("required", named):
        choice = chat_with_tools(question, tool_choice=tool_choice).choices[0]
        call, = choice.message.tool_calls
        assert call.function.name == "get_weather"
        assert json.loads(call.function.arguments) == {"city": "Paris"}
    other = {"type": "function", "function": {"name": "get_time"}}
    refused(lambda: chat_with_tools(question, tool_choice=other),
            openai.BadRequestError, "tool_choice.function.name")


# Extensions.

@check
def every_mode_writes_the_same():
    model = client.models.retrieve(MODEL)
    texts = {chat(temperature=0.8, seed=9,
                  extra_body={"speculation": mode}).choices[0].message.content
             for mode in model.foretoken["modes"]}
    assert len(texts) == 1, texts


@check
def statistics_and_tokens():
    answer = chat(extra_body={"foretoken": {"tokens": True}, "top_k": 20,
                              "min_p": 0.01, "repetition_penalty": 1.05,
                              "cache_scope": "here"})
    statistics = answer.foretoken
    assert statistics["accept_length"] >= 1 and statistics["rounds"] >= 1
    assert statistics["timings"]["total_ms"] > 0
    tokens = answer.choices[0].foretoken["tokens"]
    assert "".join(token["text"] for token in tokens) == \
        answer.choices[0].message.content


# Ends that are not the usual ones.

@check
def a_timeout_of_the_client():
    refused(lambda: client.with_options(timeout=0.001).completions.create(
        model=MODEL, prompt="a", max_tokens=50), openai.APITimeoutError)


@check
def a_stream_is_left():
    stream = chat(stream=True, max_tokens=200)
    next(stream)
    stream.close()
    assert chat().choices  # the server goes on


@check
def answers_are_named():
    answer = client.chat.completions.with_raw_response.create(
        model=MODEL, messages=MESSAGES, max_tokens=2,
        extra_headers={"X-Request-Id": "my-request"})
    assert answer.headers["x-request-id"] == "my-request"
    assert answer.parse().id.startswith("chatcmpl-")


# The asynchronous client.

@check
def many_at_once():
    async def talk():
        async with openai.AsyncOpenAI(base_url=URL, api_key=KEY,
                                      max_retries=0) as asynchronous:
            return await asyncio.gather(*(
                asynchronous.chat.completions.create(
                    model=MODEL, messages=MESSAGES, max_tokens=8, seed=i,
                    temperature=1) for i in range(16)))
    assert len(run(talk())) == 16


@check
def a_stream_of_the_asynchronous_client():
    async def talk():
        async with openai.AsyncOpenAI(base_url=URL, api_key=KEY,
                                      max_retries=0) as asynchronous:
            stream = await asynchronous.chat.completions.create(
                model=MODEL, messages=MESSAGES, max_tokens=8, stream=True)
            return [chunk async for chunk in stream]
    assert run(talk())[-1].choices[0].finish_reason


@check
def a_task_is_cancelled_in_mid_stream():
    async def talk():
        begun = asyncio.Event()

        async def read(asynchronous):
            async for _ in await asynchronous.completions.create(
                    model=MODEL, prompt="a", max_tokens=1500, stream=True,
                    extra_body={"ignore_eos": True}):
                begun.set()
                await asyncio.sleep(0)  # lets the other side go on
        async with openai.AsyncOpenAI(base_url=URL, api_key=KEY,
                                      max_retries=0) as asynchronous:
            task = asyncio.create_task(read(asynchronous))
            await begun.wait()
            task.cancel()
            try:
                await task
            except asyncio.CancelledError:
                return True
    assert run(talk())
    assert complete().choices


main("openai", openai.__version__)
