"""What a well-behaved client sees while another sends hostile constraints.

    hostile_constraints.py BINARIES [--local] [--model PATH] [--threads N]
                           [--requests N] [--rounds N] [--at-once N]
                           [--kinds NAME,...] [--max-ratio X]
                           [--max-seconds S]

Starts a gateway, an orchestrator and a verifier (or foretoken-local) with keys of
two callers. For each kind of constraint: requests of the first caller, one after the other,
alone and then while the second one sends constraints of that kind, in turns.
Constraints that are accepted are work like any other, so where there are some
the first caller is also timed while the second one sends as many requests at
once without a constraint. The process that sends them runs at the lowest
priority: it stands for other machines.
Prints one JSON object a kind: the 95th percentile of the time to the first
token in each, what the hostile requests were answered, and how much the
servers grew. Exit status 1, with the reason on stderr: a hostile
request was answered by something else than 200, 400, 413, 429 or 503, a
hostile kind was never answered, the process that sends them died, the first
caller was refused, its 95th percentile is more than --max-ratio times what it
is alone and than what it is next to requests without a constraint, or a hostile
request took longer than --max-seconds (both only if they are given).
"""

import argparse
import collections
import concurrent.futures
import http.client
import itertools
import json
import math
import multiprocessing
import os
import pathlib
import queue
import random
import string
import sys
import threading
import time
import urllib.error
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/e2e/gateway"))
from fairness import KEYS, Servers  # noqa: E402

ALLOWED = {200, 400, 413, 429, 503}
ANSWER_TIME = 120
# Until the hostile bodies are made, and until the last of them are answered.
ATTACK_TIME = 2 * ANSWER_TIME
PAUSE = 0.05  # of an attacker between two requests
TURNS = 16  # of each kind, whose constraints mostly differ
KINDS = {}


def kind(function):
    KINDS[function.__name__] = function
    return function


def schema(value):
    return {"structured_outputs": {"json": value}}


def regex(pattern):
    return {"structured_outputs": {"regex": pattern}}


def ordinary(turn):
    """No constraint: what accepted ones are compared with."""
    yield {}


@kind
def exponential_regexes(turn):
    yield regex("(a|aa)*" * 200 + "b")
    yield regex("((a?){60}a{60}){60}")
    yield regex("(([a-z])+.)+[A-Z]([a-z])+" * 40)
    yield regex("(((a{1,100}){1,100}){1,100}){1,100}")
    yield regex("(.*a.{40}){2}" + "x" * (turn % 7))
    yield regex("(" + "|".join(f"{i:x}.*" for i in range(300)) + ")*!")


@kind
def exponential_schemas(turn):
    either = [{"properties": {f"a{i}": {"type": "string"}},
               "required": [f"a{i}"]} for i in range(2)]
    yield schema({"allOf": [{"anyOf": [
        {"properties": {f"a{i}_{j}": {"const": turn}}, "required": [f"a{i}_{j}"]}
        for j in range(3)]} for i in range(16)]})
    yield schema({"type": "object", "oneOf": [
        {"required": [f"p{i}", f"p{i + 1}"]} for i in range(20)]})
    doubled = {"d0": {"type": "integer"}}
    for i in range(1, 40):
        doubled[f"d{i}"] = {"type": "array", "prefixItems": [
            {"$ref": f"#/$defs/d{i - 1}"}] * 2, "minItems": 2}
    yield schema({"$defs": doubled, "$ref": "#/$defs/d39"})
    yield schema({"not": {"allOf": [{"anyOf": either} for _ in range(20)]}})
    yield schema({"type": "object", "additionalProperties": False,
                  "minProperties": 20,
                  "properties": {f"p{i}": {} for i in range(400)}})


@kind
def deep_recursion(turn):
    text = '{"items":' * 5_000 + "{}" + "}" * 5_000
    yield {"structured_outputs": {"json": text}}
    chain = {f"c{i}": {"$ref": f"#/$defs/c{i + 1}"} for i in range(5_000)}
    chain["c5000"] = {"type": "null"}
    yield schema({"$defs": chain, "$ref": "#/$defs/c0"})
    yield regex("(" * 20_000 + "a" + ")" * 20_000)
    yield {"structured_outputs": {"grammar":
                                  "root ::= " + "(" * 20_000 + '"a"'
                                  + ")" * 20_000}}


@kind
def huge_schemas(turn):
    yield schema({"enum": ["x" * 1000 + str(i) for i in range(10_000)]})
    yield schema({"properties": {f"property number {i}": {"type": "string"}
                                 for i in range(200_000)}})


