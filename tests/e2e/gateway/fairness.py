"""What a caller has to wait for while another one floods the HTTP API.

    fairness.py BINARIES [--local] [--rounds N] [--requests N] [--streams N]
                [--threads N] [--model DIR]
    fairness.py BINARIES --check [--local]
    fairness.py BINARIES --hostile [--local] [--rounds N] [--requests N]

Starts a gateway, an orchestrator and a verifier (or foretoken-local) with the demo
model and keys of two principals. The one has N streams (64) under way all the time,
the other one request after the other; rounds without and with the first alternate.
Prints the second's time to first token in both, the verifier's passes under the
first's load, and whether the p95 grew by at most three of them. Passes are those of
the first alone: while the second asks, the verifier keeps them short for it, and
these are printed, too.

--check measures nothing: with small limits, the second is always served, with the
text that it gets alone, while the first is answered 429 with Retry-After; so is a
principal beyond its quota; no key is in any log or metric.

--hostile: two principals send bodies that cost a server most to read or to
render, on four connections each, while a third asks for chats of 20 KB. Prints
the p95 of their answers alone and beside the two, and the ratio.

Exit status 1: it does not hold; with --hostile, an answer has another status than
alone.
"""

import argparse
import contextlib
import http.client
import json
import multiprocessing
import pathlib
import re
import secrets
import selectors
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "tests/e2e"))
sys.path.insert(0, str(ROOT / "tests/soak"))
import free_ports  # noqa: E402
from http_attack import hostile_bodies, post  # noqa: E402

PASSES = 3
CROWD_ALONE = 0.5  # seconds in every round
# Random: a key is in a log only because a server wrote it there.
KEYS = {name: f"key-{name}-{secrets.token_hex(8)}"
        for name in ("crowd", "single", "limited", "second", "gateway",
                     "stranger")}
# A token of the demo model, so that 20 KB of it are within its context.
LONG_WORD = " NotImplementedError"
PROMPT = "Once upon a time there was a small fox. It lived in"


class Servers:
    """The services, each with a log of its own."""

    def __init__(self, arguments, *flags):
        self.folder = tempfile.TemporaryDirectory(prefix="foretoken-fairness-")
        self.binaries = pathlib.Path(arguments.binaries)
        self.processes = []
        self.port, *metrics = free_ports.in_a_row(4)
        self.metrics = [f"http://127.0.0.1:{port}/metrics" for port in metrics]
        pages = [f"127.0.0.1:{port}" for port in metrics]
        quotas = {"limited": " requests_per_minute=2"}
        limits = "".join(f"{KEYS[name]} {name}{quotas.get(name, '')}\n"
                         for name in ("crowd", "single", "limited", "second"))
        model = ["--model", arguments.model]
        verifier = [*model, "--threads", str(arguments.threads)]
        flags = [*flags, "--trace" if arguments.check else "--trace=false"]
        http_flags = ["127.0.0.1:%d" % self.port]
        if arguments.local:
            self.metrics = self.metrics[:1] * 3
            self.start("local", *verifier, *flags,
                       "--listen", f"unix:{self.path('local')}",
                       "--http-listen", *http_flags, "--metrics-listen",
                       pages[0], "--api-key-file", self.write("keys", limits))
        else:
            self.start("verifier", *verifier, "--metrics-listen", pages[0],
                       "--listen", f"unix:{self.path('verifier')}")
            self.start("orchestrator", *flags, "--tokenizer", arguments.model,
                       "--verifiers", f"unix:{self.path('verifier')}",
                       "--listen", f"unix:{self.path('orchestrator')}",
                       "--metrics-listen", pages[1], "--auth-token-file",
                       self.write("tokens", limits + KEYS["gateway"] +
                                  " gateway speaks_for_others\n"))
            self.start("gateway", *model, "--listen", *http_flags,
                       "--orchestrator", f"unix:{self.path('orchestrator')}",
                       "--orchestrator-token-file",
                       self.write("token", KEYS["gateway"] + "\n"),
                       "--metrics-listen", pages[2], "--api-key-file",
                       self.write("keys", re.sub(r" \w+=\d+", "", limits)))
        deadline = time.monotonic() + 120
        while self.get("/health") != 200:
            if time.monotonic() > deadline:
                sys.exit("not ready:\n" + "\n".join(self.logs().values()))
            time.sleep(0.05)

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.stop()
        self.folder.cleanup()

    def stop(self):
        for process in self.processes:
            process.terminate()
        for process in self.processes:
            process.wait()
        self.processes = []

    def path(self, name):
        return str(pathlib.Path(self.folder.name) / name)

    def write(self, name, text):
        pathlib.Path(self.path(name)).write_text(text)
        return self.path(name)

    def start(self, name, *flags):
        with open(self.path(f"{name}.log"), "wb") as log:
            self.processes.append(subprocess.Popen(
                [self.binaries / f"foretoken-{name}", *flags], stdout=log,
                stderr=log, cwd=ROOT))

    def logs(self):
        return {path.name: path.read_text(errors="replace")
                for path in pathlib.Path(self.folder.name).glob("*.log")}

    def get(self, path):
        try:
            connection = http.client.HTTPConnection("127.0.0.1", self.port)
            connection.request("GET", path)
            return connection.getresponse().status
        except OSError:
            return None

    def pages(self):
        return "".join(urllib.request.urlopen(url).read().decode()
                       for url in dict.fromkeys(self.metrics))

    def sample(self, name):
        return sum(float(value) for value in re.findall(
            rf"(?m)^{re.escape(name)}(?:{{[^}}]*}})? (\S+)$", self.pages()))


