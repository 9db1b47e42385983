"""Attacks the HTTP API of a gateway as hostile clients would.

    http_attack.py --port PORT --key-file FILE [--seconds N] [--scale N]
                   [--seed N] [--attacks NAME,...]

The attacks run at once, each in a thread, and up to 30 s longer until each has
tried something. Prints one JSON object: how often each attack tried, and what
it was answered. Exit status 1, with the reasons on stderr: an attack tried
nothing, or got an answer that it must not get, such as 500, 200 for a request
whose end or sender is doubtful, or two answers for one request. Only servers on
this machine are attacked.
"""

import argparse
import collections
import http.client
import json
import pathlib
import random
import re
import socket
import struct
import sys
import threading
import time

# Longer than any limit of the server's for an answer without a model.
ANSWER_TIME = 120
LAST_TRY = 30
# Between two steps: the server is to be loaded, not the whole machine.
PAUSE = 0.01
# What a server without a model, or without room, may say to any request.
BUSY = {429, 503}
CUT = "cut off"  # the connection ended before the answer did
FLOOD = 100
IDLE = 4  # idle connections for each of --scale
ATTACKS = {}


def attack(function):
    ATTACKS[function.__name__] = function
    return function


def hostile_bodies():
    """Paths, and bodies that are long, deep, wide or of many names."""
    message = [{"role": "user", "content": "Hello."}]
    names = {f"name{i}": i for i in range(40_000)}
    yield "completions", '{"prompt": [' + "{}," * 1_000_000 + "{}]}"
    yield "completions", '{"a":' + '{"b":' * 200_000 + "1" + "}" * 200_001
    yield "completions", json.dumps({"prompt": "a b " * 2_000_000})
    yield "completions", json.dumps({"prompt": "word " * 100_000,
                                     "max_tokens": 1})
    yield "chat/completions", json.dumps(
        {"messages": message, "chat_template_kwargs": names, "max_tokens": 1})
    yield "chat/completions", json.dumps(
        {"messages": [{"role": "user", "content": "x" * 2_000_000}],
         "max_tokens": 1})
    yield "chat/completions", json.dumps({"messages": message * 20_000,
                                          "max_tokens": 1})
    yield "tokenize", json.dumps({"prompt": "tokens " * 100_000})


def read_key(path):
    """The key in a file, or the end of the program."""
    try:
        return pathlib.Path(path).read_text().strip()
    except OSError as error:
        sys.exit(f"--key-file: {error}")


def post(port, key, path, body):
    """The status of an answer; None: no answer, or not in time."""
    path = path if path == "tokenize" else f"v1/{path}"
    try:
        connection = http.client.HTTPConnection("127.0.0.1", port,
                                                timeout=ANSWER_TIME)
        connection.request("POST", f"/{path}", body, {
            "Authorization": f"Bearer {key}",
            "Content-Type": "application/json"})
        answer = connection.getresponse()
        answer.read()
        return answer.status
    except (OSError, http.client.HTTPException):
        return None


