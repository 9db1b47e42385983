"""Calls of LiteLLM against a gateway; see sdk_checks.py."""

import asyncio
import importlib.metadata
import json
import math

import litellm

from sdk_checks import (KEY, MESSAGES, MODEL, TOOLS_MODEL, TOOLS_URL, URL,
                        WEATHER_TOOL, check, main, refused, run,
                        token_ids)

litellm.suppress_debug_info = True
CHAT = {"model": f"openai/{MODEL}", "api_base": URL, "api_key": KEY,
        "messages": MESSAGES, "max_tokens": 12, "temperature": 0,
        "max_retries": 0, "timeout": 60}
COMPLETION = {"model": f"text-completion-openai/{MODEL}", "api_base": URL,
              "api_key": KEY, "prompt": "Once upon a time", "max_tokens": 12,
              "temperature": 0, "max_retries": 0, "timeout": 60}


def chat(**arguments):
    return litellm.completion(**{**CHAT, **arguments})


def text_of_chat(**arguments):
    return chat(**arguments).choices[0].message.content


def complete(**arguments):
    return litellm.text_completion(**{**COMPLETION, **arguments})


def chat_with_tools(content, **arguments):
    messages = content if isinstance(content, list) else [
        {"role": "user", "content": content}]
    return litellm.completion(
        model=f"openai/{TOOLS_MODEL}", api_base=TOOLS_URL, api_key=KEY,
        max_retries=0, **{"messages": messages, "tools": [WEATHER_TOOL],
                          **arguments})


def text_of_stream(stream):
    return "".join(chunk.choices[0].delta.content or ""
                   for chunk in stream if chunk.choices)


# Models.

@check
def models_are_listed():
    assert MODEL in litellm.get_valid_models(
        check_provider_endpoint=True, custom_llm_provider="openai",
        api_key=KEY, api_base=URL)


# Chat.

@check
def a_chat():
    answer = chat()
    choice = answer.choices[0]
    assert answer.model.endswith(MODEL) and answer.id.startswith("chatcmpl-")
    assert choice.message.role == "assistant" and choice.message.content
    assert choice.finish_reason == "length"
    assert answer.usage.completion_tokens == 12
    assert answer.usage.total_tokens == answer.usage.prompt_tokens + 12


@check
def a_chat_streamed():
    whole = text_of_chat(seed=2, temperature=0.7)
    chunks = list(chat(seed=2, temperature=0.7, stream=True))
    assert text_of_stream(chunks) == whole and len(chunks) > 3
    assert chunks[-1].choices[0].finish_reason == "length"


@check
def a_stream_is_put_together():
    chunks = list(chat(seed=3, temperature=0.7, stream=True))
    built = litellm.stream_chunk_builder(chunks, messages=MESSAGES)
    assert built.choices[0].message.content == \
        text_of_chat(seed=3, temperature=0.7)


@check
def usage_of_a_stream():
    *_, last = chat(stream=True, stream_options={"include_usage": True})
    whole = chat().usage
    assert (last.usage.prompt_tokens, last.usage.completion_tokens) == \
        (whole.prompt_tokens, whole.completion_tokens) and \
        whole.completion_tokens == 12


@check
def several_choices():
    answer = chat(n=3, temperature=1, seed=1)
    texts = [choice.message.content for choice in answer.choices]
    assert [choice.index for choice in answer.choices] == [0, 1, 2]
    assert texts[0] == text_of_chat(temperature=1, seed=1)
    assert len(set(texts)) == 3
    assert answer.usage.completion_tokens == 36


@check
def several_choices_streamed():
    texts = ["", ""]
    for chunk in chat(n=2, temperature=1, seed=3, stream=True):
        for choice in chunk.choices:
            texts[choice.index] += choice.delta.content or ""
    assert texts == [choice.message.content
                     for choice in chat(n=2, temperature=1, seed=3).choices]


@check
def stop_strings():
    text = text_of_chat(max_tokens=40)
    stop = text.split()[3]
    choice = chat(max_tokens=40, stop=[stop, "\0"]).choices[0]
    assert choice.finish_reason == "stop"
    assert choice.message.content == text[:text.index(stop)]
    assert text_of_stream(chat(max_tokens=40, stop=stop, stream=True)) == \
        text[:text.index(stop)]


@check
def seeds_repeat():
    one, two, other = (text_of_chat(seed=seed, temperature=1)
                       for seed in (5, 5, 6))
    assert one == two != other


@check
def top_p_leaves_the_likeliest():
    assert text_of_chat(temperature=1, top_p=1e-6, seed=4) == text_of_chat()


