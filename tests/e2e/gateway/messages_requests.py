"""Documented requests of Anthropic's Messages API and llama.cpp's infill.

    messages_requests.py URL TOOLS_URL KEY [--only NAME]

URL and TOOLS_URL as in sdk_checks.py; needs no SDK. Each example is sent whole and
streamed, with the headers that Anthropic's documentation gives: what the events add
up to has to be the body. Exit status 1 and one line for each example that fails.
"""

import json
import sys
import traceback
import urllib.error
import urllib.request

URL, TOOLS_URL, KEY = sys.argv[1:4]
QUESTION = [{"role": "user", "content": "Tell me a story about a cat."}]
WEATHER = {"name": "get_weather", "description": "The weather of a city.",
           "input_schema": {"type": "object", "required": ["city"],
                            "properties": {"city": {"type": "string"}}}}
PARIS = [{"role": "user", "content": "The weather in Paris?"}]


def send(url, path, body, headers=None):
    """(status, headers, text) of an answer."""
    request = urllib.request.Request(
        url.removesuffix("/v1") + path, json.dumps(body).encode(), {
            "content-type": "application/json", "x-api-key": KEY,
            "anthropic-version": "2023-06-01", **(headers or {})})
    try:
        with urllib.request.urlopen(request, timeout=120) as answer:
            return answer.status, answer.headers, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.headers, error.read().decode()


def events(text):
    found = []
    for frame in text.strip().split("\n\n"):
        name, data = frame.split("\n")
        found.append(json.loads(data.removeprefix("data: ")))
        assert name == "event: " + found[-1]["type"], frame
    return found


def assembled(stream):
    """The message that a client puts together from the events."""
    message, pieces = None, []
    for event in stream:
        kind = event["type"]
        if kind == "message_start":
            message = event["message"]
        elif kind == "content_block_start":
            assert event["index"] == len(message["content"]), event
            message["content"].append(event["content_block"])
            pieces = []
        elif kind == "content_block_delta":
            block, delta = message["content"][event["index"]], event["delta"]
            if delta["type"] == "input_json_delta":
                pieces.append(delta["partial_json"])
            else:
                (member,) = set(delta) - {"type"}
                block[member] += delta[member]
        elif kind == "content_block_stop" and pieces:
            message["content"][event["index"]]["input"] = json.loads(
                "".join(pieces))
        elif kind == "message_delta":
            message |= event["delta"]
            message["usage"] |= event["usage"]
    return message


def shown(message):
    """The message without what two requests do not share."""
    content = [{key: value for key, value in block.items() if key != "id"}
               for block in message["content"]]
    usage = message["usage"]
    read = usage["input_tokens"] + usage["cache_read_input_tokens"]
    return {"content": content, "stop_reason": message["stop_reason"],
            "stop_sequence": message["stop_sequence"],
            "role": message["role"], "type": message["type"],
            "tokens": (read, usage["output_tokens"])}


def ask(url, messages, **fields):
    """The message, the same whole and streamed."""
    body = {"max_tokens": 12, "temperature": 0, "messages": messages, **fields}
    status, _, text = send(url, "/v1/messages", body)
    assert status == 200, text
    whole = json.loads(text)
    status, headers, text = send(url, "/v1/messages", {**body, "stream": True})
    assert status == 200 and "event-stream" in headers["content-type"], text
    stream = events(text)
    kinds = [event["type"] for event in stream]
    assert kinds[:2] == ["message_start", "ping"], kinds
    assert kinds[-2:] == ["message_delta", "message_stop"], kinds
    assert shown(assembled(stream)) == shown(whole), (stream, whole)
    return whole


def text_of(message):
    return "".join(block["text"] for block in message["content"]
                   if block["type"] == "text")


def refused(body, status, kind, words, url=URL, path="/v1/messages",
            headers=None):
    found = send(url, path, body, headers)
    error = json.loads(found[2])
    assert found[0] == status, found
    assert error["type"] == "error" and error["error"]["type"] == kind, error
    assert words in error["error"]["message"], error
    return error