@kind
def many_alternatives(turn):
    words = [f"{turn} word {i} {i * 7919 % 10_007}" for i in range(10_000)]
    yield {"structured_outputs": {"choice": words}}
    yield schema({"enum": words})
    yield schema({"anyOf": [{"properties": {word: {"const": word}},
                             "required": [word]} for word in words[:2_000]]})
    yield regex("|".join(words))


@kind
def cyclic_references(turn):
    yield schema({"$ref": "#"})
    yield schema({"$defs": {"a": {"$ref": "#/$defs/b"},
                            "b": {"$ref": "#/$defs/a"}}, "$ref": "#/$defs/a"})
    yield schema({"$defs": {"a": {"allOf": [{"$ref": "#/$defs/a"},
                                            {"type": "object"}]}},
                  "$ref": "#/$defs/a"})
    yield schema({"type": "object", "properties": {"next": {"$ref": "#"}},
                  "required": ["next"]})


@kind
def long_patterns(turn):
    letters = "".join(random.Random(turn).choice("abcdefgh.?")
                      for _ in range(100_000)).replace("??", "?").lstrip("?")
    yield regex(letters.replace(".?", ".").replace("??", "?"))
    yield schema({"type": "string", "pattern": "[a-z]" * 20_000})
    yield schema({"type": "string", "pattern": "(ab?|c*)" * 12_500})


@kind
def many_schemas(turn):
    for i in range(16):
        number = turn * 16 + i
        yield schema({"type": "object", "properties": {
            f"{name} {number}": {"type": "string", "maxLength": 20 + number % 64}
            for name in "abcdefgh"}, "required": [f"a {number}"]})


@kind
def ambiguous_grammars(turn):
    yield {"structured_outputs": {"grammar":
                                  'root ::= e\ne ::= e e | "a" | "b" e | e "c"'}}
    yield {"structured_outputs": {"grammar":
                                  'root ::= [ab]* x\nx ::= [ab]* y\n'
                                  'y ::= [ab]* "!" | x x y'}}


@kind
def structural_tags(turn):
    letters = random.Random(turn)
    for length in (40, 400, 1_600):
        triggers = ["".join(letters.choices(string.ascii_lowercase, k=length))
                    for _ in range(256)]
        yield {"structured_outputs": {"structural_tag": json.dumps({
            "type": "structural_tag", "format": {
                "type": "triggered_tags", "triggers": triggers,
                "tags": [{"begin": trigger, "end": "!", "content": {
                    "type": "const_string", "value": "a"}}
                         for trigger in triggers]}})}}


def body_of(fields, stream):
    return json.dumps({"prompt": "Once upon a time", "temperature": 1, **fields,
                       "stream": stream}).encode()


def post(port, key, body):
    return urllib.request.urlopen(urllib.request.Request(
        f"http://127.0.0.1:{port}/v1/completions", body,
        {"Content-Type": "application/json",
         "Authorization": f"Bearer {key}"}), timeout=ANSWER_TIME)


def attack(port, at_once, make, going, results):
    """Sends constraints of one kind from threads until `going` is cleared.

    A process of its own, so that it does not share the interpreter's lock with
    the requests that are timed.
    """
    os.nice(19)
    bodies = [body_of({**fields, "max_tokens": 1}, False)
              for turn in range(TURNS) for fields in make(turn)]
    places = itertools.count()
    answers = collections.Counter()
    slowest = [0.0]
    lock = threading.Lock()

    def run():
        while going.is_set():
            body = bodies[next(places) % len(bodies)]
            begin = time.monotonic()
            answer = ask(port, body)
            with lock:
                answers[answer] += 1
                slowest[0] = max(slowest[0], time.monotonic() - begin)
            time.sleep(PAUSE)

    results.put(None)  # the bodies are made
    with concurrent.futures.ThreadPoolExecutor(at_once) as pool:
        threads = [pool.submit(run) for _ in range(at_once)]
    for thread in threads:
        thread.result()  # raises what ended it
    results.put((answers, slowest[0]))


def ask(port, body):
    """The status of the answer, or the error that came in its place."""
    try:
        try:
            with post(port, KEYS["crowd"], body) as answer:
                answer.read()
                return answer.status
        except urllib.error.HTTPError as error:
            error.read()
            return error.code
    except urllib.error.URLError as error:
        # A body over the limit ends the connection while it is sent.
        cut = isinstance(error.reason, (BrokenPipeError, ConnectionResetError))
        return 413 if cut else str(error)
    except (OSError, http.client.HTTPException) as error:
        return repr(error)


