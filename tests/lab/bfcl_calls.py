#!/usr/bin/env python3
"""Strict tools on cases of the Berkeley Function Calling Leaderboard.

  bfcl_calls.py URL BFCL_v4_multiple.json ... --cases 100 > summary.json

URL is a server's API (http://127.0.0.1:8080/v1). The files are those of the PyPI
package bfcl-eval (bfcl_eval/data), a case a line; the cases are spread evenly
over them. Each is sent as a chat with its functions as strict tools and
`tool_choice: required`, types mapped to JSON Schema's as the benchmark's own
handler for OpenAI does. What is checked is the form of the answer, not its sense:
every call of an answer that ended has the name of a tool and arguments that are
valid JSON under the schema of this tool (by the package jsonschema). Exit status 1
if one has not.

  cases      complete  the answer ended
             cut       it broke off at --max-tokens
             refused   the request is an error
  calls      of complete answers: valid, invalid
"""
import argparse
import collections
import concurrent.futures
import json
import pathlib
import sys
import time
import urllib.error
import urllib.request

import jsonschema

# The benchmark's names of types that JSON Schema calls otherwise. A type that
# neither knows is a string, as in the benchmark's handler.
TYPES = {
    "float": "number", "double": "number", "bool": "boolean", "list": "array",
    "dict": "object", "tuple": "array", "byte": "integer", "short": "integer",
    "long": "integer", "Bigint": "integer", "ArrayList": "array",
    "Array": "array", "Queue": "array", "Stack": "array", "HashMap": "object",
    "Hashtable": "object",
    **{name: name for name in ("integer", "number", "string", "boolean",
                               "array", "object")}}


def json_schema(described):
    """The schema of one value, from the benchmark's description."""
    schema = dict(described)
    schema["type"] = TYPES.get(schema.get("type"), "string")
    if "properties" in schema:
        schema["properties"] = {name: json_schema(value) for name, value
                                in schema["properties"].items()}
    if "items" in schema:
        schema["items"] = json_schema(schema["items"])
    if isinstance(schema.get("additionalProperties"), dict):
        schema["additionalProperties"] = json_schema(
            schema["additionalProperties"])
    return schema


def tool_of(function):
    return {"type": "function", "function": {
        # OpenAI's names have no points.
        "name": function["name"].replace(".", "_"),
        "description": function["description"],
        "parameters": {**json_schema(function["parameters"]), "type": "object"},
        "strict": True}}


def read_cases(files, wanted):
    cases = []
    each, more = divmod(wanted, len(files))
    for i, file in enumerate(files):
        with open(file, encoding="utf-8") as lines:
            read = [json.loads(line) for line in lines]
        count = min(each + (i < more), len(read))
        # Spread over the file: neighbours have similar functions.
        cases += [read[k * len(read) // count] for k in range(count)]
    return cases


def ask(url, body, key, timeout):
    """(status, answer) of a chat; of the last try where the server is busy."""
    for wait in (2, 5, 15, 30, None):
        request = urllib.request.Request(
            f"{url}/chat/completions", json.dumps(body).encode(),
            {"Content-Type": "application/json",
             **({"Authorization": f"Bearer {key}"} if key else {})})
        try:
            with urllib.request.urlopen(request, timeout=timeout) as answer:
                return answer.status, json.load(answer)
        except urllib.error.HTTPError as error:
            status, answer = error.code, error.read().decode(errors="replace")
            if status not in (429, 503) or wait is None:
                return status, answer
        time.sleep(wait)


def fault_of(call, schemas):
    """What is wrong with a call, or None."""
    name = call["function"]["name"]
    if name not in schemas:
        return f"no tool {name}"
    try:
        arguments = json.loads(call["function"]["arguments"])
        jsonschema.Draft202012Validator(schemas[name]).validate(arguments)
    except (ValueError, jsonschema.ValidationError) as error:
        return f"{name}: {str(error).splitlines()[0]}"
    return None


def run_case(case, options):
    tools = [tool_of(function) for function in case["function"]]
    schemas = {tool["function"]["name"]: tool["function"]["parameters"]
               for tool in tools}
    body = {"messages": case["question"][0], "tools": tools,
            "tool_choice": "required", "max_tokens": options.max_tokens,
            "temperature": options.temperature, "seed": 1}
    begun = time.monotonic()
    status, answer = ask(options.url, body, options.key, options.timeout)
    result = {"id": case["id"], "seconds": round(time.monotonic() - begun, 1)}
    if status != 200:
        return {**result, "outcome": "refused", "status": status,
                "reason": answer[:500]}
    choice = answer["choices"][0]
    calls = choice["message"].get("tool_calls") or []
    result |= {"calls": len(calls),
               "tokens": answer["usage"]["completion_tokens"]}
    if choice["finish_reason"] == "length":
        return {**result, "outcome": "cut"}
    faults = [fault for call in calls if (fault := fault_of(call, schemas))]
    if not calls:
        faults.append(f"no call: {choice['message'].get('content')!r}"[:300])
    return {**result, "outcome": "complete", "faults": faults}


def summary(results):
    outcomes = collections.Counter(result["outcome"] for result in results)
    complete = [r for r in results if r["outcome"] == "complete"]
    invalid = [{"id": r["id"], "fault": fault}
               for r in complete for fault in r["faults"]]
    calls = sum(result["calls"] for result in complete)
    return {
        "cases": {"sent": len(results),
                  **{name: outcomes[name]
                     for name in ("complete", "cut", "refused")}},
        "calls": {"complete": calls, "valid": calls - sum(
            not entry["fault"].startswith("no call") for entry in invalid)},
        "invalid": invalid,
        "refused": [{name: r[name] for name in ("id", "status", "reason")}
                    for r in results if r["outcome"] == "refused"],
        "cut": [r["id"] for r in results if r["outcome"] == "cut"]}


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("url")
    parser.add_argument("data", nargs="+", type=pathlib.Path)
    parser.add_argument("--cases", type=int, default=100)
    parser.add_argument("--max-tokens", type=int, default=200)
    parser.add_argument("--temperature", type=float, default=0)
    parser.add_argument("--at-once", type=int, default=4)
    parser.add_argument("--timeout", type=float, default=1800,
                        help="seconds for one answer")
    parser.add_argument("--key", default="")
    options = parser.parse_args()
    options.url = options.url.rstrip("/")

    cases = read_cases(options.data, options.cases)
    results = []
    with concurrent.futures.ThreadPoolExecutor(options.at_once) as pool:
        for result in pool.map(lambda case: run_case(case, options), cases):
            results.append(result)
            print(json.dumps(result), file=sys.stderr, flush=True)
    found = summary(results)
    print(json.dumps(found, indent=1))
    sys.exit(1 if found["invalid"] or not found["calls"]["complete"] else 0)


if __name__ == "__main__":
    main()