# Text.

def a_message():
    message = ask(URL, QUESTION)
    assert text_of(message) and message["stop_reason"] == "max_tokens"
    assert message["id"].startswith("msg_")
    assert message["usage"]["output_tokens"] == 12


def a_system_prompt_as_text_and_in_blocks():
    one = ask(URL, QUESTION, system="You answer briefly.")
    two = ask(URL, QUESTION, system=[
        {"type": "text", "text": "You answer briefly.",
         "cache_control": {"type": "ephemeral"}}])
    assert text_of(one) == text_of(two)


def several_turns():
    ask(URL, [{"role": "user", "content": "Hello there."},
              {"role": "assistant", "content": "Hi, I am here."},
              {"role": "user", "content": [
                  {"type": "text", "text": "What is a cat?"}]}])


def turns_of_one_role_are_one():
    apart = ask(URL, [{"role": "user", "content": "Tell me"},
                      {"role": "user", "content": "a story."}])
    joined = ask(URL, [{"role": "user", "content": [
        {"type": "text", "text": "Tell me"},
        {"type": "text", "text": "a story."}]}])
    assert shown(apart) == shown(joined)


def a_stop_sequence():
    words = text_of(ask(URL, QUESTION, max_tokens=60)).split()
    message = ask(URL, QUESTION, max_tokens=60, stop_sequences=[words[3]])
    assert message["stop_reason"] == "stop_sequence", message
    assert message["stop_sequence"] == words[3]
    assert words[3] not in text_of(message)


def sampling_of_the_documentation():
    ask(URL, QUESTION, temperature=1.0, top_k=5, top_p=0.7, seed=3,
        metadata={"user_id": "13803d75"}, service_tier="auto")


def it_is_what_a_chat_answers():
    status, _, text = send(URL, "/v1/chat/completions", {
        "messages": QUESTION, "max_tokens": 24, "temperature": 0.8, "seed": 7})
    assert status == 200, text
    chat = json.loads(text)
    message = ask(URL, QUESTION, max_tokens=24, temperature=0.8, seed=7)
    assert text_of(message) == chat["choices"][0]["message"]["content"]


def a_format_of_json():
    schema = {"type": "object", "additionalProperties": False,
              "required": ["found"],
              "properties": {"found": {"type": "boolean"}}}
    message = ask(URL, QUESTION, max_tokens=200, output_config={
        "format": {"type": "json_schema", "schema": schema}})
    assert set(json.loads(text_of(message))) == {"found"}, message


def tokens_are_counted():
    body = {"messages": QUESTION, "system": "You answer briefly."}
    status, _, text = send(URL, "/v1/messages/count_tokens", body)
    assert status == 200, text
    usage = ask(URL, **body)["usage"]
    assert json.loads(text) == {"input_tokens": usage["input_tokens"] +
                                usage["cache_read_input_tokens"]}


# Tools.

def a_tool_is_called():
    message = ask(TOOLS_URL, PARIS, tools=[WEATHER], max_tokens=200)
    (block,) = message["content"]
    assert block["type"] == "tool_use" and block["name"] == "get_weather"
    assert block["input"] == {"city": "Paris"}
    assert message["stop_reason"] == "tool_use"


def two_tools_are_called_behind_a_text():
    message = ask(TOOLS_URL, [{"role": "user", "content": "In both?"}],
                  tools=[WEATHER], max_tokens=200)
    assert [block["type"] for block in message["content"]] == \
        ["text", "tool_use", "tool_use"], message
    assert [block["input"]["city"] for block in message["content"][1:]] == \
        ["Oslo", "Rome"]


def one_tool_without_parallel_use():
    message = ask(TOOLS_URL, [{"role": "user", "content": "In both?"}],
                  tools=[WEATHER], max_tokens=200, tool_choice={
                      "type": "auto", "disable_parallel_tool_use": True})
    assert [block["type"] for block in message["content"]] == \
        ["text", "tool_use"]