class Target:
    """The server, and what becomes of one attack on it."""

    def __init__(self, arguments, name, stop):
        self.port, self.key = arguments.port, arguments.key
        self.scale, self.stop = arguments.scale, stop
        self.draw = random.Random(f"{arguments.seed} {name}")
        self.tried, self.answers = 0, collections.Counter()
        self.problems = []

    def going(self):
        """Whether to go on, after a pause."""
        return not self.stop.wait(PAUSE)

    def connect(self, buffer=None):
        """A connection; None: the server takes none now."""
        connection = socket.socket()
        connection.settimeout(ANSWER_TIME)
        if buffer:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer)
        try:
            connection.connect(("127.0.0.1", self.port))
            return connection
        except OSError:
            connection.close()
            self.answers["no connection"] += 1
            return None

    def head(self, method, path, *lines, key=None, host="Host: localhost"):
        sent = [f"{method} {path} HTTP/1.1", host,
                f"Authorization: Bearer {key or self.key}", *lines]
        return "".join(f"{line}\r\n" for line in sent if line)

    def request(self, path, body, *lines, key=None):
        payload = body if isinstance(body, str) else json.dumps(body)
        return self.head("POST", path, "Content-Type: application/json",
                         f"Content-Length: {len(payload)}", *lines,
                         key=key) + "\r\n" + payload

    def say(self, text):
        """What the server says until it closes; it must close."""
        self.tried += 1
        connection = self.connect()
        if connection is None:
            return None
        said = b""
        with connection:
            self.send(connection, text)  # in part, if it answers before the end
            try:
                while part := connection.recv(1 << 16):
                    said += part
            except TimeoutError:
                self.problems.append(
                    f"{text[:200]!r}: not closed after {ANSWER_TIME} s")
            except OSError:
                pass
        return said

    def expect(self, name, text, allowed, most=1):
        """One answer, with an allowed status; or none, where CUT is allowed."""
        said = self.say(text)
        if said is None:
            return
        statuses = statuses_of(said) or [CUT]
        # A server that is busy may refuse anything.
        self.judge(name, statuses, {*allowed, *BUSY})
        if len(statuses) > most:
            self.problems.append(f"{name}: {len(statuses)} answers, {statuses}")

    def send(self, connection, text):
        """Whether the server has taken it."""
        try:
            connection.sendall(text.encode("latin-1"))
            return True
        except OSError:
            self.answers[CUT] += 1
            return False

    def hear(self, name, connection, allowed):
        """Reads what is there now, with the status; None: nothing yet."""
        connection.settimeout(0)
        try:
            said = connection.recv(1 << 16)
        except BlockingIOError:
            return None
        except OSError:
            said = b""
        match = re.match(rb"HTTP/1\.1 (\d{3}) ", said)
        status = int(match[1]) if match else CUT
        self.judge(name, [status], {CUT, *BUSY, *allowed})
        return status

    def judge(self, name, statuses, allowed):
        self.answers.update(map(str, statuses))
        for status in statuses:
            if status not in allowed:
                self.problems.append(
                    f"{name}: {status}, want {sorted(map(str, allowed))}")


def statuses_of(said):
    """The statuses of the answers in what a server said, in their order."""
    statuses = []
    while said:
        head, _, said = said.partition(b"\r\n\r\n")
        match = re.match(rb"HTTP/1\.1 (\d{3}) ", head)
        if match is None:
            return [*statuses, f"not HTTP: {(head + said)[:200]}"]
        status = int(match[1])
        if status == 100:
            continue
        length = re.search(rb"(?im)^Content-Length: (\d+)\r?$", head)
        if length is not None:
            length = int(length[1])
            statuses.append(status if len(said) >= length else CUT)
            said = said[length:]
        else:  # chunked, the last one
            ended = said.endswith(b"0\r\n\r\n")
            return [*statuses, status if ended else CUT]
    return statuses


# --- Requests whose end is doubtful -------------------------------------------

BODY = '{"prompt": "a"}'


