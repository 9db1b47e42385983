"""What the scripts of the SDKs share.

    SCRIPT URL TOOLS_URL KEY [--only NAME]

URL is an API that wants KEY (http://127.0.0.1:8080/v1), over a model with a chat
template that goes on writing; TOOLS_URL one over scripted_model.py. Exit status 1
and one line for every call that fails.
"""

import asyncio
import json
import sys
import traceback
import urllib.request

URL, TOOLS_URL, KEY = sys.argv[1:4]
CHECKS = []
# One loop for all: the SDKs keep connections, which belong to a loop.
run = asyncio.Runner().run

MESSAGES = [{"role": "system", "content": "You answer briefly."},
            {"role": "user", "content": "Tell me a story about a cat."}]
WEATHER_TOOL = {"type": "function", "function": {
    "name": "get_weather", "description": "The weather of a city.",
    "parameters": {"type": "object", "required": ["city"],
                   "properties": {"city": {"type": "string"}}}}}


def check(function):
    CHECKS.append(function)
    return function


def refused(call, kind, field=None):
    """The error with which the call is refused, of that class and field."""
    try:
        call()
    except kind as error:
        if field is not None:
            assert error.param == field, (error.param, error)
        return error
    raise AssertionError(f"not refused: {kind}")


def ask(url, path, body=None):
    """An answer of the server to a request that no SDK knows."""
    request = urllib.request.Request(
        url.removesuffix("/v1") + path,
        None if body is None else json.dumps(body).encode(),
        {"Content-Type": "application/json", "Authorization": f"Bearer {KEY}"})
    with urllib.request.urlopen(request) as answer:
        return json.load(answer)


def token_ids(text):
    return ask(URL, "/tokenize", {"prompt": text})["tokens"]


MODEL = ask(URL, "/v1/models")["data"][0]["id"]
TOOLS_MODEL = ask(TOOLS_URL, "/v1/models")["data"][0]["id"]


def main(name, version):
    only = sys.argv[5] if sys.argv[4:5] == ["--only"] else ""
    failed, ran = 0, 0
    for function in CHECKS:
        if only not in function.__name__:
            continue
        ran += 1
        try:
            function()
        except Exception as error:  # each check stands for itself
            failed += 1
            line = traceback.extract_tb(error.__traceback__)[-1].lineno
            print(f"FAILED {function.__name__} ({line}): "
                  f"{type(error).__name__}: {error}"[:2000])
    print(f"{ran} calls, {failed} failed ({name} {version})")
    sys.exit(1 if failed or not ran else 0)
