"""Calls of langchain-openai against a gateway; see sdk_checks.py."""

import asyncio
import importlib.metadata
import math

import openai
from langchain_core.exceptions import ContextOverflowError
from langchain_core.messages import (AIMessage, HumanMessage, SystemMessage,
                                     ToolMessage)
from langchain_core.output_parsers import StrOutputParser
from langchain_core.prompts import ChatPromptTemplate
from langchain_openai import ChatOpenAI, OpenAI

from sdk_checks import (KEY, MESSAGES, MODEL, TOOLS_MODEL, TOOLS_URL, URL,
                        WEATHER_TOOL, check, main, refused, run,
                        token_ids)


def chat_model(**arguments):
    return ChatOpenAI(**{"base_url": URL, "api_key": KEY, "model": MODEL,
                         "max_tokens": 12, "temperature": 0, "max_retries": 0,
                         "timeout": 60, **arguments})


def text_model(**arguments):
    return OpenAI(**{"base_url": URL, "api_key": KEY, "model": MODEL,
                     "max_tokens": 12, "temperature": 0, "max_retries": 0,
                     "timeout": 60, **arguments})


def text_of_chat(**arguments):
    return chat_model(**arguments).invoke(MESSAGES).content


def text_of_stream(**arguments):
    return "".join(chunk.content
                   for chunk in chat_model(**arguments).stream(MESSAGES))


def model_without_tools(**arguments):
    return ChatOpenAI(base_url=TOOLS_URL, api_key=KEY, model=TOOLS_MODEL,
                      max_retries=0, **arguments)


def model_with_tools(**arguments):
    return model_without_tools().bind_tools([WEATHER_TOOL], **arguments)


# Chat.

@check
def a_chat():
    message = chat_model().invoke(MESSAGES)
    assert isinstance(message, AIMessage) and message.content
    assert message.response_metadata["finish_reason"] == "length"
    assert message.response_metadata["model_name"] == MODEL
    assert message.id or message.response_metadata["id"]


@check
def usage_of_a_chat():
    usage = chat_model().invoke(MESSAGES).usage_metadata
    assert usage["output_tokens"] == 12 and usage["input_tokens"] > 12
    assert usage["total_tokens"] == usage["input_tokens"] + 12
    assert usage["input_token_details"]["cache_read"] >= 0


@check
def a_chat_streamed():
    assert text_of_stream(seed=2, temperature=0.7) == \
        text_of_chat(seed=2, temperature=0.7)


@check
def chunks_add_up_to_a_message():
    chunks = list(chat_model(seed=3, temperature=0.7).stream(MESSAGES))
    total = chunks[0]
    for chunk in chunks[1:]:
        total = total + chunk
    assert len(chunks) > 3
    assert total.content == text_of_chat(seed=3, temperature=0.7)
    assert total.response_metadata["finish_reason"] == "length"


@check
def usage_of_a_stream():
    chunks = list(chat_model(stream_usage=True).stream(MESSAGES))
    counts = [chunk.usage_metadata for chunk in chunks if chunk.usage_metadata]
    assert len(counts) == 1 and counts[0]["output_tokens"] == 12
    assert counts[0]["input_tokens"] == chat_model().invoke(
        MESSAGES).usage_metadata["input_tokens"]


@check
def several_choices():
    result = chat_model(n=3, temperature=1, seed=1).generate(
        [[HumanMessage("Tell me a story.")]])
    texts = [choice.text for choice in result.generations[0]]
    assert len(texts) == len(set(texts)) == 3
    assert texts[0] == chat_model(temperature=1, seed=1).invoke(
        "Tell me a story.").content


@check
def stop_strings():
    text = text_of_chat(max_tokens=40)
    stop = text.split()[3]
    message = chat_model(max_tokens=40).invoke(MESSAGES, stop=[stop])
    assert message.content == text[:text.index(stop)]
    assert message.response_metadata["finish_reason"] == "stop"
    assert text_of_stream(max_tokens=40, stop=[stop]) == message.content


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
    message = chat_model(logprobs=True, top_logprobs=2).invoke(MESSAGES)
    content = message.response_metadata["logprobs"]["content"]
    assert len(content) == 12
    for token in content:
        # Greedy: the token is the likelier one of the two.
        assert len(token["top_logprobs"]) == 2
        assert token["top_logprobs"][0]["token"] == token["token"]
        assert math.isclose(token["logprob"],
                            token["top_logprobs"][0]["logprob"])
    assert "".join(token["token"] for token in content).strip() == \
        message.content.strip()


