#!/usr/bin/env python3
"""Shows the Grafana dashboards of the chart without Grafana.

    serve.py [--listen 127.0.0.1:8081] [--prometheus http://127.0.0.1:9106]
             [--password-file FILE] [--scrape-interval SECONDS]
             [--dashboards FOLDER]

Serves one page on the loopback interface, the dashboards' JSON, and the answers of
Prometheus to the queries of their panels and to no others:

    GET /                           the page and its parts
    GET /api/dashboards             [{uid, title}]
    GET /api/dashboards/UID         the dashboard's file
    GET /api/dashboards/UID/state   which services are scraped, the variables' values
    GET /api/dashboards/UID/panels/ID?range=SECONDS&points=N[&var-NAME=VALUE...]
                                    the panel's series over the last SECONDS

--password-file has the password of Prometheus' user `foretoken`, if it asks for one.
--scrape-interval is Prometheus' own, from which $__rate_interval follows (2).
tools/up --dashboards starts both.
"""

import argparse
import contextlib
import http.server
import json
import pathlib
import re
import socket
import sys
import threading
import time
import urllib.parse

from panels import BadRequest, Catalog, NotFound, Window, legend, natural
from prometheus import Failure, Prometheus

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
MAX_CONNECTIONS = 64
IDLE_S = 5
MAX_QUERY_CHARS = 4096

# All that is served of the page; a path is looked up here, never in a folder.
PARTS = {
    "/": ("index.html", "text/html; charset=utf-8"),
    "/page.css": ("page.css", "text/css; charset=utf-8"),
    **{f"/{name}": (name, "text/javascript; charset=utf-8")
       for name in ("app.js", "panel.js", "plots.js", "draw.js", "units.js")},
}

POLICY = "; ".join((
    "default-src 'none'", "script-src 'self'", "style-src 'self'",
    "connect-src 'self'", "img-src data:", "base-uri 'none'", "form-action 'none'",
    "frame-ancestors 'none'", "require-trusted-types-for 'script'",
    "trusted-types 'none'"))

# Another name could be one that a page of a stranger resolves to 127.0.0.1.
_LOOPBACK = re.compile(r"(127\.0\.0\.1|localhost|\[::1\])(:\d{1,5})?")
_PANEL = re.compile(r"/api/dashboards/([\w-]{1,64})/panels/(\d{1,6})")
_STATE = re.compile(r"/api/dashboards/([\w-]{1,64})/state")
_DASHBOARD = re.compile(r"/api/dashboards/([\w-]{1,64})")


def number(parameters, name):
    """A whole number that must be given once."""
    values = parameters.pop(name, [])
    if len(values) != 1 or not re.fullmatch(r"\d{1,9}", values[0], re.ASCII):
        raise BadRequest(f"{name}: want one whole number")
    return int(values[0])


def variables(parameters):
    """{variable: values} of var-NAME; anything else is refused."""
    chosen = {}
    for name, values in parameters.items():
        if not name.startswith("var-"):
            raise BadRequest(f"unknown parameter {name[:80]!r}")
        chosen[name.removeprefix("var-")] = values
    return chosen


class Answers:
    """What the paths below /api answer. Threads may share it."""

    def __init__(self, catalog, prometheus, scrape_s, clock=time.time):
        self._catalog = catalog
        self._prometheus = prometheus
        self._scrape_s = scrape_s
        self._clock = clock

    def api(self, path, query):
        """The body of an answer: bytes of JSON."""
        if len(query) > MAX_QUERY_CHARS:
            raise BadRequest("the query is too long")
        try:
            parameters = urllib.parse.parse_qs(query, keep_blank_values=True,
                                               max_num_fields=64)
        except ValueError as error:
            raise BadRequest("too many parameters") from error
        if match := _PANEL.fullmatch(path):
            return self._json(self._panel(match[1], int(match[2]), parameters))
        if parameters:
            raise BadRequest("no parameters are taken here")
        if match := _STATE.fullmatch(path):
            return self._json(self._state(self._catalog.get(match[1])))
        if match := _DASHBOARD.fullmatch(path):
            return self._catalog.get(match[1]).text.encode()
        if path == "/api/dashboards":
            return self._json([{"uid": one.uid, "title": one.title}
                               for one in self._catalog])
        raise NotFound("no such path")

    @staticmethod
    def _json(value):
        return json.dumps(value, allow_nan=False, separators=(",", ":")).encode()

    def _panel(self, uid, identifier, parameters):
        dashboard = self._catalog.get(uid)
        window = Window(self._clock(), number(parameters, "range"),
                        number(parameters, "points"), self._scrape_s)
        series, left_out = [], 0
        queries = dashboard.queries(identifier, window, variables(parameters))
        for target, query in queries:
            found, more = self._prometheus.series(query, window)
            left_out += more
            heatmap = target.get("format") == "heatmap"
            named = [(legend(target.get("legendFormat"), labels, heatmap), values)
                     for labels, values in found]
            named.sort(key=lambda one: natural(one[0]))
            series += [{"name": name, "values": values} for name, values in named]
        return {"start": window.start, "step": window.step, "count": window.count,
                "queries": [query for _, query in queries], "series": series,
                "left_out": left_out}

    def _state(self, dashboard):
        values = {one.name: sorted(self._prometheus.label_values(one.metric,
                                                                 one.of_label))
                  for one in dashboard.variables}
        return {"scrape_interval": self._scrape_s,
                "variables": values,
                "targets": [{"job": labels.get("job", ""),
                             "instance": labels.get("instance", ""),
                             "up": value == 1}
                            for labels, value in self._prometheus.now("up")]}