def the_result_of_a_tool_is_read():
    call = ask(TOOLS_URL, PARIS, tools=[WEATHER], max_tokens=200)
    message = ask(TOOLS_URL, PARIS + [
        {"role": "assistant", "content": call["content"]},
        {"role": "user", "content": [
            {"type": "tool_result", "content": "18 C, dry",
             "tool_use_id": call["content"][0]["id"]}]}],
        tools=[WEATHER], max_tokens=200)
    assert text_of(message) == "It is 18 degrees in Paris."
    assert message["stop_reason"] == "end_turn"


def choices_of_tools():
    for choice in ({"type": "any"}, {"type": "tool", "name": "get_weather"}):
        message = ask(TOOLS_URL, PARIS, tools=[WEATHER], max_tokens=200,
                      tool_choice={**choice, "disable_parallel_tool_use": True})
        (block,) = message["content"]
        assert block["input"] == {"city": "Paris"}, message
    message = ask(TOOLS_URL, PARIS, tools=[WEATHER], max_tokens=200,
                  tool_choice={"type": "none"})
    assert text_of(message) == "I have no tools for that."


# Errors.

def wrong_requests_are_refused():
    good = {"max_tokens": 4, "messages": QUESTION}
    picture = {"type": "image", "source": {"type": "url", "url": "x"}}
    for change, words in (
            ({"max_tokens": None}, "max_tokens: is required"),
            ({"max_tokens": 10**6}, "maximum context length"),
            ({"messages": []}, "messages: "),
            ({"messages": [{"role": "user", "content": [picture]}]},
             "messages[0].content[0].type: 'image' is not supported"),
            ({"messages": QUESTION + [
                {"role": "assistant", "content": "A cat"}]}, "prefill"),
            ({"tools": [{"type": "web_search_20250305",
                         "name": "web_search"}]}, "tools[0].type"),
            ({"tool_choice": {"type": "any"}}, "tool_choice: needs tools"),
            ({"output_config": {"effort": "most"}}, "output_config.effort: "),
            ({"container": "c"}, "container: "),
            ({"no_such": 1}, "no_such: "),
            ({"temperature": -1}, "temperature: ")):
        refused({**good, **change}, 400, "invalid_request_error", words)
    refused({**good, "model": "claude"}, 404, "not_found_error", "claude")
    refused(good, 404, "not_found_error", "no such path",
            path="/v1/messages/batches")


def keys_and_versions():
    good = {"max_tokens": 4, "messages": QUESTION}
    wrong = {"x-api-key": "a-key-of-nobody-0123"}
    error = refused(good, 401, "authentication_error", "x-api-key",
                    headers=wrong)
    assert "0123" not in json.dumps(error)
    bearer = {"x-api-key": KEY, "Authorization": "Bearer a-key-of-nobody"}
    refused(good, 401, "authentication_error", "", headers=bearer)
    refused(good, 400, "invalid_request_error", "2023-06-01",
            headers={"anthropic-version": "2022-01-01"})
    for version in ("2023-06-01", "2026-10-21"):
        status, _, text = send(URL, "/v1/messages", good,
                               {"anthropic-version": version})
        assert status == 200, text
    status, headers, _ = send(URL, "/v1/messages", good,
                              {"X-Request-Id": "my-request"})
    assert status == 200 and headers["request-id"] == "my-request"
    status, headers, _ = send(URL, "/v1/messages", good,
                              {"X-Request-Id": "my-request", **wrong})
    assert status == 401 and headers["request-id"] == "my-request"