@check
def logprobs():
    content = chat(logprobs=True, top_logprobs=2).choices[0].logprobs.content
    assert len(content) == 12
    for token in content:
        # Greedy: the token is the likelier one of the two.
        assert len(token.top_logprobs) == 2
        assert token.top_logprobs[0].token == token.token
        assert math.isclose(token.logprob, token.top_logprobs[0].logprob)
        assert bytes(token.bytes).decode(errors="replace") == token.token


@check
def logprobs_streamed():
    tokens = []
    for chunk in chat(logprobs=True, top_logprobs=1, stream=True):
        if getattr(chunk.choices[0], "logprobs", None):
            tokens += [each.token
                       for each in chunk.choices[0].logprobs.content]
    assert len(tokens) == 12
    assert "".join(tokens).strip() == text_of_chat().strip()


@check
def a_bias_forbids_a_token():
    text = text_of_chat(max_tokens=1)
    bias = {str(token): -100 for token in token_ids(text)}
    assert text_of_chat(max_tokens=1, logit_bias=bias) not in ("", text)


@check
def penalties_hold_repetition_down():
    def words(**arguments):
        return len(set(text_of_chat(max_tokens=100, **arguments).split()))
    plain = words()
    assert words(frequency_penalty=2, presence_penalty=2) > plain


@check
def the_newer_limit():
    arguments = {**CHAT, "max_completion_tokens": 5}
    del arguments["max_tokens"]
    assert litellm.completion(**arguments).usage.completion_tokens == 5


@check
def several_turns():
    turns = MESSAGES + [{"role": "assistant", "content": "A cat sat."},
                        {"role": "user", "content": "And then?"}]
    answer = chat(messages=turns)
    assert answer.choices[0].message.content
    assert answer.usage.prompt_tokens > chat().usage.prompt_tokens


@check
def content_in_parts():
    parts = [{"role": "user", "content": [
        {"type": "text", "text": "Tell me"}, {"type": "text", "text": "more."}]}]
    joined = [{"role": "user", "content": "Tell me\nmore."}]
    assert text_of_chat(messages=parts) == text_of_chat(messages=joined) != ""


@check
def messages_of_the_system_and_of_the_developer():
    for role in ("system", "developer"):
        answer = chat_with_tools(
            [{"role": role, "content": "These are orders."},
             {"role": "user", "content": "Hello"}], tools=None)
        assert answer.choices[0].message.content == "As the system ordered."


# Tools.

@check
def a_tool_is_called():
    choice = chat_with_tools("The weather in Paris?").choices[0]
    (call,) = choice.message.tool_calls
    assert choice.finish_reason == "tool_calls" and not choice.message.content
    assert call.type == "function" and call.function.name == "get_weather"
    assert json.loads(call.function.arguments) == {"city": "Paris"}


@check
def two_tools_are_called():
    message = chat_with_tools("The weather in both?").choices[0].message
    assert message.content == "I look at both."
    assert [json.loads(call.function.arguments)["city"]
            for call in message.tool_calls] == ["Oslo", "Rome"]
    assert message.tool_calls[0].id != message.tool_calls[1].id


@check
def two_tools_are_called_in_a_stream():
    chunks = list(chat_with_tools("The weather in both?", stream=True))
    assert sum(len(chunk.choices[0].delta.tool_calls or [])
               for chunk in chunks) >= 2
    message = litellm.stream_chunk_builder(chunks).choices[0].message
    assert message.content == "I look at both."
    assert [(call.function.name, json.loads(call.function.arguments)["city"])
            for call in message.tool_calls] == \
        [("get_weather", "Oslo"), ("get_weather", "Rome")]
    assert chunks[-1].choices[0].finish_reason == "tool_calls"


@check
def the_result_of_a_tool_is_read():
    messages = [{"role": "user", "content": "The weather in Paris?"}]
    message = chat_with_tools(messages).choices[0].message
    messages += [message, {"role": "tool", "content": "18 C, dry",
                           "tool_call_id": message.tool_calls[0].id}]
    choice = chat_with_tools(messages).choices[0]
    assert choice.message.content == "It is 18 degrees in Paris."
    assert choice.finish_reason == "stop" and not choice.message.tool_calls
    assert text_of_stream(chat_with_tools(messages, stream=True)) == \
        choice.message.content


@check
def no_tool_is_called_against_the_choice():
    choice = chat_with_tools("The weather?", tool_choice="none").choices[0]
    assert choice.message.content == "I have no tools for that."


@check
def a_tool_is_called_where_calls_are_required():
    call, = chat_with_tools("The weather in Paris?", tool_choice="required"
                            ).choices[0].message.tool_calls
    assert json.loads(call.function.arguments) == {"city": "Paris"}
    other = {"type": "function", "function": {"name": "get_time"}}
    error = refused(lambda: chat_with_tools("a", tool_choice=other),
                    litellm.BadRequestError)
    assert "tool_choice" in str(error)


