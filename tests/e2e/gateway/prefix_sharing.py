"""Chats without extension fields find the pages of their earlier turns.

    prefix_sharing.py BINARIES [--local]

Starts a gateway, an orchestrator and a verifier (or foretoken-local, with a draft
model) with the demo model and the keys of two callers. From the second turn of a
chat on, `cached_tokens` must be every whole page of what the server has read and
written before; the other caller, who sends the same chat, must find nothing of it,
in the answer or in the servers' metrics. Then servers without keys: only a single
user's requests share pages, and only those that no proxy passed on.

Exit status 1: it does not hold.
"""

import argparse
import json
import pathlib
import re
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "tests/e2e"))
import free_ports  # noqa: E402

MODEL = "tools/demo/target"
DRAFT_MODEL = "tools/demo/draft"
TEMPLATE = "tests/golden/chat_templates/templates/chatml.jinja"
KEYS = {"alice": "key-of-alice-123456", "bob": "key-of-bob-12345678"}
GATEWAYS_TOKEN = "token-of-the-gateway"
PAGE_TOKENS = 32
REUSED = "foretoken_prefix_reused_tokens_total"
DRAFT_REUSED = "foretoken_draft_worker_prefix_reused_tokens_total"
QUESTIONS = ["Tell me a story about a fox and a river, and how they met one day "
             "in a very cold winter, when nothing was left to eat.",
             "What did the fox do after that?", "And the river?",
             "Was anybody else there?", "How does it end?"]


class Servers:
    """The services, with the flags of the HTTP API in `flags`."""

    def __init__(self, arguments, *flags, keys=False):
        self.folder = tempfile.TemporaryDirectory(prefix="foretoken-prefix-")
        self.binaries = pathlib.Path(arguments.binaries)
        self.processes = []
        pages = [f"127.0.0.1:{port}" for port in free_ports.in_a_row(3)]
        listed = "".join(f"{key} {name}\n" for name, key in KEYS.items())
        model = ["--model", MODEL]
        api = ["--chat-template", TEMPLATE, *flags]
        if keys:
            api += ["--api-key-file", self.write("keys", listed)]
        if arguments.local:
            pages = pages[:1]
            self.start("local", *model, "--threads", "1", "--draft-model",
                       DRAFT_MODEL, "--listen", f"unix:{self.path('local')}",
                       "--http-listen", "127.0.0.1:0", "--metrics-listen",
                       pages[0], *api)
        else:
            tokens = []
            if keys:
                tokens = ["--auth-token-file", self.write(
                    "tokens",
                    listed + GATEWAYS_TOKEN + " gateway speaks_for_others\n")]
                api += ["--orchestrator-token-file",
                        self.write("token", GATEWAYS_TOKEN + "\n")]
            self.start("verifier", *model, "--threads", "1",
                       "--metrics-listen", pages[0],
                       "--listen", f"unix:{self.path('verifier')}")
            self.start("orchestrator", "--tokenizer", MODEL, *tokens,
                       "--verifiers", f"unix:{self.path('verifier')}",
                       "--listen", f"unix:{self.path('orchestrator')}",
                       "--metrics-listen", pages[1])
            self.start("gateway", *model, "--listen", "127.0.0.1:0",
                       "--orchestrator", f"unix:{self.path('orchestrator')}",
                       "--metrics-listen", pages[2], *api)
        self.pages = [f"http://{page}/metrics" for page in pages]
        self.url = self.await_ready("local" if arguments.local else "gateway")

    def __enter__(self):
        return self

    def __exit__(self, *error):
        for process in self.processes:
            process.terminate()
        for process in self.processes:
            process.wait()
        self.folder.cleanup()

    def path(self, name):
        return str(pathlib.Path(self.folder.name) / name)

    def write(self, name, text):
        pathlib.Path(self.path(name)).write_text(text)
        return self.path(name)

    def log(self, name):
        return pathlib.Path(self.path(f"{name}.log")).read_text()

    def start(self, name, *flags):
        with open(self.path(f"{name}.log"), "wb") as log:
            self.processes.append(subprocess.Popen(
                [self.binaries / f"foretoken-{name}", *flags], stdout=log,
                stderr=log, cwd=ROOT))

    def await_ready(self, name):
        deadline = time.monotonic() + 120
        while time.monotonic() < deadline:
            found = re.search(r"(?:HTTP|listening) on 127\.0\.0\.1:(\d+)",
                              self.log(name))
            url = f"http://127.0.0.1:{found[1]}" if found else ""
            try:
                if url and urllib.request.urlopen(url + "/health"):
                    return url
            except OSError:
                pass
            time.sleep(0.05)
        logs = [path.read_text()
                for path in pathlib.Path(self.folder.name).glob("*.log")]
        self.__exit__()
        sys.exit("not ready:\n" + "\n".join(logs))

    def ask(self, path, body, key=None, **headers):
        headers["Content-Type"] = "application/json"
        if key:
            headers["Authorization"] = f"Bearer {key}"
        request = urllib.request.Request(
            self.url + path, json.dumps(body).encode(), headers)
        try:
            with urllib.request.urlopen(request) as answer:
                return json.load(answer)
        except urllib.error.HTTPError as error:
            sys.exit(f"{path}: {error.code}: {error.read().decode()}")

    def chat(self, messages, key=None, headers=None, **fields):
        """The answer and the number of its prompt's tokens that were cached."""
        answer = self.ask(
            "/v1/chat/completions",
            {"messages": messages, "temperature": 0, "max_tokens": 40,
             **fields}, key, **(headers or {}))
        details = answer["usage"]["prompt_tokens_details"]
        return answer, details["cached_tokens"]

    def tokens(self, messages, key=None):
        return self.ask("/tokenize", {"messages": messages}, key)["tokens"]

    def sample(self, name):
        """The metric in all processes; 0 where none of them has it."""
        text = "".join(urllib.request.urlopen(page).read().decode()
                       for page in self.pages)
        return sum(float(value) for value in re.findall(
            rf"(?m)^{re.escape(name)}(?:{{[^}}]*}})? (\S+)$", text))


