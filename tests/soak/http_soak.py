"""Requests over HTTP to a gateway whose services are being killed meanwhile.

    http_soak.py --port PORT --key-file FILE --text FILE,... [--requests N]
                 [--until FILE] [--seed N] [--max-tokens N] [--concurrency N]
                 [--modes MODE,...] [--reference-seed N]

Completions and chats, whole and streamed, in all modes, greedy and sampled,
some closed in mid-answer, some with little time, some read slowly. Before the
faults, every prompt is answered in mode `off`: these are the references. Every
finished answer must equal its reference (text, token ids, finish reason and
usage), and what came of a broken one must be its beginning. Tries that end with
a status for which docs/api.md tells clients to try again, or with a closed
connection, are counted and repeated; another status is an error, and so is a
request that is still unanswered after two minutes.

Prints `references complete` on stderr when the references are there (kill
nothing before that), and a table in the end. Continues until the file of
--until exists. --reference-seed takes the references with another seed, to show
that differences are found. Exit status 1: something of the above does not hold.
"""

import argparse
import asyncio
import collections
import dataclasses
import json
import pathlib
import random
import socket
import struct
import sys
import time

from http_attack import read_key

MODES = "off,auto,draft_model,ngram_trie,crest,prompt_lookup,ouroboros"
PROMPTS = 48
PROMPT_BYTES = 400
SCOPES = 8
# Seconds in which a request that the client neither abandons nor hurries must
# finish, with all its tries.
PATIENCE = 120
LONGEST_HURRY = 0.4
# Bytes that a slow reader has room for.
SLOW_BUFFER = 4096
# Statuses that a system may answer while its parts are killed, and their types.
AGAIN = {408: "timeout_error", 429: "rate_limit_error",
         503: "service_unavailable_error"}
STATUS_OF = {name: status for status, name in AGAIN.items()}
# Tries that end without an answer, or without all of it.
CUT, REFUSED = "cut off", "no connection"
TRIES = [*map(str, AGAIN), CUT, REFUSED]


class Wrong(Exception):
    """The server did what it must not do."""


@dataclasses.dataclass
class Work:
    """A prompt and how to continue it."""
    path: str
    fields: dict

    def body(self, tokens, **fields):
        return {**self.fields, "max_tokens": tokens,
                "foretoken": {"tokens": True}, **fields}


def piece_at(text, at):
    """Whole lines of the text, from the one after `at`."""
    begin = text.find("\n", at) + 1
    end = text.find("\n", begin + PROMPT_BYTES)
    return text[begin:end] if begin > 0 and end > 0 else ""