@check
def logprobs_streamed():
    tokens = []
    for chunk in chat_model(logprobs=True).stream(MESSAGES):
        content = (chunk.response_metadata.get("logprobs") or {}).get("content")
        tokens += [token["token"] for token in content or []]
    assert len(tokens) == 12
    assert "".join(tokens).strip() == text_of_chat().strip()


@check
def a_bias_forbids_a_token():
    text = text_of_chat(max_tokens=1)
    bias = {token: -100 for token in token_ids(text)}
    assert text_of_chat(max_tokens=1, logit_bias=bias) not in ("", text)


@check
def penalties_hold_repetition_down():
    def words(**arguments):
        return len(set(text_of_chat(max_tokens=100, **arguments).split()))
    plain = words()
    assert words(frequency_penalty=2, presence_penalty=2) > plain


@check
def several_turns():
    turns = [*MESSAGES, AIMessage("A cat sat."), HumanMessage("And then?")]
    message = chat_model().invoke(turns)
    assert message.content
    assert message.usage_metadata["input_tokens"] > \
        chat_model().invoke(MESSAGES).usage_metadata["input_tokens"]


@check
def content_in_parts():
    parts = [HumanMessage([{"type": "text", "text": "Tell me"},
                           {"type": "text", "text": "more."}])]
    assert chat_model().invoke(parts).content == \
        chat_model().invoke("Tell me\nmore.").content != ""


@check
def messages_of_the_system_and_of_the_developer():
    developer = SystemMessage("These are orders.", additional_kwargs={
        "__openai_role__": "developer"})
    for order in (SystemMessage("These are orders."), developer):
        message = model_without_tools().invoke([order, HumanMessage("Hello")])
        assert message.content == "As the system ordered."


@check
def a_chain():
    chain = (ChatPromptTemplate.from_messages([
        ("system", "You answer briefly."),
        ("user", "Tell me a story about a {animal}.")])
        | chat_model() | StrOutputParser())
    assert chain.invoke({"animal": "cat"}) == text_of_chat()
    assert "".join(chain.stream({"animal": "cat"})) == text_of_chat()


@check
def a_batch():
    questions = [f"Tell me a story about {n} cats." for n in range(6)]
    answers = chat_model().batch(questions)
    assert [answer.content for answer in answers] == \
        [chat_model().invoke(question).content for question in questions]


# Tools.

@check
def a_tool_is_called():
    message = model_with_tools().invoke("The weather in Paris?")
    (call,) = message.tool_calls
    assert not message.content and not message.invalid_tool_calls
    assert call["name"] == "get_weather" and call["args"] == {"city": "Paris"}
    assert message.response_metadata["finish_reason"] == "tool_calls"


@check
def two_tools_are_called():
    message = model_with_tools().invoke("The weather in both?")
    assert message.content == "I look at both."
    assert [call["args"]["city"] for call in message.tool_calls] == \
        ["Oslo", "Rome"]
    assert message.tool_calls[0]["id"] != message.tool_calls[1]["id"]


@check
def two_tools_are_called_in_a_stream():
    chunks = list(model_with_tools().stream("The weather in both?"))
    total = chunks[0]
    for chunk in chunks[1:]:
        total = total + chunk
    assert sum(len(chunk.tool_call_chunks) for chunk in chunks) >= 2
    assert total.content == "I look at both."
    assert [(call["name"], call["args"]["city"])
            for call in total.tool_calls] == \
        [("get_weather", "Oslo"), ("get_weather", "Rome")]


@check
def the_result_of_a_tool_is_read():
    question = HumanMessage("The weather in Paris?")
    called = model_with_tools().invoke([question])
    messages = [question, called, ToolMessage(
        "18 C, dry", tool_call_id=called.tool_calls[0]["id"])]
    message = model_with_tools().invoke(messages)
    assert message.content == "It is 18 degrees in Paris."
    assert not message.tool_calls
    assert "".join(chunk.content for chunk in model_with_tools().stream(
        messages)) == message.content


