#!/usr/bin/env python3
"""Text under JSON Schemas from a server, checked by the package jsonschema.

  schema_texts.py --url http://127.0.0.1:8080/v1 --schemas FILE --count 500 \\
      --seed 20 --at-once 8 --max-tokens 512 > summary.json

FILE has a schema a line, {"name": ..., "schema": ...}, as JSONL, by .xz or .gz in its
name compressed. Of --count of them, drawn with --seed, each becomes two chats, at
temperature 0 and at 1, that ask for a short example and have the schema as strict
response format. Every answer that ended must be JSON and valid for its schema,
formats included. Results go to stderr, a line each. Exit status 1 if an answer is
invalid, or if none ended.

  texts   complete  the answer ended
          cut       it broke off at --max-tokens
          refused   the request is an error; `refused` below has the reasons
  valid, invalid    of the complete ones
  unchecked         of the complete ones, those that jsonschema cannot check
"""
import argparse
import collections
import concurrent.futures
import gzip
import json
import lzma
import pathlib
import random
import sys
import urllib.error
import urllib.request

import jsonschema

TEMPERATURES = (0, 1)
# Characters of a schema in the prompt.
MAX_SHOWN = 1500


def read_schemas(path, count, seed):
    opening = {".xz": lzma.open, ".gz": gzip.open}.get(path.suffix, open)
    with opening(path, "rt", encoding="utf-8") as lines:
        rows = [json.loads(line) for line in lines]
    return random.Random(seed).sample(rows, count)


def ask(options, body):
    """(status, answer); the answer of an error is text."""
    request = urllib.request.Request(
        f"{options.url}/chat/completions", json.dumps(body).encode(),
        {"Content-Type": "application/json",
         **({"Authorization": f"Bearer {options.key}"} if options.key else {})})
    try:
        with urllib.request.urlopen(request, timeout=options.timeout) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode(errors="replace")
    except OSError as error:
        return None, str(error)


def check(text, schema):
    """(outcome, reason) of a complete answer."""
    try:
        value = json.loads(text)
    except ValueError as error:
        return "invalid", f"not JSON: {error}"
    kind = jsonschema.validators.validator_for(
        schema, default=jsonschema.Draft202012Validator)
    validator = kind(schema, format_checker=kind.FORMAT_CHECKER)
    try:
        error = next(validator.iter_errors(value), None)
    # Among others its own, those of `re` and of references that lead nowhere.
    except Exception as error:  # pylint: disable=broad-except
        return "unchecked", repr(error)[:300]
    return ("valid", None) if error is None else ("invalid", error.message[:300])


def run_text(number, row, temperature, options):
    schema = row["schema"]
    prompt = ("Write a short JSON example for this schema:\n" +
              json.dumps(schema)[:MAX_SHOWN])
    status, answer = ask(options, {
        "messages": [{"role": "user", "content": prompt}],
        "max_tokens": options.max_tokens, "temperature": temperature,
        "seed": number,
        "response_format": {"type": "json_schema", "json_schema": {
            "name": "x", "schema": schema, "strict": True}}})
    result = {"name": row["name"], "temperature": temperature}
    if status != 200:
        return {**result, "outcome": "refused", "status": status,
                "reason": answer[:500]}
    choice = answer["choices"][0]
    result["tokens"] = answer["usage"]["completion_tokens"]
    if choice["finish_reason"] != "stop":
        return {**result, "outcome": "cut"}
    text = choice["message"]["content"]
    outcome, reason = check(text, schema)
    if outcome == "valid":
        return {**result, "outcome": outcome}
    return {**result, "outcome": outcome, "reason": reason, "text": text[:500]}


def summary(results):
    outcomes = collections.Counter(result["outcome"] for result in results)
    complete = sum(outcomes[name] for name in ("valid", "invalid", "unchecked"))
    return {
        "texts": {"sent": len(results), "complete": complete,
                  "cut": outcomes["cut"], "refused": outcomes["refused"]},
        "tokens": sum(result.get("tokens", 0) for result in results),
        "valid": outcomes["valid"],
        **{name: [result for result in results if result["outcome"] == name]
           for name in ("invalid", "unchecked", "refused")}}


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--url", required=True)
    parser.add_argument("--schemas", required=True, type=pathlib.Path)
    parser.add_argument("--count", type=int, default=500)
    parser.add_argument("--seed", type=int, default=20)
    parser.add_argument("--at-once", type=int, default=8)
    parser.add_argument("--max-tokens", type=int, default=512)
    parser.add_argument("--timeout", type=float, default=600,
                        help="seconds for one answer")
    parser.add_argument("--key", default="")
    options = parser.parse_args()
    options.url = options.url.rstrip("/")

    rows = read_schemas(options.schemas, options.count, options.seed)
    jobs = [(number, row, temperature) for number, row in enumerate(rows)
            for temperature in TEMPERATURES]
    results = []
    with concurrent.futures.ThreadPoolExecutor(options.at_once) as pool:
        for result in pool.map(lambda job: run_text(*job, options), jobs):
            results.append(result)
            print(json.dumps(result), file=sys.stderr, flush=True)
    found = summary(results)
    print(json.dumps(found, indent=1))
    sys.exit(1 if found["invalid"] or not found["texts"]["complete"] else 0)


if __name__ == "__main__":
    main()