def make_works(paths, count, seed):
    text = "\n".join(pathlib.Path(path).read_text("utf-8", "replace")
                     for path in paths)
    step = max(PROMPT_BYTES, len(text) // (count + 1))
    pieces = [piece for at in range(0, len(text), step)
              if (piece := piece_at(text, at).strip()
                  [:4 * PROMPT_BYTES])][:count]
    works = []
    for i, piece in enumerate(pieces):
        fields = {"temperature": 0.8 if i // 2 % 2 else 0,
                  "seed": seed * 1_000_003 + i, "ignore_eos": i % 5 != 0}
        if i % 2 == 0:
            works.append(Work("completions", {"prompt": piece, **fields}))
        else:
            message = {"role": "user", "content": piece}
            works.append(Work("chat/completions",
                              {"messages": [message], **fields}))
    if not works:
        sys.exit("the texts hold no prompt: want files of several KB of lines")
    return works


@dataclasses.dataclass
class Plan:
    """One request, derived from its number."""
    work: int
    mode: str
    tokens: int
    stream: bool
    scope: str = ""
    leave: float = 0  # close after so many seconds
    leave_at: int = 0  # close after so many frames of a stream
    hurry: float = 0  # patience
    slow: bool = False
    keep: bool = False  # the connection for the next request

    @property
    def fate(self):
        return ("left" if self.leave or self.leave_at else
                "hurried" if self.hurry else "slow" if self.slow else "plain")


def make_plan(arguments, works, number):
    draw = random.Random(arguments.seed * 7919 + number)
    plan = Plan(draw.randrange(works), draw.choice(arguments.modes),
                draw.choice(arguments.lengths), draw.random() < 0.6)
    # Every third request uses a shared scope.
    scope = draw.randrange(3 * SCOPES)
    plan.scope = f"soak-{scope}" if scope < SCOPES else ""
    plan.keep = draw.random() < 0.5
    fate = draw.random()
    if fate < 0.2:
        if plan.stream:
            plan.leave_at = draw.randint(1, plan.tokens)
        else:
            plan.leave = draw.uniform(0.001, LONGEST_HURRY)
    elif fate < 0.3:
        plan.hurry = draw.uniform(0.001, LONGEST_HURRY)
    elif fate < 0.45:
        plan.slow = True
    return plan


def body_of(plan, work):
    fields = {"speculation": plan.mode}
    if plan.scope:
        fields["cache_scope"] = plan.scope
    if plan.stream:
        fields |= {"stream": True, "stream_options": {"include_usage": True}}
        if plan.slow:  # an answer too long to wait in buffers
            fields["foretoken"] = {"tokens": True, "rounds": True}
    return work.body(plan.tokens, **fields)


class Answer:
    """What has come of an answer."""

    def __init__(self):
        self.text, self.pieces, self.ids = "", "", []
        self.finish, self.usage, self.extension = None, None, {}
        self.done = False

    def take(self, message):
        """A body, or a frame of a stream."""
        if "error" in message:
            raise Failed(message)
        if message.get("usage"):
            self.usage = {key: message["usage"][key]
                          for key in ("prompt_tokens", "completion_tokens")}
        extension = message.get("foretoken", {})
        if "mode" in extension:
            self.extension = extension
        tokens = list(extension.get("tokens", []))
        for choice in message["choices"]:
            part = choice.get("message") or choice.get("delta") or choice
            self.text += part.get("text") or part.get("content") or ""
            tokens += choice.get("foretoken", {}).get("tokens", [])
            self.finish = choice["finish_reason"] or self.finish
        for token in tokens:
            self.ids.append(token["id"])
            self.pieces += token["text"]

    def compared(self):
        return self.text, self.ids, self.pieces, self.finish, self.usage

    def check(self, reference, plan):
        """That this is the reference, or as much of it as came."""
        if self.done:
            if self.compared() != reference.compared():
                raise Wrong(f"differs: {self.compared()}, "
                            f"want {reference.compared()}")
            mode = self.extension.get("mode")
            if mode != plan.mode:
                raise Wrong(f"answered in mode {mode}")
        elif not (reference.text.startswith(self.text) and
                  reference.pieces.startswith(self.pieces) and
                  reference.ids[:len(self.ids)] == self.ids):
            raise Wrong(f"no beginning: {self.compared()}, "
                        f"of {reference.compared()}")


class Failed(Exception):
    """A try ended with an error of the API."""

    def __init__(self, message, status=None):
        super().__init__(str(message))
        kind = message["error"]["type"]
        self.status = status or STATUS_OF.get(kind)
        if self.status not in AGAIN or kind != AGAIN[self.status]:
            raise Wrong(f"status {status}: {message}")


class Connection:
    """One connection, read frame by frame."""

    @classmethod
    async def open(cls, port, slow):
        self = cls()
        connection = socket.socket()
        connection.setblocking(False)
        if slow:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF,
                                  SLOW_BUFFER)
        try:
            await asyncio.get_running_loop().sock_connect(
                connection, ("127.0.0.1", port))
        except BaseException:
            connection.close()
            raise
        self.slow, self.keep = slow, False
        self.reader, self.writer = await asyncio.open_connection(
            sock=connection, limit=SLOW_BUFFER if slow else 1 << 16)
        return self

    def close(self, reset=False):
        if reset and not self.writer.is_closing():
            self.writer.get_extra_info("socket").setsockopt(
                socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.writer.transport.abort()

    async def ask(self, path, key, body, keep):
        """Sends a request; the status and headers of its answer."""
        payload = json.dumps(body).encode()
        self.writer.write(
            f"POST /v1/{path} HTTP/1.1\r\nHost: localhost\r\n"
            f"Authorization: Bearer {key}\r\n"
            "Content-Type: application/json\r\n"
            f"Connection: {'keep-alive' if keep else 'close'}\r\n"
            f"Content-Length: {len(payload)}\r\n\r\n".encode() + payload)
        await self.writer.drain()
        if self.slow:
            await asyncio.sleep(random.uniform(0, 1))
        head = await self.reader.readuntil(b"\r\n\r\n")
        lines = head.decode().split("\r\n")
        headers = {name.lower(): value.strip() for name, _, value in
                   (line.partition(":") for line in lines[1:] if line)}
        self.keep = keep and headers.get("connection") != "close"
        return int(lines[0].split()[1]), headers

    async def body(self, headers):
        return await self.reader.readexactly(int(headers["content-length"]))

    async def chunks(self):
        while True:
            if self.slow:
                await asyncio.sleep(random.uniform(0, 0.05))
            line = await self.reader.readuntil(b"\r\n")
            data = await self.reader.readexactly(int(line, 16) + 2)
            if len(data) == 2:
                return
            yield data[:-2]

    async def frames(self):
        """The data of each event; [DONE] last, and then the stream's end."""
        buffer, done = b"", False
        async for chunk in self.chunks():
            *whole, buffer = (buffer + chunk).split(b"\n\n")
            for frame in whole:
                if done or not frame.startswith(b"data: "):
                    raise Wrong(f"frame {frame[:200]}")
                if frame == b"data: [DONE]":
                    done = True
                else:
                    yield json.loads(frame[6:].decode("utf-8"))
        if not done or buffer:
            raise Wrong("a stream ended as if whole, without [DONE]")


async def read_answer(connection, plan, status, headers, answer):
    """False: left, as planned."""
    if status != 200:
        message = json.loads(await connection.body(headers))
        if status in (429, 503) and "retry-after" not in headers:
            raise Wrong(f"{status} without Retry-After: {message}")
        raise Failed(message, status)
    if not plan.stream:
        answer.take(json.loads(await connection.body(headers)))
    else:
        count, failed = 0, None
        async for message in connection.frames():
            if failed:
                raise Wrong(f"after an error: {message}")
            try:
                answer.take(message)
            except Failed as error:
                failed = error  # [DONE] follows
            count += 1
            if count == plan.leave_at:
                return False
        if failed:
            raise failed
    answer.done = True
    return True


class Client:
    """One of those that send requests one after the other."""

    def __init__(self, port, key):
        self.port, self.key, self.kept = port, key, None

    def close(self):
        if self.kept is not None:
            self.kept.close()
        self.kept = None

    async def try_once(self, plan, work, answer):
        """How the try ended: "whole", "left", or one of TRIES."""
        if self.kept is not None and self.kept.slow != plan.slow:
            self.close()
        connection, self.kept = self.kept, None
        try:
            if connection is None:
                connection = await Connection.open(self.port, plan.slow)
        except OSError:
            return REFUSED
        try:
            async with asyncio.timeout(plan.leave or None):
                status, headers = await connection.ask(
                    work.path, self.key, body_of(plan, work), plan.keep)
                whole = await read_answer(connection, plan, status, headers,
                                          answer)
            if whole and connection.keep:
                self.kept, connection = connection, None
            return "whole" if whole else "left"
        except Failed as error:
            return str(error.status)
        except TimeoutError:
            if not plan.leave:
                raise
            return "left"
        except (OSError, asyncio.IncompleteReadError):
            return CUT
        finally:
            if connection is not None:
                connection.close(reset=random.random() < 0.5)

    async def drive(self, plan, work, reference, record):
        """One request with all its tries, as a client does."""
        patience = plan.hurry or PATIENCE
        begin = time.monotonic()
        tries = 0
        while True:
            answer, end, tries = Answer(), "hurried", tries + 1
            start = time.monotonic()
            try:
                async with asyncio.timeout(patience - (start - begin)):
                    end = await self.try_once(plan, work, answer)
            except TimeoutError:
                if not plan.hurry:
                    record.wrong(plan, f"no end of a try after "
                                       f"{time.monotonic() - start:.0f} s")
                    return
            except (Wrong, ValueError, KeyError, TypeError) as error:
                record.wrong(plan, f"{type(error).__name__}: {error}")
                return
            record.longest = max(record.longest, time.monotonic() - start)
            try:
                answer.check(reference, plan)
            except Wrong as error:
                record.wrong(plan, str(error))
                return
            if end not in TRIES:
                record.ended(plan, end, answer, tries)
                return
            record.count(plan.mode, end)
            if time.monotonic() - begin >= patience:
                if plan.hurry:
                    record.ended(plan, "hurried", answer, tries)
                else:
                    record.wrong(plan, f"{end} for {patience} s")
                return
            await asyncio.sleep(random.uniform(0.02, 0.1))


FIGURES = ["whole", "at_once", "slow", "tokens", "accepted", "left", "hurried",
           *TRIES, "wrong"]


class Record:
    """The outcomes of all requests, by mode."""

    def __init__(self):
        self.by_mode = collections.defaultdict(collections.Counter)
        self.longest, self.first_problems = 0.0, []

    def count(self, mode, figure, by=1):
        self.by_mode[mode][figure] += by

    def ended(self, plan, end, answer, tries):
        self.count(plan.mode, end)
        if end != "whole":
            return
        self.count(plan.mode, "at_once", tries == 1)
        self.count(plan.mode, "slow", plan.slow)
        self.count(plan.mode, "tokens", len(answer.ids))
        self.count(plan.mode, "accepted", answer.extension["accepted_tokens"])

    def wrong(self, plan, problem):
        self.count(plan.mode, "wrong")
        if len(self.first_problems) < 5:
            self.first_problems.append(
                f"{time.strftime('%T')}, {plan.mode}, {plan.fate}, "
                f"{'stream' if plan.stream else 'body'} of work {plan.work}, "
                f"{plan.tokens} tokens: {problem}")

    def total(self, figure):
        return sum(tally[figure] for tally in self.by_mode.values())

    def print(self, seconds):
        width = [max(8, len(name)) for name in FIGURES]
        print(f"{'mode':14}", *(f"{name:>{wide}}"
                                for name, wide in zip(FIGURES, width)))
        for mode, tally in sorted(self.by_mode.items()):
            print(f"{mode:14}", *(f"{tally[name]:{wide}}"
                                  for name, wide in zip(FIGURES, width)))
        whole, wrong = self.total("whole"), self.total("wrong")
        ends = [whole, wrong, self.total("left"), self.total("hurried")]
        refusals = sum(self.total(name) for name in TRIES)
        print(f"{sum(ends)} requests in {seconds:.0f} s: {whole} finished, "
              f"{self.share('at_once', whole)} of them at the first try; "
              f"{refusals} tries ended with an error; the longest try took "
              f"{self.longest:.1f} s")
        for problem in self.first_problems:
            print("BAD:", problem[:3000])

    def share(self, figure, total):
        return f"{100 * self.total(figure) / total:.1f} %" if total else "none"


async def at_a_time(count, make_client, work):
    """Runs work(client) for so many clients until all have returned."""
    clients = [make_client() for _ in range(count)]
    try:
        await asyncio.gather(*map(work, clients))
    finally:
        for client in clients:
            client.close()


async def take_references(arguments, works, make_client):
    """The answer to each work and length in mode off."""
    references = {}
    wanted = [(work, tokens) for work in range(len(works))
              for tokens in arguments.lengths]

    async def take(client):
        while wanted:
            number, tokens = wanted.pop()
            fields = dict(works[number].fields)
            fields["seed"] += arguments.reference_seed
            work = Work(works[number].path, fields)
            plan = Plan(number, "off", tokens, stream=False)
            async with asyncio.timeout(PATIENCE):
                answer = Answer()
                while await client.try_once(plan, work, answer) != "whole":
                    answer = Answer()
                    await asyncio.sleep(0.1)
            references[number, tokens] = answer

    await at_a_time(4, make_client, take)
    return references


async def run(arguments):
    key = read_key(arguments.key_file)
    works = make_works(arguments.text.split(","),
                       min(PROMPTS, arguments.requests), arguments.seed)

    def make_client():
        return Client(arguments.port, key)

    references = await take_references(arguments, works, make_client)
    print("references complete", file=sys.stderr, flush=True)
    record, number = Record(), 0
    until = arguments.until and pathlib.Path(arguments.until)
    tenth = max(1, arguments.requests // 10)

    async def work(client):
        nonlocal number
        while number < arguments.requests or (until and not until.exists()):
            plan = make_plan(arguments, len(works), number)
            number += 1
            if number % tenth == 0 and number <= arguments.requests:
                print(f"{number} requests", file=sys.stderr, flush=True)
            await client.drive(plan, works[plan.work],
                               references[plan.work, plan.tokens], record)

    start = time.monotonic()
    await at_a_time(arguments.concurrency, make_client, work)
    record.print(time.monotonic() - start)
    # Without an accepted draft, nothing would have been compared.
    drafts = arguments.modes == ["off"] or record.total("accepted") > 0
    return (record.total("wrong") == 0 and record.total("whole") > 0 and drafts)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--key-file", required=True)
    parser.add_argument("--text", required=True)
    parser.add_argument("--requests", type=int, default=1000)
    parser.add_argument("--until")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--max-tokens", type=int, default=48)
    parser.add_argument("--concurrency", type=int, default=16)
    parser.add_argument("--modes", type=lambda text: text.split(","),
                        default=MODES.split(","))
    parser.add_argument("--reference-seed", type=int, default=0)
    arguments = parser.parse_args()
    most = arguments.max_tokens
    arguments.lengths = sorted({max(1, most // 6), max(1, most // 2), most})
    random.seed(arguments.seed)
    sys.exit(0 if asyncio.run(run(arguments)) else 1)


if __name__ == "__main__":
    main()
