"""Many streams at once against a gateway, some of which are left early.

    streams.py URL [--streams N] [--at-once N] [--tokens N] [--leave RATIO]
               [--metrics URL] [--pid PID] [--seed N] [--ca FILE]

URL is that of the server, http://127.0.0.1:8080; of https://, with the roots of --ca. Every stream asks for the same
few prompts with its own seed; its text must be the beginning of what the same
request gives undisturbed, whole UTF-8, without a lost or doubled piece: the
pieces' token ids and texts are compared. With --pid and --metrics, the
processor time of the server for each delta is printed.
"""

import argparse
import asyncio
import json
import os
import random
import re
import ssl
import sys
import time
import urllib.parse
import urllib.request

PROMPTS = ["Once upon a time", "def main():\n", "Liebe Grüße aus 東京 🙂",
           "The quick brown fox"]
SEEDS = 4  # different outputs for each prompt


def request_of(i, tokens):
    return {"prompt": PROMPTS[i % len(PROMPTS)], "max_tokens": tokens,
            "temperature": 1, "seed": i // len(PROMPTS) % SEEDS,
            "ignore_eos": True, "stream": True, "foretoken": {"tokens": True}}


def processor_seconds(pid):
    fields = open(f"/proc/{pid}/stat").read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def resident_mib(pid):
    status = open(f"/proc/{pid}/status").read()
    return int(re.search(r"VmRSS:\s+(\d+)", status)[1]) / 1024


def deltas(metrics):
    page = urllib.request.urlopen(metrics).read().decode()
    return float(re.search(r"(?m)^foretoken_http_deltas_total (\S+)", page)[1])


class Stream:
    """What came of one stream."""

    def __init__(self):
        self.text, self.pieces, self.tokens = "", "", []
        self.finished, self.status = False, 0

    def take(self, frame):
        data = frame.decode("utf-8")  # strict: no broken character
        assert data.startswith("data: "), data
        if data == "data: [DONE]":
            assert self.finished
            return False
        chunk = json.loads(data[6:])
        assert "error" not in chunk, chunk
        choice = chunk["choices"][0]
        self.text += choice["text"]
        for token in chunk.get("foretoken", {}).get("tokens", []):
            self.tokens.append(token["id"])
            self.pieces += token["text"]
        self.finished |= choice["finish_reason"] is not None
        return True


async def run_stream(host, port, tls, body, leave_after=None):
    """Reads one stream, or its first `leave_after` frames."""
    reader, writer = await asyncio.open_connection(host, port, ssl=tls,
                                                   limit=1 << 20)
    stream = Stream()
    try:
        payload = json.dumps(body).encode()
        writer.write(b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\n"
                     b"Content-Type: application/json\r\nConnection: close\r\n"
                     b"Content-Length: %d\r\n\r\n" % len(payload) + payload)
        head = await reader.readuntil(b"\r\n\r\n")
        stream.status = int(head[9:12])
        if stream.status != 200:
            return stream
        buffer, frames = b"", 0
        while True:
            size = int((await reader.readline()).strip() or b"0", 16)
            if size == 0:
                return stream
            buffer += (await reader.readexactly(size + 2))[:-2]
            *whole, buffer = buffer.split(b"\n\n")
            for frame in whole:
                if not stream.take(frame):
                    return stream
                frames += 1
                if frames == leave_after:
                    if random.random() < 0.5:
                        writer.transport.abort()  # a reset
                    return stream
    finally:
        writer.close()


async def run(arguments):
    url = urllib.parse.urlparse(arguments.url)
    host, port, tls = url.hostname, url.port, None
    if url.scheme == "https":
        tls = ssl.create_default_context(cafile=arguments.ca)
    wanted = {}
    for i in range(len(PROMPTS) * SEEDS):
        body = request_of(i, arguments.tokens)
        stream = await run_stream(host, port, tls, body)
        assert stream.status == 200 and stream.finished, stream.status
        assert len(stream.tokens) == arguments.tokens
        wanted[i] = stream
    gate = asyncio.Semaphore(arguments.at_once)
    counts = {"whole": 0, "left": 0, "refused": 0}

    async def one(i):
        leave = None
        if random.random() < arguments.leave:
            leave = random.randint(1, arguments.tokens)
        async with gate:
            while True:
                stream = await run_stream(
                    host, port, tls, request_of(i, arguments.tokens), leave)
                if stream.status not in (429, 503):
                    break
                counts["refused"] += 1
                await asyncio.sleep(0.2 + random.random())
        reference = wanted[i % len(wanted)]
        assert stream.status == 200, stream.status
        assert reference.tokens[:len(stream.tokens)] == stream.tokens, i
        assert reference.text.startswith(stream.text), i
        assert reference.pieces.startswith(stream.pieces), i
        if leave is None:
            assert stream.finished and stream.text == reference.text, i
            assert stream.tokens == reference.tokens, i
        counts["left" if leave else "whole"] += 1

    before = None
    if arguments.pid and arguments.metrics:
        before = processor_seconds(arguments.pid), deltas(arguments.metrics)
        resident = resident_mib(arguments.pid)
    start = time.monotonic()
    await asyncio.gather(*(one(i) for i in range(arguments.streams)))
    print(f"{counts['whole']} streams whole, {counts['left']} left, "
          f"{counts['refused']} refusals, "
          f"{time.monotonic() - start:.1f} s")
    if before:
        seconds = processor_seconds(arguments.pid) - before[0]
        count = deltas(arguments.metrics) - before[1]
        print(f"{1e6 * seconds / count:.1f} us of processor time a delta "
              f"({count:.0f} deltas), {resident:.0f} MiB before, "
              f"{resident_mib(arguments.pid):.0f} MiB after")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("url")
    parser.add_argument("--streams", type=int, default=200)
    parser.add_argument("--at-once", type=int, default=50)
    parser.add_argument("--tokens", type=int, default=40)
    parser.add_argument("--leave", type=float, default=0.5)
    parser.add_argument("--metrics")
    parser.add_argument("--pid", type=int)
    parser.add_argument("--ca")
    parser.add_argument("--seed", type=int,
                        default=random.SystemRandom().randrange(1 << 30))
    arguments = parser.parse_args()
    print(f"seed {arguments.seed}")
    random.seed(arguments.seed)
    asyncio.run(run(arguments))


main()