def doubtful_requests(target):
    """(name, what is sent, allowed statuses) of requests that servers read
    differently, with a second one inside."""
    inner = target.head("GET", "/v1/models") + "\r\n"

    def get(*lines, **more):
        return target.head("GET", "/v1/models", *lines, **more) + "\r\n"

    def tokenize(*lines, body=BODY, version="1.1"):
        head = target.head("POST", "/tokenize",
                           "Content-Type: application/json", *lines)
        return (head.replace("HTTP/1.1", f"HTTP/{version}", 1) + "\r\n" + body +
                inner)

    chunked = "Transfer-Encoding: chunked"
    for lines in ([chunked, "Content-Length: 5"],
                  ["Content-Length: 5", chunked],
                  ["Transfer-Encoding: gzip, chunked"],
                  ["Transfer-Encoding: chunked, identity"],
                  ["Transfer-Encoding: xchunked"], ["Transfer-Encoding: gzip"],
                  [chunked, "Transfer-Encoding: identity"],
                  ["Transfer-Encoding : chunked"],
                  ["Transfer-Encoding:\x0bchunked"]):
        yield " + ".join(lines), tokenize(*lines, body="0\r\n\r\n"), {400}
    yield "chunks in HTTP/1.0", tokenize(chunked, "Connection: keep-alive",
                                         body="0\r\n\r\n", version="1.0"), {400}
    for length in ("15, 16", "+15", "-15", "0xf", "15 16", "9" * 20, "", "15a"):
        yield f"length {length!r}", tokenize(f"Content-Length: {length}"), {400}
    yield "two lengths", tokenize("Content-Length: 15",
                                  "Content-Length: 16"), {400}
    for size in ("xyz", "-1", "F" * 17, "0xf", "+f", " f", "f ", 'f;x="\r\n"',
                 "e", "10"):  # the last two: a byte less and more than there is
        yield f"chunk size {size!r}", tokenize(
            chunked, body=f"{size}\r\n{BODY}\r\n0\r\n\r\n"), {400}
    yield "a chunk of a terabyte", tokenize(
        chunked, body=f"10000000000\r\n{BODY}\r\n0\r\n\r\n"), {413}
    yield "a long chunk extension", tokenize(
        chunked, body=f"f;x={'a' * 1_000_000}\r\n{BODY}\r\n0\r\n\r\n"), {431}
    for trailer in ("Host: b\r\nContent-Length: 5", "Host b"):
        yield f"trailer {trailer!r}", tokenize(
            chunked, body=f"f\r\n{BODY}\r\n0\r\n{trailer}\r\n\r\n"), {400}
    for coding in ("gzip", "br", "identity, gzip", "identity\r\n"
                   "content-encoding: br"):
        yield f"coding {coding!r}", tokenize(
            f"Content-Encoding: {coding}", "Content-Length: 15"), {415}
    for host in ("", "Host: a\r\nHost: a", "Host: a\r\nhost: b", "Host : a",
                 "Host: a b", "Host: a/b", "Host: b@a"):
        yield f"host {host!r}", get(host=host) + inner, {400}
    for line in ("X: 1\r\n 2", "X: 1\r\n\t2", "X : 1", "X\0: 1", ": 1", "X",
                 "X: a\0b", "X: a\rb", "X: a\nb"):
        yield f"line {line!r}", get(line) + inner, {400}
    for version in ("HTTP/2.0", "HTTP/1.2", "HTTP/0.9", "http/1.1",
                    "HTTP/1.1 x", ""):
        yield f"version {version!r}", get().replace("HTTP/1.1", version,
                                                    1) + inner, {400}
    yield "bare line feeds", get().replace("\r", "") + inner, {400}
    yield "tabs", get().replace(" ", "\t") + inner, {400}
    yield "TLS", "\x16\x03\x01\x02\0\x01\0\x01\xfc\x03\x03" + "\0" * 99 + (
        "\r\n\r\n"), {400}
    yield "HTTP/2", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", {400}
    yield "a long line", get("X: " + "a" * 40_000), {431}
    yield "many lines", get(*(f"X{i}: a" for i in range(10_000))), {431}
    yield "a long target", target.head("GET", "/" + "a" * 40_000) + inner, {431}
    yield "absolute form without key", (
        "GET http://localhost/v1/models HTTP/1.1\r\nHost: b\r\n"
        "Connection: close\r\n\r\n"), {401}
    yield "absolute form without path", (
        "POST http://localhost HTTP/1.1\r\nHost: b\r\nConnection: close\r\n"
        "Content-Length: 0\r\n\r\n"), {405}


@attack
def smuggled_requests(target):
    """Requests that end elsewhere for other servers, another one inside."""
    while True:
        cases = list(doubtful_requests(target))
        target.draw.shuffle(cases)
        for name, text, allowed in cases:
            target.expect(name, text, allowed)
            if not target.going():
                return


# --- Slow and silent clients --------------------------------------------------


def drip(target, texts):
    """Sends one of the texts on each of many connections, byte by byte."""
    connections = []
    try:
        while target.going():
            if len(connections) < target.scale:
                connection = target.connect()
                if connection is not None:
                    target.tried += 1
                    connections.append(
                        [connection, target.draw.choice(texts), 0])
                continue
            for each in connections[:]:
                connection, text, sent = each
                each[2] += 1
                connection.settimeout(ANSWER_TIME)
                taken = target.send(connection, text[sent:sent + 1])
                # 408, unless the server closes at once.
                if target.hear("slow", connection, {408}) or not taken:
                    connection.close()
                    connections.remove(each)
    finally:
        for connection, *_ in connections:
            connection.close()


@attack
def slow_heads(target):
    """Heads that arrive byte by byte and never end."""
    drip(target, [target.head("GET", "/v1/models") + "X: a\r\n" * 5000])


@attack
def slow_bodies(target):
    """Bodies that do."""
    drip(target, [
        target.request("/v1/completions", BODY + " " * 5000),
        target.head("POST", "/tokenize", "Transfer-Encoding: chunked",
                    "Content-Type: application/json") + "\r\n" +
        "1\r\n \r\n" * 5000])