def wishes_of_a_model_that_does_not_think_are_listed():
    wish = {"thinking": {"type": "enabled", "budget_tokens": 3},
            "output_config": {"effort": "low"}}
    status, headers, text = send(URL, "/v1/messages", {
        "max_tokens": 4, "messages": QUESTION, **wish})
    assert status == 200, text
    listed = headers["x-foretoken-ignored-fields"].split(", ")
    assert sorted(listed) == ["output_config.effort", "thinking",
                              "thinking.budget_tokens"], listed


# llama.cpp's infill.

def fill(**fields):
    body = {"input_prefix": "def add(a, b):\n", "input_suffix": "\n\nadd(1, 2)",
            "temperature": 0, **fields}
    status, _, text = send(TOOLS_URL, "/infill", body)
    assert status == 200, text
    whole = json.loads(text)
    status, _, text = send(TOOLS_URL, "/infill", {**body, "stream": True})
    assert status == 200, text
    frames = [json.loads(frame.removeprefix("data: "))
              for frame in text.strip().split("\n\n")]
    assert "".join(frame["content"] for frame in frames) == whole["content"]
    assert [frame["stop"] for frame in frames] == \
        [False] * (len(frames) - 1) + [True]
    for name in ("stop_type", "stopping_word", "tokens_predicted",
                 "tokens_evaluated"):
        assert frames[-1][name] == whole[name], (name, frames, whole)
    return whole


def the_middle_is_filled():
    answer = fill()
    assert answer["content"] == "    return a + b", answer
    assert answer["stop_type"] == "eos"
    assert fill(n_predict=1)["stop_type"] == "limit"
    stopped = fill(stop=[" a + b"])
    assert stopped["content"] == "    return", stopped
    assert stopped["stopping_word"] == " a + b"
    # As llama.vim sends it, and its warm-up.
    plugin = fill(n_predict=128, n_indent=4, t_max_prompt_ms=500,
                  t_max_predict_ms=1000, samplers=["top_k", "top_p", "infill"],
                  response_fields=["content", "timings/prompt_n"])
    assert plugin["content"] == answer["content"], plugin
    assert fill(n_predict=0, samplers=[])["content"] == ""
    more = fill(input_extra=[{"filename": "a.py", "text": "a = 1\n"}],
                prompt="    ", cache_prompt=True, id_slot=-1)
    assert more["tokens_evaluated"] > answer["tokens_evaluated"]


def infill_is_refused_where_it_cannot_be():
    body = {"input_prefix": "a", "input_suffix": "b"}
    status, _, text = send(URL, "/infill", body)
    assert status == 400 and "no fill-in-the-middle tokens" in text, text
    for change, param in (({"mirostat": 2}, "mirostat"),
                          ({"input_prefix": None}, "input_prefix")):
        status, _, text = send(TOOLS_URL, "/infill", {**body, **change})
        assert status == 400, text
        assert json.loads(text)["error"]["param"] == param, text


EXAMPLES = (
    a_message, a_system_prompt_as_text_and_in_blocks, several_turns,
    turns_of_one_role_are_one, a_stop_sequence, sampling_of_the_documentation,
    it_is_what_a_chat_answers, a_format_of_json, tokens_are_counted,
    a_tool_is_called, two_tools_are_called_behind_a_text,
    one_tool_without_parallel_use, the_result_of_a_tool_is_read,
    choices_of_tools, wrong_requests_are_refused, keys_and_versions,
    wishes_of_a_model_that_does_not_think_are_listed, the_middle_is_filled,
    infill_is_refused_where_it_cannot_be)


def main():
    only = sys.argv[5] if sys.argv[4:5] == ["--only"] else ""
    ran = failed = 0
    for example in EXAMPLES:
        if only not in example.__name__:
            continue
        ran += 1
        try:
            example()
        except Exception as error:  # each example stands for itself
            failed += 1
            line = traceback.extract_tb(error.__traceback__)[-1].lineno
            print(f"FAILED {example.__name__} ({line}): "
                  f"{type(error).__name__}: {error}"[:2000])
    print(f"{ran} examples, {failed} failed")
    sys.exit(1 if failed or not ran else 0)


main()