def head_and_body(port, name, **fields):
    body = json.dumps({"prompt": PROMPT, "temperature": 1, "ignore_eos": True,
                       "stream": True, **fields}).encode()
    return (f"POST /v1/completions HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n"
            f"Content-Type: application/json\r\nAuthorization: Bearer "
            f"{KEYS[name]}\r\nContent-Length: {len(body)}\r\n"
            "Connection: close\r\n\r\n").encode() + body


def flood(port, streams, keys, stop, counts):
    """Keeps streams under way; reads them as cheaply as it can."""
    KEYS.update(keys)
    selector = selectors.DefaultSelector()
    later, seed = [], 0  # when refused streams are tried again

    def open_stream():
        nonlocal seed
        seed += 1
        client = socket.create_connection(("127.0.0.1", port))
        client.sendall(head_and_body(port, "crowd", seed=seed, max_tokens=400))
        client.setblocking(False)
        selector.register(client, selectors.EVENT_READ, [b""])

    for _ in range(streams):
        open_stream()
    while not stop.is_set():
        while later and later[0] <= time.monotonic():
            later.pop(0)
            open_stream()
        # All of them twenty times a second: it is the servers that are to be
        # busy.
        time.sleep(0.05)
        for key, _ in selector.select(0):
            read = key.fileobj.recv(1 << 16)
            if key.data[0] is not None:
                key.data[0] += read  # the head, once
                if b"\r\n\r\n" in key.data[0]:
                    head = key.data[0].split(b"\r\n\r\n")[0].decode()
                    status = head[9:12]
                    wait = re.search(r"(?im)^Retry-After-Ms: (\d+)", head)
                    if status == "429" and wait:
                        counts["hints"] = counts.get("hints", 0) + 1
                        later.append(time.monotonic() + int(wait[1]) / 1000)
                        later.sort()
                    counts[status] = counts.get(status, 0) + 1
                    key.data[0] = None if status == "200" else b"refused"
            if not read:
                selector.unregister(key.fileobj)
                key.fileobj.close()
                if key.data[0] is None:
                    open_stream()


@contextlib.contextmanager
def crowd(servers, streams, running):
    """The first principal's streams, of which so many run."""
    # A process of its own: its reading must not slow the other's clock.
    context = multiprocessing.get_context("fork")
    with context.Manager() as manager:
        stop, counts = context.Event(), manager.dict()
        process = context.Process(
            target=flood, args=(servers.port, streams, KEYS, stop, counts))
        process.start()
        try:
            while servers.sample("foretoken_requests_running") < running:
                assert process.is_alive(), "the flood has ended"
                time.sleep(0.02)
            yield counts
        finally:
            stop.set()
            process.join()
        while servers.sample("foretoken_requests_running") > 0:
            time.sleep(0.02)


