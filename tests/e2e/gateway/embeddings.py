"""POST /v1/embeddings over HTTP: foretoken-local, and the services behind a gateway.

    embeddings.py BINARIES

Starts foretoken-local, and then a gateway, an orchestrator and two verifiers (drafting
services take no part in an embedding), all with the demo model. Vectors must have
length 1 and be the same to the bit alone, in one request, beside generation, as token
ids, in either encoding, from either set of processes, and after a verifier was killed
under them. Prompt tokens must be counted in the answer and in the metrics. Bad
requests must be refused by field.

Exit status 1: it does not hold.
"""

import argparse
import base64
import json
import math
import signal
import struct
import sys
import tempfile
import threading
import urllib.error
import urllib.request
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "tests/e2e"))
import free_ports  # noqa: E402
from prefix_sharing import MODEL, Servers  # noqa: E402

PROMPT_TOKENS = "foretoken_prompt_tokens_total"
TEXTS = ["a", "The fox and the river.",
         "One day in a very cold winter, when nothing was left to eat, " * 8,
         "A fox met a river.", "Numbers: 1 2 3 4 5 6 7 8 9 10"]


class Processes(Servers):
    """foretoken-local, or a gateway, an orchestrator and two verifiers."""

    def __init__(self, binaries, local):
        self.folder = tempfile.TemporaryDirectory(prefix="foretoken-embeddings-")
        self.binaries = Path(binaries)
        self.processes = []
        page = f"127.0.0.1:{free_ports.in_a_row(1)[0]}"
        common = ["--model", MODEL]
        if local:
            self.start("local", *common, "--threads", "1", "--listen",
                       f"unix:{self.path('local')}", "--http-listen",
                       "127.0.0.1:0", "--metrics-listen", page)
        else:
            sockets = [f"unix:{self.path(name)}" for name in ("one", "two")]
            for socket in sockets:
                self.start("verifier", *common, "--threads", "1", "--listen",
                           socket, "--metrics-listen=")
            self.start("orchestrator", "--tokenizer", MODEL, "--verifiers",
                       ",".join(sockets), "--listen",
                       f"unix:{self.path('orchestrator')}", "--metrics-listen",
                       page)
            self.start("gateway", *common, "--listen", "127.0.0.1:0",
                       "--metrics-listen=", "--orchestrator", f"unix:{self.path('orchestrator')}")
        self.page = f"http://{page}/metrics"
        self.url = self.await_ready("local" if local else "gateway")

    def post(self, path, body):
        """Status and answer."""
        request = urllib.request.Request(
            self.url + path, json.dumps(body).encode(),
            {"Content-Type": "application/json"})
        try:
            with urllib.request.urlopen(request, timeout=240) as answer:
                return answer.status, json.load(answer)
        except urllib.error.HTTPError as error:
            return error.code, json.load(error)

    def prompt_tokens(self):
        with urllib.request.urlopen(self.page) as page:
            for line in page.read().decode().splitlines():
                if line.startswith(PROMPT_TOKENS):
                    return float(line.split()[-1])
        sys.exit(f"no {PROMPT_TOKENS}")

    def embed(self, given, **fields):
        status, answer = self.post("/v1/embeddings", {"input": given, **fields})
        check(status == 200, answer)
        data = answer["data"]
        check(answer["object"] == "list", answer["object"])
        check([each["index"] for each in data] == list(range(len(data))), "index")
        check(all(each["object"] == "embedding" for each in data), "object")
        usage = answer["usage"]
        check(usage["prompt_tokens"] == usage["total_tokens"], usage)
        return [each["embedding"] for each in data], usage["prompt_tokens"]


def check(holds, what):
    if not holds:
        print(f"embeddings: {what}", file=sys.stderr)
        sys.exit(1)


def floats(numbers):
    """The numbers as the floats that they are the digits of."""
    return struct.pack(f"<{len(numbers)}f", *numbers)


