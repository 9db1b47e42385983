"""Requests for structured output of other servers' clients, against a gateway.

    structured_output.py URL TOOLS_URL KEY [--only NAME]

URL and TOOLS_URL as in sdk_checks.py; needs no SDK. Every example of
structured_examples.py is sent whole and streamed. Its answer has to keep to its
format, or to begin as the format does where it is cut off; the model knows
nothing, so that some are. Exit status 1 and one line for each example that fails.
"""

import concurrent.futures
import functools
import json
import sys
import urllib.error
import urllib.request

from structured_checks import END, jsonschema, valid
from structured_examples import EXAMPLES, REFUSED, TOOLS

URL, TOOLS_URL, KEY = sys.argv[1:4]
MAX_TOKENS = 400
# Biases of tokens that end strings, objects and texts: the model goes on for a
# long time otherwise.
ENDS = {'"': 3, "}": 3, "]": 3, END: 12}
MIN_ENDED = 0.8
PATHS = {"chat": "/chat/completions", "completions": "/completions",
         "responses": "/responses"}


def post(url, body):
    request = urllib.request.Request(
        url, json.dumps(body).encode(),
        {"Content-Type": "application/json", "Authorization": f"Bearer {KEY}"})
    with urllib.request.urlopen(request, timeout=120) as answer:
        return answer.read().decode()


@functools.cache
def token_of(url, text):
    """Its id, or None if the text is several tokens."""
    tokens = json.loads(post(url.removesuffix("/v1") + "/tokenize", {
        "prompt": text, "add_special_tokens": False}))["tokens"]
    return str(tokens[0]) if len(tokens) == 1 else None


def biases(url, texts):
    return {token: bias for text, bias in texts.items()
            if (token := token_of(url, text)) is not None}


def body_of(example):
    body = {**example.fields, "temperature": 0.8, "seed": 7}
    body["logit_bias"] = biases(URL, {**ENDS, **example.favour})
    if example.endpoint == "chat":
        return {**body, "max_tokens": MAX_TOKENS,
                "messages": [{"role": "user", "content": example.prompt}]}
    if example.endpoint == "completions":
        return {**body, "max_tokens": MAX_TOKENS, "prompt": example.prompt}
    del body["logit_bias"]  # which responses do not have
    return {**body, "max_output_tokens": MAX_TOKENS, "input": example.prompt}


def whole(example, body):
    """(text, ended) of an answer."""
    answer = json.loads(post(URL + PATHS[example.endpoint], body))
    if example.endpoint == "responses":
        text = "".join(part["text"] for item in answer["output"]
                       for part in item["content"])
        return text, answer["status"] == "completed"
    choice = answer["choices"][0]
    text = choice["text"] if example.endpoint == "completions" else \
        choice["message"]["content"]
    return text, choice["finish_reason"] == "stop"


def streamed(example, body):
    text = ""
    stream = post(URL + PATHS[example.endpoint], {**body, "stream": True})
    for line in stream.splitlines():
        if not line.startswith("data: {"):
            continue
        event = json.loads(line.removeprefix("data: "))
        if example.endpoint == "responses":
            if event["type"] == "response.output_text.delta":
                text += event["delta"]
        elif example.endpoint == "completions":
            text += event["choices"][0]["text"]
        else:
            text += event["choices"][0]["delta"].get("content") or ""
    return text


def run_example(example):
    """Whether the answer ended."""
    body = body_of(example)
    text, ended = whole(example, body)
    example.check(text, ended)
    parts = streamed(example, body)
    assert parts == text, f"streamed {parts!r}, whole {text!r}"
    return ended


def run_tools(name):
    """A strict function, called because it has to be."""
    tools = [{"type": "function", "function": {
        "name": each, "strict": True, "parameters": schema}}
        for each, schema in TOOLS.items()]
    answer = json.loads(post(TOOLS_URL + "/chat/completions", {
        "messages": [{"role": "user", "content": "Call it."}], "tools": tools,
        "tool_choice": {"type": "function", "function": {"name": name}},
        "max_tokens": MAX_TOKENS, "temperature": 1, "seed": 3,
        "logit_bias": biases(TOOLS_URL, ENDS)}))
    choice = answer["choices"][0]
    if choice["finish_reason"] == "length":
        return False
    call, = choice["message"]["tool_calls"]
    assert call["function"]["name"] == name, call
    valid(TOOLS[name])(call["function"]["arguments"], True)
    return True


def run_refused(fields, param):
    try:
        post(URL + "/chat/completions", {**fields, "messages": [
            {"role": "user", "content": "x"}], "max_tokens": 1})
    except urllib.error.HTTPError as error:
        found = json.loads(error.read())["error"]
        assert error.code == 400 and found["param"] == param, found
        return True
    raise AssertionError("not refused")


def attempt(job):
    name, run, *arguments = job
    try:
        return name, run(*arguments), None
    except urllib.error.HTTPError as error:
        return name, False, f"{error.code}: {error.read().decode()}"
    except Exception as error:  # each example stands for itself
        return name, False, f"{type(error).__name__}: {error}"


def main():
    only = sys.argv[5] if sys.argv[4:5] == ["--only"] else ""
    jobs = [(f"{each.source}: {each.name}", run_example, each)
            for each in EXAMPLES]
    jobs += [(f"openai: strict {name}", run_tools, name) for name in TOOLS]
    jobs += [(name, run_refused, *rest) for name, *rest in REFUSED]
    jobs = [job for job in jobs if only in job[0]]
    ended = failed = 0
    with concurrent.futures.ThreadPoolExecutor(6) as pool:
        for name, done, error in pool.map(attempt, jobs):
            ended += done
            if error is not None:
                failed += 1
                print(f"FAILED {name}: {error}"[:2000])
            elif not done:
                print(f"cut {name}")
    validated = "" if jsonschema else ", without jsonschema"
    print(f"{len(jobs)} examples, {ended} ended, {failed} failed{validated}")
    sys.exit(1 if failed or ended < MIN_ENDED * len(jobs) else 0)


main()