def ask(servers, name="single", seed=1, max_tokens=8):
    """Status, headers, time to first token, the same without the HTTP API, and
    text of one stream."""
    start = time.monotonic()
    with socket.create_connection(("127.0.0.1", servers.port)) as client:
        client.sendall(head_and_body(servers.port, name, seed=seed,
                                     max_tokens=max_tokens))
        read, first = b"", None
        while True:
            part = client.recv(1 << 16)
            read += part
            if first is None and b"\ndata: " in read:
                first = time.monotonic() - start
            if not part:
                break
    head, _, body = read.partition(b"\r\n\r\n")
    chunks = [json.loads(data)
              for data in re.findall(rb"(?m)^data: (\{.*\})\r?$", body)]
    text = "".join(chunk["choices"][0]["text"] for chunk in chunks
                   if "choices" in chunk)
    inside = [chunk["foretoken"]["timings"]["ttft_ms"] / 1e3
              for chunk in chunks if "timings" in chunk.get("foretoken", {})]
    return int(head[9:12]), head.decode(), (first, *inside), text


def quantile(values, share):
    """The smallest value that this share of all values does not exceed."""
    ordered = sorted(values)
    return ordered[max(0, -int(-len(ordered) * share // 1) - 1)]


class Passes:
    """Passes of the verifier in some windows."""

    def __init__(self):
        self.count, self.seconds, self.rows, self.time = 0, 0.0, 0, 0.0

    @contextlib.contextmanager
    def counted(self, servers):
        before = self.read(servers)
        yield
        self.count, self.seconds, self.rows, self.time = (
            total + after - then for total, after, then in zip(
                (self.count, self.seconds, self.rows, self.time),
                self.read(servers), before))

    def read(self, servers):
        return [*(servers.sample(name) for name in (
            "foretoken_pass_latency_seconds_count",
            "foretoken_pass_latency_seconds_sum",
            "foretoken_pass_rows_sum")), time.monotonic()]

    @property
    def mean(self):
        return self.seconds / self.count

    def __str__(self):
        return (f"{1e3 * self.mean:.1f} ms of {self.rows / self.count:.0f} rows, "
                f"{self.rows / self.time:.0f} rows/s")


def measure(arguments):
    alone, beside, seed = [], [], 0

    def window(servers, times):
        nonlocal seed
        for _ in range(arguments.requests):
            seed += 1
            status, _, seen, _ = ask(servers, seed=seed)
            assert status == 200, f"the single caller got {status}"
            times.append(seen)

    crowds, shared = Passes(), Passes()
    with Servers(arguments) as servers:
        window(servers, [])  # warm
        for _ in range(arguments.rounds):
            window(servers, alone)
            with crowd(servers, arguments.streams, arguments.streams):
                with crowds.counted(servers):
                    time.sleep(CROWD_ALONE)
                with shared.counted(servers):
                    window(servers, beside)
    for name, times in (("alone", alone), ("beside", beside)):
        inside = [each[1] for each in times]
        times[:] = [each[0] for each in times]
        print(f"{name:7} p50 {1e3 * quantile(times, 0.5):6.1f} ms, "
              f"p95 {1e3 * quantile(times, 0.95):6.1f} ms, "
              f"worst {1e3 * max(times):6.1f} ms ({len(times)} requests); "
              f"from orchestrator to verifier p50 "
              f"{1e3 * quantile(inside, 0.5):.1f} ms, "
              f"p95 {1e3 * quantile(inside, 0.95):.1f} ms")
    print(f"passes of the crowd alone: {crowds}; while the other asks: {shared}")
    more = quantile(beside, 0.95) - quantile(alone, 0.95)
    held = more <= PASSES * crowds.mean
    print(f"p95 grows by {1e3 * more:.1f} ms, "
          f"{more / crowds.mean:.1f} passes of the crowd alone "
          f"({more / shared.mean:.1f} of the shorter ones), at most {PASSES}: "
          f"{'it holds' if held else 'IT DOES NOT HOLD'}")
    return held


def attack(port, key, stop, counts):
    bodies = [(path, body.encode()) for path, body in hostile_bodies()]
    while not stop.is_set():
        for path, body in bodies:
            status = post(port, key, path, body)
            with counts.get_lock():
                counts.value += 1
            if stop.is_set():
                return
            if status == 429:
                time.sleep(0.1)


@contextlib.contextmanager
def attackers(servers, connections):
    """Two principals with so many connections each, at work."""
    context = multiprocessing.get_context("fork")
    stop, counts = context.Event(), context.Value("q", 0)
    processes = [context.Process(target=attack,
                                 args=(servers.port, KEYS[name], stop, counts))
                 for name in ("crowd", "second") for _ in range(connections)]
    for process in processes:
        process.start()
    try:
        while counts.value < len(processes):
            time.sleep(0.02)
        yield counts
    finally:
        stop.set()
        for process in processes:
            process.join()


def measure_hostile(arguments):
    chat = json.dumps({"max_tokens": 1, "messages": [
        {"role": "user", "content": LONG_WORD * (20_000 // len(LONG_WORD))}]})
    alone, beside, attacks, held = [], [], 0, True

    def window(servers, times):
        statuses = set()
        for _ in range(arguments.requests):
            start = time.monotonic()
            statuses.add(post(servers.port, KEYS["single"], "chat/completions",
                              chat.encode()))
            times.append(time.monotonic() - start)
        return statuses

    with Servers(arguments) as servers:
        wanted = window(servers, [])
        assert wanted == {200}, wanted
        for _ in range(arguments.rounds):
            held &= window(servers, alone) == wanted
            with attackers(servers, 4) as counts:
                held &= window(servers, beside) == wanted
            attacks += counts.value
    p95 = [quantile(times, 0.95) for times in (alone, beside)]
    print(f"chats of {len(chat)} bytes, answered {sorted(wanted, key=str)}: "
          f"p95 {1e3 * p95[0]:.1f} ms alone, {1e3 * p95[1]:.1f} ms beside two "
          f"hostile keys ({attacks} requests of theirs), ratio "
          f"{p95[1] / p95[0]:.2f}" + ("" if held else "; OTHER ANSWERS"))
    return held


def check(arguments):
    # Room for eight requests, of which the crowd may run six.
    with Servers(arguments, "--max-requests", "8", "--max-waiting-requests",
                 "8") as servers:
        _, _, _, wanted = ask(servers)
        assert wanted
        with crowd(servers, 64, 6) as counts:
            for _ in range(12):
                status, head, _, text = ask(servers)
                assert status == 200 and text == wanted, (head, text)
            deadline = time.monotonic() + 60
            while not counts.get("429") and time.monotonic() < deadline:
                time.sleep(0.02)
            answered = dict(counts)
        assert answered.get("200"), "the crowd was never served"
        assert answered.get("429"), "the crowd was never refused"
        assert answered["hints"] >= answered["429"], "a refusal without a hint"
        answers = [ask(servers, "limited") for _ in range(3)]
        assert [answer[0] for answer in answers] == [200, 200, 429], answers
        wait = re.search(r"(?im)^Retry-After: (\d+)", answers[2][1])
        assert wait and 1 <= int(wait[1]) <= 60, answers[2][1]
        assert ask(servers, "stranger")[0] == 401
        assert ask(servers)[0] == 200
        for name, outcome in (("single", "served"), ("crowd", "refused"),
                              ("limited", "refused")):
            assert re.search(
                r'(?m)^foretoken_principal_requests_total\{(?=[^}]*outcome="'
                rf'{outcome}")[^}}]*principal="{name}"[^}}]*\}} [1-9]',
                servers.pages()), f"{name} was not counted as {outcome}"
        pages = servers.pages()
        servers.stop()
        logs = servers.logs()
        assert any("round" in text for text in logs.values()), "no trace"
        for name, text in {**logs, "metrics": pages}.items():
            for key in KEYS.values():
                assert key not in text and key[-16:] not in text, name
        print(f"the crowd: {answered}; no key in {', '.join(sorted(logs))}")
    return True


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("binaries")
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--hostile", action="store_true")
    parser.add_argument("--local", action="store_true")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--requests", type=int, default=20)
    parser.add_argument("--streams", type=int, default=64)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--model", default=str(ROOT / "tools/demo/target"))
    arguments = parser.parse_args()
    arguments.binaries = pathlib.Path(arguments.binaries).resolve()
    run = (check if arguments.check else
           measure_hostile if arguments.hostile else measure)
    sys.exit(0 if run(arguments) else 1)


if __name__ == "__main__":
    main()