def receive(results, attackers):
    """What the attacking process puts; ends this one if it does not."""
    deadline = time.monotonic() + ATTACK_TIME
    while True:
        alive = attackers.is_alive()
        try:
            return results.get(timeout=1)
        except queue.Empty:
            if not alive:
                sys.exit(f"the attacking process died: {attackers.exitcode}")
            if time.monotonic() > deadline:
                sys.exit("the attacking process hangs")


def first_token_times(port, count):
    """Seconds to the first token of so many requests."""
    times = []
    for _ in range(count):
        begin = time.monotonic()
        with post(port, KEYS["single"],
                  body_of({"max_tokens": 4}, True)) as answer:
            for line in answer:
                if line.startswith(b"data: {"):
                    times.append(time.monotonic() - begin)
                    break
            answer.read()
    return times


def p95(times):
    return sorted(times)[int(0.95 * len(times))]


def resident(servers):
    """Bytes of all of them."""
    total = 0
    for process in servers.processes:
        status = pathlib.Path(f"/proc/{process.pid}/status").read_text()
        total += int(status.split("VmRSS:")[1].split()[0]) << 10
    return total


def under_attack(port, at_once, make, count):
    """The first caller's times beside an attack, and what that was answered."""
    going = multiprocessing.Event()
    going.set()
    results = multiprocessing.Queue()
    attackers = multiprocessing.Process(
        target=attack, args=(port, at_once, make, going, results), daemon=True)
    attackers.start()
    try:
        receive(results, attackers)
        time.sleep(1)  # until the first of them have arrived
        times = first_token_times(port, count)
    finally:
        going.clear()
    answers, slowest = receive(results, attackers)
    attackers.join()
    return times, answers, slowest


def measure(options, servers, name):
    alone, attacked, loaded = [], [], []
    before = resident(servers)
    answers = collections.Counter()
    slowest = 0.0
    share = max(1, options.requests // options.rounds)
    for _ in range(options.rounds):
        alone += first_token_times(servers.port, share)
        times, counted, seconds = under_attack(
            servers.port, options.at_once, KINDS[name], share)
        attacked += times
        answers += counted
        slowest = max(slowest, seconds)
        if 200 in answers:
            loaded += under_attack(
                servers.port, options.at_once, ordinary, share)[0]
    report = {"kind": name, "alone_p95_ms": 1e3 * p95(alone),
              "attacked_p95_ms": 1e3 * p95(attacked),
              "ratio": p95(attacked) / p95(alone),
              "hostile": {str(code): n for code, n in answers.items()},
              "slowest_hostile_s": slowest,
              "grown_mib": (resident(servers) - before) / 2**20}
    if loaded:
        report["ordinary_p95_ms"] = 1e3 * p95(loaded)
        report["ratio_to_ordinary"] = p95(attacked) / p95(loaded)
    return report


def faults_of(options, report):
    name = report["kind"]
    wrong = set(report["hostile"]) - {str(code) for code in ALLOWED}
    if wrong:
        yield f"{name}: answered {', '.join(sorted(wrong))}"
    if not report["hostile"]:
        yield f"{name}: never answered"
    ratio = min(report["ratio"], report.get("ratio_to_ordinary", math.inf))
    if options.max_ratio is not None and ratio > options.max_ratio:
        yield f"{name}: the other caller waits {ratio:.2f} times as long"
    slowest = report["slowest_hostile_s"]
    if options.max_seconds is not None and slowest > options.max_seconds:
        yield f"{name}: a hostile request took {slowest:.2f} s"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("binaries")
    parser.add_argument("--local", action="store_true")
    parser.add_argument("--model", default="tools/demo/target")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--requests", type=int, default=60)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--at-once", type=int, default=16)
    parser.add_argument("--kinds", default=",".join(KINDS))
    parser.add_argument("--max-ratio", type=float)
    parser.add_argument("--max-seconds", type=float)
    options = parser.parse_args()
    options.check = False
    names = options.kinds.split(",")
    for name in names:
        if name not in KINDS:
            sys.exit(f"--kinds: no kind {name}; want {', '.join(KINDS)}")
    faults = []
    with Servers(options) as servers:
        for name in names:
            report = measure(options, servers, name)
            print(json.dumps(report), flush=True)
            faults += faults_of(options, report)
    for fault in faults:
        print(fault, file=sys.stderr)
    sys.exit(1 if faults else 0)


if __name__ == "__main__":
    main()