@check
def no_tool_is_called_against_the_choice():
    message = model_with_tools(tool_choice="none").invoke("The weather?")
    assert message.content == "I have no tools for that."
    message = model_with_tools(tool_choice="required").invoke(
        "The weather in Paris?")
    assert [call["args"] for call in message.tool_calls] == [{"city": "Paris"}]


@check
def an_asynchronous_call_of_a_tool():
    message = run(model_with_tools().ainvoke("The weather in Paris?"))
    assert [call["args"] for call in message.tool_calls] == [{"city": "Paris"}]


# Completions.

@check
def a_completion():
    result = text_model().generate(["Once upon a time"])
    assert result.generations[0][0].text
    assert result.generations[0][0].generation_info["finish_reason"] == "length"
    assert result.llm_output["token_usage"]["completion_tokens"] == 12


@check
def a_completion_streamed():
    parts = list(text_model(seed=1, temperature=0.8).stream("Once upon"))
    assert len(parts) > 2 and "".join(parts) == text_model(
        seed=1, temperature=0.8).invoke("Once upon")


@check
def several_prompts_and_completions():
    result = text_model(n=2, best_of=2, temperature=1, seed=8).generate(
        ["Once", "There was"])
    assert [len(choices) for choices in result.generations] == [2, 2]
    texts = {choice.text for choices in result.generations
             for choice in choices}
    assert len(texts) == 4


@check
def logprobs_of_a_completion():
    result = text_model(logprobs=3).generate(["Once upon a time"])
    logprobs = result.generations[0][0].generation_info["logprobs"]
    assert len(logprobs["tokens"]) == len(logprobs["token_logprobs"]) == 12
    assert "".join(logprobs["tokens"]) == result.generations[0][0].text


# Errors.

@check
def another_key_is_refused():
    error = refused(lambda: text_of_chat(api_key="a-key-of-nobody-0123"),
                    openai.AuthenticationError)
    assert error.status_code == 401 and "0123" not in str(error)


@check
def another_model_is_refused():
    error = refused(lambda: text_of_chat(model="gpt-nothing"),
                    openai.NotFoundError)
    assert error.status_code == 404


@check
def a_bad_field_is_refused():
    refused(lambda: text_of_chat(top_p=2), openai.BadRequestError, "top_p")
    refused(lambda: text_of_chat(extra_body={"no_such": 1}),
            openai.BadRequestError, "no_such")
    refused(lambda: text_of_stream(presence_penalty=3), openai.BadRequestError,
            "presence_penalty")


@check
def too_long_a_prompt_is_refused():
    refused(lambda: chat_model().invoke("many words " * 3000),
            ContextOverflowError)
    error = refused(lambda: text_model().invoke("many words " * 3000),
                    openai.BadRequestError)
    assert error.code == "context_length_exceeded"


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


@check
def headers_are_seen():
    message = chat_model(include_response_headers=True).invoke(MESSAGES)
    assert message.response_metadata["headers"]["x-request-id"]


# Ends that are not the usual ones.

@check
def a_timeout_of_the_client():
    refused(lambda: text_of_chat(timeout=0.001, max_tokens=500),
            openai.APITimeoutError)


@check
def a_stream_is_left():
    stream = chat_model(max_tokens=500).stream(MESSAGES)
    next(stream)
    stream.close()
    assert text_of_chat()  # the server goes on


# The asynchronous calls.

@check
def an_asynchronous_chat():
    message = run(chat_model().ainvoke(MESSAGES))
    assert message.content == text_of_chat()


@check
def an_asynchronous_stream():
    async def talk():
        return "".join([chunk.content
                        async for chunk in chat_model().astream(MESSAGES)])
    assert run(talk()) == text_of_chat()


@check
def many_at_once():
    questions = [f"Tell me a story about {n} cats." for n in range(16)]
    answers = run(chat_model().abatch(questions))
    assert answers[3].content == chat_model().invoke(questions[3]).content
    assert all(answer.content for answer in answers)


@check
def an_asynchronous_completion():
    assert run(text_model().ainvoke("Once upon a time")) == \
        text_model().invoke("Once upon a time") != ""


@check
def a_task_is_cancelled_in_mid_stream():
    async def talk():
        begun = asyncio.Event()

        async def read():
            model = chat_model(max_tokens=1500, extra_body={"ignore_eos": True})
            async for _ in model.astream(MESSAGES):
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


main("langchain-openai", importlib.metadata.version("langchain-openai"))