def expect(got, want, what):
    if got != want:
        raise AssertionError(f"{what}: {got}, want {want}")


def whole_pages(known, prompt):
    """Tokens of `prompt` in whole pages that begin like `known`. Its last token
    is always computed."""
    same = 0
    for mine, theirs in zip(prompt[:-1], known):
        if mine != theirs:
            break
        same += 1
    return same // PAGE_TOKENS * PAGE_TOKENS


def talk(servers, key, first_finds=0, **fields):
    """A chat of all questions, each turn of which finds the turns before."""
    messages, known, earlier = [], [], 0
    for turn, question in enumerate(QUESTIONS):
        messages.append({"role": "user", "content": question})
        prompt = servers.tokens(messages, key)
        answer, cached = servers.chat(messages, key, **fields)
        if turn == 0:
            expect(cached, first_finds, "cached tokens of the first turn")
        else:
            expect(cached, whole_pages(known, prompt), f"turn {turn + 1}")
            # Nothing of the earlier prompts is missing but a last page.
            if cached <= earlier - PAGE_TOKENS:
                raise AssertionError(f"turn {turn + 1} found {cached} tokens "
                                     f"of {earlier}")
        text = answer["choices"][0]["message"]["content"]
        # The ids of the answer, from a request that shares nothing.
        same, cached = servers.chat(messages, key, cache_scope="",
                                    foretoken={"tokens": True})
        expect(cached, 0, "cached tokens of a request that wants none")
        expect(same["choices"][0]["message"]["content"], text, "the answer")
        ids = [token["id"]
               for token in same["choices"][0]["foretoken"]["tokens"]]
        # The last token's KV is never computed.
        known = prompt + ids[:answer["usage"]["completion_tokens"] - 1]
        earlier = len(prompt)
        messages.append({"role": "assistant", "content": text})
    return messages[:-1]