class Handler(http.server.BaseHTTPRequestHandler):
    """One connection."""

    protocol_version = "HTTP/1.1"
    server_version = "foretoken-dashboards"
    sys_version = ""
    timeout = IDLE_S

    # pylint: disable=invalid-name
    def do_GET(self):
        """Answers; the body of an error is {"error", "unreachable"}."""
        self._respond(with_body=True)

    def do_HEAD(self):
        """The same without a body."""
        self._respond(with_body=False)

    def _respond(self, with_body):
        kind = "application/json"
        self.server.begin(self.connection)
        try:
            path, _, query = self.path.partition("?")
            if not _LOOPBACK.fullmatch(self.headers.get("Host", "")):
                status, body = 403, {"error": "want a Host of the loopback interface"}
                # Connections of a stranger's page are not kept.
                self.close_connection = True
            elif path in self.server.parts:
                body, kind = self.server.parts[path]
                status = 200
            else:
                status, body = 200, self.server.answers.api(path, query)
        except BadRequest as error:
            status, body = 400, {"error": str(error)}
        except NotFound as error:
            status, body = 404, {"error": str(error)}
        except Failure as error:
            status, body = 502, {"error": str(error),
                                 "unreachable": error.unreachable}
        if isinstance(body, dict):
            body = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        for name, value in (("Content-Security-Policy", POLICY),
                            ("X-Content-Type-Options", "nosniff"),
                            ("Referrer-Policy", "no-referrer"),
                            ("Cross-Origin-Resource-Policy", "same-origin"),
                            ("Cross-Origin-Opener-Policy", "same-origin"),
                            ("Cache-Control", "no-store")):
            self.send_header(name, value)
        if self.close_connection:
            self.send_header("Connection", "close")
        self.end_headers()
        if with_body:
            self.wfile.write(body)
        self.server.end(self.connection)

    def log_message(self, format, *args):  # pylint: disable=redefined-builtin
        """No line for a request."""


class Server(http.server.ThreadingHTTPServer):
    """Listens on the loopback interface; port 0 is one that is free. A connection above
    MAX_CONNECTIONS takes the place of the one that has waited longest for a request;
    where all are being answered, it is closed at once."""

    daemon_threads = True
    request_queue_size = MAX_CONNECTIONS

    def __init__(self, port, answers):
        self.answers = answers
        self.parts = {path: ((HERE / "page" / name).read_bytes(), kind)
                      for path, (name, kind) in PARTS.items()}
        self._lock = threading.Lock()
        # Connections, and those of them without a request, oldest first.
        self._open, self._idle = set(), {}
        super().__init__(("127.0.0.1", port), Handler)

    def begin(self, connection):
        """A request has come."""
        with self._lock:
            self._idle.pop(connection, None)

    def end(self, connection):
        """It is answered."""
        with self._lock:
            if connection in self._open:
                self._idle[connection] = None

    def process_request(self, request, client_address):
        """Starts a thread, or closes the connection."""
        with self._lock:
            full = len(self._open) >= MAX_CONNECTIONS
            oldest = next(iter(self._idle), None) if full else None
            if oldest is not None:
                self._forget(oldest)
                full = False
            if not full:
                self._open.add(request)
                self._idle[request] = None
        if oldest is not None:
            # Its thread sees the end and closes it.
            with contextlib.suppress(OSError):
                oldest.shutdown(socket.SHUT_RDWR)
        if full:
            self.shutdown_request(request)
            return
        super().process_request(request, client_address)

    def _forget(self, connection):
        self._open.discard(connection)
        self._idle.pop(connection, None)

    def process_request_thread(self, request, client_address):
        """Serves a connection until its end."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            with self._lock:
                self._forget(request)

    def handle_error(self, request, client_address):
        """Clients that go away are usual; anything else is logged."""
        if not isinstance(sys.exc_info()[1], OSError):
            super().handle_error(request, client_address)


def loopback_port(text):
    """The port of 127.0.0.1:PORT."""
    match = re.fullmatch(r"(?:127\.0\.0\.1|localhost):(\d{1,5})", text)
    if match is None or int(match[1]) > 65535:
        raise argparse.ArgumentTypeError(f"{text}: want 127.0.0.1:PORT")
    return int(match[1])


def scrape_interval(text):
    """Whole seconds, at least one."""
    if not re.fullmatch(r"\d{1,4}", text) or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text}: want 1..9999")
    return int(text)


def main():
    """Serves until it is stopped."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--listen", type=loopback_port, default=8081,
                        metavar="127.0.0.1:PORT")
    parser.add_argument("--prometheus", default="http://127.0.0.1:9106",
                        metavar="URL")
    parser.add_argument("--password-file", type=pathlib.Path, metavar="FILE")
    parser.add_argument("--scrape-interval", type=scrape_interval, default=2,
                        metavar="SECONDS")
    parser.add_argument("--dashboards", type=pathlib.Path, metavar="FOLDER",
                        default=ROOT / "helm/foretoken/dashboards")
    options = parser.parse_args()
    try:
        password = (options.password_file.read_text(encoding="utf-8").strip()
                    if options.password_file else None)
        answers = Answers(Catalog(options.dashboards),
                          Prometheus(options.prometheus, password),
                          options.scrape_interval)
        server = Server(options.listen, answers)
    except (OSError, ValueError, KeyError) as error:
        sys.exit(f"dashboards: {error}")
    print(f"dashboards on http://127.0.0.1:{server.server_address[1]}/", flush=True)
    try:
        server.serve_forever()
    except KeyboardInterrupt:
        pass


if __name__ == "__main__":
    main()
