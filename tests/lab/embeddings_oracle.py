#!/usr/bin/env python3
"""Compares /v1/embeddings with those of llama.cpp's server for the same GGUF file.

    embeddings_oracle.py MODEL.gguf --llama-server PATH [--local PATH] [--least COSINE]

Starts `llama-server --embedding --pooling mean` and then `last`, and foretoken-local,
with the file, asks both for 50 texts, and prints the least and the mean cosine of each
pooling. Exit status 1 if a cosine is below --least (0.999) or the servers disagree
about the number of tokens, 77 without llama-server.
"""

import argparse
import json
import math
import os
import pathlib
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request

SKIPPED = 77
COUNT = 50
START_S = 600  # a large file is read from disk first
ASK_S = 600

SUBJECTS = ["The fox", "A river in winter", "The committee", "Her brother",
            "This function", "Der Zug", "La biblioteca", "雪", "The orchestra",
            "An old theorem"]
ENDINGS = ["waited until the morning.",
           "is described in the second chapter, together with its proof.",
           "returned 404 instead of {\"ok\": true}.",
           "was never seen again; nobody could say why, and nobody asked.",
           "costs 3.50 euros on Tuesdays, 4.20 at the weekend."]


def texts():
    """COUNT of them, from a few tokens to some hundreds."""
    pairs = [f"{subject} {ending}" for subject in SUBJECTS for ending in ENDINGS]
    return [text * (1 + 9 * (i % 5 == 4)) for i, text in enumerate(pairs)][:COUNT]


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Server:
    """A process that serves HTTP on a port of its own; ends with the block."""

    def __init__(self, command, port, log):
        self.url = f"http://127.0.0.1:{port}"
        self.log = log
        with open(log, "wb") as out:
            self.process = subprocess.Popen(command, stdout=out, stderr=out)

    def __enter__(self):
        deadline = time.monotonic() + START_S
        while time.monotonic() < deadline:
            if self.process.poll() is not None:
                break
            try:
                with urllib.request.urlopen(self.url + "/health", timeout=5):
                    return self
            except OSError:
                time.sleep(0.2)
        self.__exit__()
        sys.exit(f"not ready: {self.process.args[0]}\n"
                 + pathlib.Path(self.log).read_text(errors="replace")[-4000:])

    def __exit__(self, *error):
        self.process.terminate()
        self.process.wait()

    def embed(self, text, **fields):
        """The vector and the number of tokens."""
        request = urllib.request.Request(
            self.url + "/v1/embeddings",
            json.dumps({"input": text, **fields}).encode(),
            {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=ASK_S) as answer:
            body = json.load(answer)
        return body["data"][0]["embedding"], body["usage"]["prompt_tokens"]


def cosine(a, b):
    if len(a) != len(b):
        sys.exit(f"{len(a)} numbers and {len(b)}")
    product = math.fsum(x * y for x, y in zip(a, b))
    return product / math.sqrt(math.fsum(x * x for x in a)
                               * math.fsum(y * y for y in b))


def llama_vectors(arguments, pooling, folder):
    port = free_port()
    with Server([arguments.llama_server, "--model", arguments.model, "--embedding",
                 "--pooling", pooling, "--host", "127.0.0.1", "--port", str(port),
                 "--n-gpu-layers", "0"], port,
                os.path.join(folder, f"llama-{pooling}.log")) as server:
        return [server.embed(text) for text in texts()]


def our_vectors(arguments, poolings, folder):
    port = free_port()
    with Server([arguments.local, "--model", arguments.model, "--listen",
                 f"unix:{folder}/local", "--http-listen", f"127.0.0.1:{port}",
                 "--metrics-listen="], port,
                os.path.join(folder, "local.log")) as server:
        return {pooling: [server.embed(text, pooling=pooling) for text in texts()]
                for pooling in poolings}


def compare(pooling, ours, theirs, least):
    """Whether they agree; prints how well."""
    cosines = [cosine(a, b) for (a, _), (b, _) in zip(ours, theirs)]
    print(f"{pooling}: cosine {min(cosines):.6f} at least, "
          f"{sum(cosines) / len(cosines):.6f} in the mean, {len(cosines)} texts")
    agree = min(cosines) >= least
    for i, ((_, mine), (_, other)) in enumerate(zip(ours, theirs)):
        if mine != other:
            print(f"{pooling}: text {i} has {mine} tokens here, {other} there")
            agree = False
    return agree


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("model")
    parser.add_argument("--llama-server", default=shutil.which("llama-server"))
    parser.add_argument("--local", default=shutil.which("foretoken-local"))
    parser.add_argument("--least", type=float, default=0.999)
    arguments = parser.parse_args()
    if not arguments.llama_server or not os.access(arguments.llama_server, os.X_OK):
        print("SKIPPED: no llama-server, see --llama-server")
        sys.exit(SKIPPED)
    if not arguments.local:
        sys.exit("no foretoken-local, see --local")
    poolings = ("mean", "last")
    with tempfile.TemporaryDirectory(prefix="foretoken-oracle-") as folder:
        theirs = {each: llama_vectors(arguments, each, folder) for each in poolings}
        ours = our_vectors(arguments, poolings, folder)
    agree = [compare(each, ours[each], theirs[each], arguments.least)
             for each in poolings]
    sys.exit(0 if all(agree) else 1)


if __name__ == "__main__":
    main()