def check_callers(servers, with_drafts):
    alice, bob = KEYS["alice"], KEYS["bob"]
    whole = talk(servers, alice)
    # What the second caller sends finds nothing of the first's: neither its
    # answer nor the engines count a token that was not computed.
    before = servers.sample(REUSED), servers.sample(DRAFT_REUSED)
    _, cached = servers.chat(whole, bob, user="alice",
                             safety_identifier="alice",
                             **({"speculation": "draft_model"}
                                if with_drafts else {}))
    expect(cached, 0, "cached tokens of another caller")
    expect((servers.sample(REUSED), servers.sample(DRAFT_REUSED)), before,
           "pages that another caller's request found")
    # Then it finds its own.
    prompt = servers.tokens(whole, bob)
    _, cached = servers.chat(whole, bob)
    expect(cached, whole_pages(prompt, prompt), "a request that is repeated")
    # Names are the callers' own, too.
    _, cached = servers.chat(whole, alice, prompt_cache_key="x")
    expect(cached, 0, "a new prompt_cache_key")
    _, cached = servers.chat(whole, alice, prompt_cache_key="x")
    expect(cached, whole_pages(prompt, prompt), "a known prompt_cache_key")
    _, cached = servers.chat(whole, bob, prompt_cache_key="x")
    expect(cached, 0, "another caller's prompt_cache_key")
    _, cached = servers.chat(whole, bob, cache_scope="own:alice")
    expect(cached, 0, "a cache scope that is called like that of pages")
    if with_drafts:
        before = servers.sample(DRAFT_REUSED)
        servers.chat(whole, bob, speculation="draft_model")
        if not servers.sample(DRAFT_REUSED) > before:
            raise AssertionError("the draft model found no page")


def check_history(servers):
    """Pages alone are shared without a scope."""
    talk(servers, KEYS["alice"])
    expect(servers.sample("foretoken_trie_scopes"), 0, "scopes with a history")


def check_single_user(servers):
    whole = talk(servers, None)
    prompt = servers.tokens(whole)
    for name, value in (("X-Forwarded-For", "192.0.2.1"), ("Via", "1.1 proxy"),
                        ("Forwarded", "for=192.0.2.1"),
                        ("X-Real-IP", "192.0.2.1"),
                        ("Origin", "http://127.0.0.1:1")):
        _, cached = servers.chat(whole, headers={name: value})
        expect(cached, 0, f"a request with {name}")
    _, cached = servers.chat(whole)
    expect(cached, whole_pages(prompt, prompt), "a request that is repeated")
    for want in 0, whole_pages(prompt, prompt):
        _, cached = servers.chat(whole, prompt_cache_key="x")
        expect(cached, want, "a prompt_cache_key")
    for fields in {"prompt_cache_key": "x"}, {"cache_scope": "x"}:
        _, cached = servers.chat(whole, headers={"Via": "1.1 proxy"}, **fields)
        expect(cached, 0, f"{fields} of a request with Via")


def check_nothing(servers, key=None):
    """The same request again and again finds nothing."""
    messages = [{"role": "user", "content": QUESTIONS[0]}]
    for _ in range(2):
        _, cached = servers.chat(messages, key)
        expect(cached, 0, "cached tokens")
        if key is None:
            _, cached = servers.chat(messages, prompt_cache_key="x")
            expect(cached, 0, "a prompt_cache_key without keys")
    expect(servers.sample(REUSED), 0, "pages that were found")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("binaries")
    parser.add_argument("--local", action="store_true")
    arguments = parser.parse_args()
    with Servers(arguments, keys=True) as servers:
        check_callers(servers, with_drafts=arguments.local)
    if arguments.local:
        with Servers(arguments, keys=True) as servers:
            check_history(servers)
    with Servers(arguments, "--prefix-sharing=false", keys=True) as servers:
        check_nothing(servers, KEYS["alice"])
    with Servers(arguments) as servers:
        check_nothing(servers)
    with Servers(arguments, "--single-user") as servers:
        name = "local" if arguments.local else "gateway"
        expect("share prefix pages" in servers.log(name), True, "the log")
        check_single_user(servers)
    print("pages are shared by each caller's own requests alone")


main()