@attack
def reads_nothing(target):
    """Opens streams of long answers and never reads them."""
    body = {"prompt": "def main():\n", "max_tokens": 400, "ignore_eos": True,
            "stream": True, "foretoken": {"tokens": True, "rounds": True}}
    connections = []
    while target.going():
        if len(connections) >= target.scale:
            with connections.pop(0) as oldest:
                target.hear("stream", oldest, {200})
        connection = target.connect(buffer=2048)
        if connection is None:
            continue
        connections.append(connection)
        target.tried += 1
        target.send(connection, target.request("/v1/completions", body))
        target.stop.wait(0.1)
    for connection in connections:
        connection.close()


@attack
def idle_connections(target):
    """Connections without a request, or without a second one."""
    connections = []
    while target.going():
        if len(connections) >= target.scale * IDLE:
            at = target.draw.randrange(len(connections))
            with connections.pop(at) as other:
                target.hear("health", other, {200})
        connection = target.connect()
        if connection is None:
            continue
        connections.append(connection)
        target.tried += 1
        if target.draw.random() < 0.5:
            target.send(connection,
                        "GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
    for connection in connections:
        connection.close()


# --- Clients that leave -------------------------------------------------------


def leave(target, text):
    """Sends a text and resets the connection."""
    connection = target.connect()
    if connection is None:
        return
    target.tried += 1
    with connection:
        target.send(connection, text)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER,
                              struct.pack("ii", 1, 0))


@attack
def aborted_uploads(target):
    """Large bodies that break off."""
    while target.going():
        text = target.request("/v1/completions",
                              {"prompt": "a" * (4 << 20), "max_tokens": 1})
        leave(target, text[:target.draw.randrange(len(text))])


@attack
def aborted_requests(target):
    """Clients that have gone before their answers begin."""
    body = {"prompt": "def main():\n", "max_tokens": 400, "ignore_eos": True}
    while target.going():
        leave(target, target.request("/v1/completions", {
            **body, "stream": target.draw.random() < 0.5,
            "n": target.draw.choice((1, 4))}))


# --- Floods, keys and limits --------------------------------------------------


@attack
def pipelined_floods(target):
    """Many requests at once on a connection, also behind a long answer."""
    stream = {"prompt": "a", "max_tokens": 200, "stream": True,
              "ignore_eos": True}
    while target.going():
        ids = [f"r{target.draw.getrandbits(60):x}" for _ in range(FLOOD)]
        texts = [target.head("GET", "/v1/models", f"X-Request-Id: {each}") +
                 "\r\n" for each in ids]
        texts[-1] = texts[-1].replace("\r\n", "\r\nConnection: close\r\n", 1)
        said = target.say("".join(texts)) or b""
        target.judge("flood", statuses_of(said), {200, CUT, *BUSY})
        heard = re.findall(rb"(?im)^X-Request-Id: (\S+)", said)
        if [each.decode() for each in heard] != ids[:len(heard)]:
            target.problems.append("answers in another order")
        # Over 64 KiB ahead of an answer: the client is cut off.
        ahead = (target.head("GET", "/v1/models", "X: " + "a" * 3000) +
                 "\r\n") * FLOOD
        said = target.say(target.request("/v1/completions", stream) + ahead)
        target.judge("ahead", statuses_of(said or b"")[:1], {200, CUT, *BUSY})


@attack
def wrong_keys(target):
    """Keys that are none, or almost one."""
    body = {"prompt": "a", "max_tokens": 1}
    while target.going():
        key = target.key
        at = target.draw.randrange(len(key))
        for wrong in (key[:-1], key[1:], key + "a", key.swapcase(), key * 2,
                      key[:at] + "\x7f" + key[at + 1:], f"{key},{key}", "null",
                      f"{target.draw.getrandbits(192):x}"):
            if wrong == key:
                continue
            path = target.draw.choice(("/v1/completions", "/tokenize",
                                       "/v1/chat/completions"))
            # A character that no header may hold is bad HTTP.
            target.expect("wrong key", target.request(
                path, body, "Connection: close", key=wrong),
                {400} if "\x7f" in wrong else {401})
        for line in ("", "Authorization: Basic " + key, "Authorization: " + key,
                     "Authorization:", "X-Api-Key: not-" + key,
                     "X-Auth-Key: " + key):
            target.expect("no key", "GET /v1/models HTTP/1.1\r\nHost: a\r\n"
                          "Connection: close\r\n" +
                          (f"{line}\r\n" if line else "") + "\r\n", {401})