# Completions.

@check
def a_completion():
    answer = complete()
    assert answer.choices[0].text and answer.usage.completion_tokens == 12
    assert answer.choices[0].finish_reason == "length"


@check
def a_completion_streamed():
    whole = complete(seed=1, temperature=0.8).choices[0].text
    parts = [chunk.choices[0].text or "" for chunk in complete(
        seed=1, temperature=0.8, stream=True)]
    assert "".join(parts) == whole and len(parts) > 2


@check
def several_completions():
    answer = complete(n=2, temperature=1, seed=8)
    assert [choice.index for choice in answer.choices] == [0, 1]
    assert answer.choices[0].text != answer.choices[1].text


@check
def an_echo():
    assert complete(echo=True).choices[0].text == \
        "Once upon a time" + complete().choices[0].text


# Errors.

@check
def another_key_is_refused():
    error = refused(lambda: chat(api_key="a-key-of-nobody-0123"),
                    litellm.AuthenticationError)
    assert error.status_code == 401 and "0123" not in str(error)


@check
def another_model_is_refused():
    error = refused(lambda: chat(model="openai/gpt-nothing"),
                    litellm.NotFoundError)
    assert error.status_code == 404


@check
def a_bad_field_is_refused():
    error = refused(lambda: chat(temperature=-1), litellm.BadRequestError)
    assert error.status_code == 400 and "temperature" in str(error)
    error = refused(lambda: chat(extra_body={"no_such": 1}),
                    litellm.BadRequestError)
    assert "no_such" in str(error)


@check
def too_long_a_prompt_is_refused():
    long = [{"role": "user", "content": "many words " * 3000}]
    refused(lambda: chat(messages=long), litellm.ContextWindowExceededError)
    refused(lambda: complete(prompt="many words " * 3000),
            litellm.ContextWindowExceededError)


@check
def an_error_before_a_stream():
    refused(lambda: list(chat(stream=True, top_p=2)), litellm.BadRequestError)


# Extensions.

@check
def every_mode_writes_the_same():
    texts = {text_of_chat(temperature=0.8, seed=9, max_tokens=40,
                          extra_body={"speculation": mode})
             for mode in ("off", "prompt_lookup:max_n=3", "ngram_trie", "auto",
                          {"prompt_lookup": {"max_n": 2}})}
    assert len(texts) == 1 and "" not in texts, texts


@check
def other_samplers():
    assert text_of_chat(temperature=1, seed=1, extra_body={"top_k": 1}) == \
        text_of_chat()
    # Fields that LiteLLM does not know go through, too.
    assert text_of_chat(temperature=1, seed=2, top_k=1) == text_of_chat()


@check
def statistics_and_tokens():
    answer = chat(extra_body={"foretoken": {"tokens": True}})
    assert answer.foretoken["accept_length"] >= 1
    assert answer.foretoken["mode"] == "auto"


# Ends that are not the usual ones.

@check
def a_timeout_of_the_client():
    refused(lambda: chat(timeout=0.001, max_tokens=500), litellm.Timeout)


@check
def a_stream_is_left():
    stream = chat(stream=True, max_tokens=500)
    next(stream)
    stream.completion_stream.close()
    assert text_of_chat()  # the server goes on


# The asynchronous calls.

@check
def an_asynchronous_chat():
    answer = run(litellm.acompletion(**CHAT))
    assert answer.choices[0].message.content == text_of_chat()


@check
def many_at_once():
    async def talk():
        return await asyncio.gather(*(litellm.acompletion(
            **{**CHAT, "temperature": 1, "seed": i}) for i in range(16)))
    texts = [answer.choices[0].message.content for answer in run(talk())]
    assert texts[3] == text_of_chat(temperature=1, seed=3)
    assert len(set(texts)) > 8


@check
def an_asynchronous_stream():
    async def talk():
        stream = await litellm.acompletion(**CHAT, stream=True)
        return [chunk async for chunk in stream]
    assert text_of_stream(run(talk())) == text_of_chat()


@check
def an_asynchronous_completion():
    answer = run(litellm.atext_completion(**COMPLETION))
    assert answer.choices[0].text == complete().choices[0].text


@check
def a_task_is_cancelled_in_mid_stream():
    async def talk():
        begun = asyncio.Event()

        async def read():
            async for _ in await litellm.acompletion(
                    **{**CHAT, "max_tokens": 1500},
                    extra_body={"ignore_eos": True}, stream=True):
                begun.set()
                await asyncio.sleep(0)  # lets the other side go on
        task = asyncio.create_task(read())
        await begun.wait()
        task.cancel()
        try:
            await task
        except asyncio.CancelledError:
            return True
    assert run(talk())
    assert text_of_chat()


main("litellm", importlib.metadata.version("litellm"))