def check_vectors(servers):
    """Returns those of TEXTS."""
    before = servers.prompt_tokens()
    vectors, tokens = servers.embed(TEXTS)
    check(servers.prompt_tokens() - before == tokens, "prompt tokens of the metrics")
    ids = [servers.ask("/tokenize", {"prompt": text})["tokens"] for text in TEXTS]
    check(sum(map(len, ids)) == tokens, f"{tokens} tokens of {ids}")
    for vector in vectors:
        check(abs(math.fsum(x * x for x in vector) - 1) < 1e-5, "length")
    vectors = [floats(vector) for vector in vectors]
    check(len(set(vectors)) == len(TEXTS), "different texts have one vector")

    alone = [floats(servers.embed(text)[0][0]) for text in TEXTS]
    check(alone == vectors, "company changes a bit")
    of_ids = [floats(vector) for vector in servers.embed(ids)[0]]
    check(of_ids == vectors, "token ids change a bit")
    check(floats(servers.embed(ids[1])[0][0]) == vectors[1], "one array of ids")
    coded = servers.embed(TEXTS, encoding_format="base64")[0]
    check([base64.b64decode(each) for each in coded] == vectors, "base64")
    check([floats(v) for v in servers.embed(TEXTS, pooling="mean")[0]] == vectors,
          "the mean is not the default of this model")
    last = [floats(v) for v in servers.embed(TEXTS, pooling="last")[0]]
    check(all(a != b for a, b in zip(last[1:], vectors[1:])), "last is the mean")
    one = ids[0][:1]
    check(servers.embed(one, pooling="last") == servers.embed(one, pooling="mean"),
          "of one token the last is the mean")
    width = len(vectors[0]) // 4
    check(floats(servers.embed(TEXTS[0], dimensions=width)[0][0]) == vectors[0],
          "dimensions")
    return vectors


def check_beside_generation(servers, vectors):
    answers = []
    body = {"prompt": "Once upon a time", "max_tokens": 200, "temperature": 0,
            "ignore_eos": True}
    want = servers.post("/v1/completions", body)[1]["choices"][0]["text"]
    thread = threading.Thread(
        target=lambda: answers.append(servers.post("/v1/completions", body)))
    thread.start()
    compared = 0
    while thread.is_alive():
        check([floats(v) for v in servers.embed(TEXTS)[0]] == vectors,
              "generation changes a bit")
        compared += 1
    check(compared > 0, "the output was there before any embedding")
    status, answer = answers[0]
    check(status == 200, answer)
    check(answer["choices"][0]["text"] == want, "embeddings change the output")


def check_refusals(servers):
    with urllib.request.urlopen(servers.url + "/v1/models") as answer:
        context = json.load(answer)["data"][0]["max_model_len"]
    cases = [
        ({}, 400, "input"), ({"input": ""}, 400, "input"),
        ({"input": ["a", ""]}, 400, "input[1]"),
        ({"input": ["a"] * 2049}, 400, "input"),
        ({"input": [1] * (context + 1)}, 400, "input"),
        ({"input": [[1], [1 << 30]]}, 400, "input[1]"),
        ({"input": "a", "dimensions": 1}, 400, "dimensions"),
        ({"input": "a", "encoding_format": "x"}, 400, "encoding_format"),
        ({"input": "a", "pooling": "cls"}, 400, "pooling"),
        ({"input": "a", "temperature": 1}, 400, "temperature"),
        ({"input": "a", "model": "another"}, 404, None),
    ]
    for body, wanted, param in cases:
        status, answer = servers.post("/v1/embeddings", body)
        check(status == wanted and answer["error"]["param"] == param,
              f"{str(body)[:80]}: {status} {answer}")
    status, answer = servers.post("/v1/embeddings", cases[4][0])
    check(answer["error"]["code"] == "context_length_exceeded", answer)
    whole = servers.embed([1] * context)[1]
    check(whole == context, f"{whole} tokens of {context}")


def check_failover(servers, vectors):
    """A verifier is killed under many inputs."""
    answers = []
    texts = TEXTS * 40
    thread = threading.Thread(
        target=lambda: answers.append(servers.embed(texts)[0]))
    before = servers.prompt_tokens()
    thread.start()
    while servers.prompt_tokens() == before and thread.is_alive():
        pass
    check(thread.is_alive(), "all was answered before the verifier was killed")
    servers.processes[0].send_signal(signal.SIGKILL)
    thread.join()
    check(answers, "the request failed when a verifier was killed")
    check([floats(v) for v in answers[0]] == vectors * 40,
          "another verifier changes a bit")
    check([floats(v) for v in servers.embed(TEXTS)[0]] == vectors, "afterwards")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("binaries")
    binaries = parser.parse_args().binaries
    with Processes(binaries, local=True) as servers:
        vectors = check_vectors(servers)
        check_beside_generation(servers, vectors)
        check_refusals(servers)
    with Processes(binaries, local=False) as servers:
        check(check_vectors(servers) == vectors,
              "foretoken-local and the services differ")
        check_beside_generation(servers, vectors)
        check_refusals(servers)
        check_failover(servers, vectors)
    print("embeddings: the same bits everywhere")


if __name__ == "__main__":
    main()