@attack
def over_limits(target):
    """Requests beyond every limit of docs/api.md."""
    plain = {"prompt": "a", "max_tokens": 1}
    message = {"role": "user", "content": "a"}
    while True:
        for name, path, fields in (
                ("choices", "completions", {"n": 129}),
                ("prompts", "completions", {"prompt": ["a"] * 129}),
                ("stops", "completions", {"stop": ["a"] * 65}),
                ("stop", "completions", {"stop": "a" * 1025}),
                ("bias", "completions",
                 {"logit_bias": {str(i): 1 for i in range(1025)}}),
                ("stop ids", "completions",
                 {"stop_token_ids": list(range(1025))}),
                ("logprobs", "completions", {"logprobs": 21}),
                ("temperature", "completions", {"temperature": 101}),
                ("seed", "completions", {"seed": 1 << 70}),
                ("tokens", "completions", {"max_tokens": 1 << 62}),
                ("prompt", "completions", {"prompt": "a b " * (1 << 18)}),
                ("ids", "completions", {"prompt": [1 << 40]}),
                ("mode", "completions", {"speculation": "auto:gamma=9"}),
                ("scope", "completions", {"cache_scope": "a" * 257}),
                ("field", "completions", {"such": "none"}),
                ("messages", "chat/completions",
                 {"messages": [message] * 4097}),
                ("variables", "chat/completions",
                 {"messages": [message], "chat_template_kwargs":
                  {f"a{i}": 1 for i in range(257)}}),
                ("tools", "chat/completions",
                 {"messages": [message], "tools": [{"type": "function",
                  "function": {"name": f"f{i}"}} for i in range(1025)]})):
            body = {**({} if "messages" in fields else plain), **fields}
            target.expect(name, target.request(
                f"/v1/{path}", body, "Connection: close"), {400, *BUSY})
            if not target.going():
                return
        target.expect("body", target.request(
            "/tokenize", {"prompt": "a" * (9 << 20)}), {413, 429, CUT})


@attack
def hostile_texts(target):
    """The bodies that cost a server most."""
    bodies = list(hostile_bodies())
    while True:
        for path, body in bodies:
            name, begin = f"{len(body)} bytes to {path}", time.monotonic()
            status = post(target.port, target.key, path, body.encode())
            target.tried += status is not None
            target.judge(name, [status or CUT],
                         {200, 400, 408, 413, CUT, *BUSY})
            if status is None and time.monotonic() - begin >= ANSWER_TIME:
                target.problems.append(f"{name}: no answer")
            if not target.going():
                return


def run_attacks(arguments):
    stop = threading.Event()
    targets = {name: Target(arguments, name, stop)
               for name in arguments.attacks}

    def run(name):
        try:
            ATTACKS[name](targets[name])
        except Exception as error:  # an attack that breaks proves nothing
            targets[name].problems.append(f"{type(error).__name__}: {error}")

    threads = [threading.Thread(target=run, args=(name,)) for name in targets]
    for thread in threads:
        thread.start()
    time.sleep(arguments.seconds)
    last = time.monotonic() + LAST_TRY
    while (time.monotonic() < last and
           not all(each.tried for each in targets.values())):
        time.sleep(0.02)
    stop.set()
    for thread in threads:
        thread.join()
    return targets


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--key-file", required=True)
    parser.add_argument("--seconds", type=float, default=5)
    parser.add_argument("--scale", type=int, default=16)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--attacks", type=lambda text: text.split(","),
                        default=list(ATTACKS))
    arguments = parser.parse_args()
    arguments.key = read_key(arguments.key_file)
    targets = run_attacks(arguments)
    print(json.dumps({name: {"tried": each.tried, "answers": each.answers}
                      for name, each in targets.items()}))
    problems = [f"{name}: {problem}" for name, each in targets.items()
                for problem in each.problems + (
                    [] if each.tried else ["tried nothing"])]
    for problem in problems[:20]:
        print(problem, file=sys.stderr)
    sys.exit(1 if problems else 0)


if __name__ == "__main__":
    main()
