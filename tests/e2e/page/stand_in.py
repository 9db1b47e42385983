"""A stand-in for the gateway: the page's two requests in their SSE form.

What a reply says and how it was drafted is made up from its prompt, the same
every time: `off` drafts nothing, the other modes draft from several sources.
"""

import base64
import hashlib
import http.server
import json
import pathlib
import random
import re
import threading

ROOT = pathlib.Path(__file__).resolve().parents[3]
PAGE = ROOT / "services/gateway/page/index.html"
DRAFTERS = ("fused_request", "fused_history", "fused_prior", "fused_recycled",
            "draft_model")


def page_text():
    """The page that services/gateway/page/embed.cmake joins of its parts."""
    return re.sub(r"^{{([a-z]+\.(?:css|js))}}\n",
                  lambda line: (PAGE.parent / line[1]).read_text("utf-8"),
                  PAGE.read_text("utf-8"), flags=re.MULTILINE)


def hash_between(page, opening, closing):
    """The source of a policy that allows what stands between two tags."""
    text = page.split(opening, 1)[1].split(closing, 1)[0]
    digest = hashlib.sha256(text.encode()).digest()
    return f"'sha256-{base64.b64encode(digest).decode()}'"


def policy(page):
    """The policy that services/gateway/page/embed.cmake makes of a page."""
    script = hash_between(page, '<script type="module">', "</script>")
    style = hash_between(page, "<style>", "</style>")
    return "; ".join((
        "default-src 'none'", f"script-src {script}", f"style-src {style}",
        "connect-src 'self'", "img-src data:", "base-uri 'none'",
        "form-action 'none'", "frame-ancestors 'none'",
        "require-trusted-types-for 'script'", "trusted-types 'none'"))


def pieces(text):
    """`text` as tokens: words with the space before them, marks, breaks."""
    return re.findall(r"\n| ?\w+| ?[^\w\s]|\s", text)


def rounds_of(text, drafts):
    """[(what a round committed: [(piece, drafter)], its tree)]; the first is
    prefill's, without a tree."""
    rest = pieces(text)
    chance = random.Random(text)
    rounds = [([(rest.pop(0), "target")], None)]
    while rest:
        accepted = chance.choice((0, 1, 1, 2, 3, 4)) if drafts else 0
        accepted = min(accepted, len(rest) - 1)
        source = chance.choice(DRAFTERS)
        nodes, committed, parent = [], [], -1
        for depth in range(accepted):
            nodes.append({"text": rest[depth], "parent": parent,
                          "drafter": source, "accepted": True,
                          "probability": round(0.9 ** (depth + 1), 3)})
            committed.append((rest[depth], source))
            for _ in range(chance.choice((0, 1, 2))):
                nodes.append({"text": chance.choice(rest), "parent": parent,
                              "drafter": chance.choice(DRAFTERS),
                              "accepted": False,
                              "probability": round(0.3 ** (depth + 1), 3)})
            parent = next(i for i in range(len(nodes) - 1, -1, -1)
                          if nodes[i]["accepted"])
        if drafts:
            for _ in range(chance.choice((0, 1, 3))):
                nodes.append({"text": chance.choice(rest), "parent": parent,
                              "drafter": chance.choice(DRAFTERS),
                              "accepted": False, "probability": 0.05})
                parent = len(nodes) - 1
        committed.append((rest[accepted], "target"))
        del rest[:accepted + 1]
        rounds.append((committed, nodes))
    return rounds


class Gateway:
    """Serves until it is closed. `replies` gives what is said to a prompt:
    text; a list of chunks to be sent as they are; or a status and an error: its
    message, or all of it."""

    def __init__(self, replies):
        self.replies = replies
        self.requests = []           # bodies, as they came
        self.left = threading.Event()  # a client went away while being written to
        self.go_on = threading.Event()  # set: replies are not held back
        self.go_on.set()
        self.pause_s = {}            # between rounds, by mode
        self.key = None              # that callers must have
        self.models = [{"id": "demo", "object": "model", "created": 0,
                        "owned_by": "foretoken", "max_model_len": 2048,
                        "foretoken": {"modes": ["auto", "off", "prompt_lookup"],
                                      "default_mode": "auto"}}]
        gateway = self

        class Handler(http.server.BaseHTTPRequestHandler):
            """One request."""
            protocol_version = "HTTP/1.1"

            def log_message(self, *_):
                pass

            def answer(self, status, kind, body, **headers):
                """Sends a whole answer."""
                self.send_response(status)
                self.send_header("content-type", kind)
                self.send_header("content-length", str(len(body)))
                for name, value in headers.items():
                    self.send_header(name.replace("_", "-"), value)
                self.end_headers()
                self.wfile.write(body)

            def refused(self):
                """Answers a caller without the key; false if it has it."""
                if gateway.key is None or self.headers.get(
                        "authorization") == f"Bearer {gateway.key}":
                    return False
                self.answer(401, "application/json", json.dumps(
                    {"error": {"message": "Who are you?"}}).encode())
                return True

            def do_GET(self):  # pylint: disable=invalid-name
                """The page and the models."""
                if self.path != "/" and self.refused():
                    return
                if self.path == "/":
                    page = page_text()
                    self.answer(200, "text/html; charset=utf-8", page.encode(),
                                content_security_policy=policy(page))
                elif self.path == "/v1/models":
                    self.answer(200, "application/json", json.dumps(
                        {"object": "list", "data": gateway.models}).encode())
                else:
                    self.answer(404, "text/plain", b"")

            def do_POST(self):  # pylint: disable=invalid-name
                """A reply."""
                body = json.loads(self.rfile.read(
                    int(self.headers["content-length"])))
                if self.refused():
                    return
                gateway.requests.append(body)
                reply = gateway.replies(body)
                if isinstance(reply, tuple):
                    status, error = reply
                    if isinstance(error, str):
                        error = {"message": error}
                    self.answer(status, "application/json",
                                json.dumps({"error": error}).encode(),
                                retry_after="7")
                    return
                self.send_response(200)
                self.send_header("content-type", "text/event-stream")
                self.send_header("connection", "close")
                self.end_headers()
                self.close_connection = True
                try:
                    chunks = (reply if isinstance(reply, list)
                              else gateway.chunks(reply, body))
                    for chunk in chunks:
                        data = chunk if isinstance(chunk, str) else json.dumps(
                            chunk)
                        self.wfile.write(f"data: {data}\n\n".encode())
                        self.wfile.flush()
                        gateway.go_on.wait()
                except OSError:
                    gateway.left.set()

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0),
                                                       Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_port}/"
        self._thread = threading.Thread(target=self._server.serve_forever)
        self._thread.start()

    def close(self):
        """Ends it."""
        self.go_on.set()
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def chunks(self, text, body):
        """A stream that says `text`, or without an end for None."""
        mode = body["speculation"]
        endless = text is None
        text = text or "And so on, and on, word for word. "
        # The same ids in every mode, whatever is drafted.
        ids = {piece: 100 + i
               for i, piece in enumerate(dict.fromkeys(pieces(text)))}
        number = ids.get
        drafted = accepted = count = 0
        by_drafter = {}
        while True:
            for committed, nodes in rounds_of(text, mode != "off"):
                extra = {"tokens": [{"id": number(piece), "text": piece,
                                     "drafter": drafter}
                                    for piece, drafter in committed]}
                if nodes is not None:
                    count += 1
                    drafted += len(nodes)
                    accepted += len(committed) - 1
                    for node in nodes:
                        tally = by_drafter.setdefault(node["drafter"], [0, 0])
                        tally[0] += 1
                        tally[1] += node["accepted"]
                    extra["rounds"] = [{
                        "nodes": [{"id": number(node["text"]), **node}
                                  for node in nodes],
                        "committed": [number(piece) for piece, _ in committed],
                    }]
                content = "".join(piece for piece, _ in committed)
                yield {"choices": [{"index": 0, "delta": {"content": content},
                                    "finish_reason": None}],
                       "foretoken": extra}
                threading.Event().wait(self.pause_s.get(mode, 0))
            if not endless:
                break
        yield {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}
        yield {"choices": [], "usage": {}, "foretoken": {
            "mode": mode, "accept_length": 1 + accepted / max(1, count),
            "rounds": count, "drafted_tokens": drafted,
            "accepted_tokens": accepted,
            "by_drafter": [{"drafter": name, "drafted_tokens": tally[0],
                            "accepted_tokens": tally[1]}
                           for name, tally in by_drafter.items()],
            "timings": {"ttft_ms": 12.5, "decode_tokens_per_s": 0,
                        "draft_ms": 1, "verify_ms": 2, "total_ms": 30},
            "seed": body.get("seed", 7)}}
        yield "[DONE]"
