"""The server of tools/dashboards: which queries it sends to a Prometheus, and what it
refuses. A stand-in for Prometheus keeps the queries that reach it.
"""

import base64
import contextlib
import http.client
import http.server
import json
import socket
import sys
import threading
import unittest
import urllib.parse

from tools import ROOT

sys.path.insert(0, str(ROOT / "tools/dashboards"))
# pylint: disable=wrong-import-position
import panels  # noqa: E402
import prometheus  # noqa: E402
import serve  # noqa: E402

DASHBOARDS = ROOT / "helm/foretoken/dashboards"
NOW = 1_700_000_003.5
SCRAPE_S = 2
PANEL = "/api/dashboards/foretoken/panels/2"


# Data of other shapes than those of Prometheus.
UNUSUAL = [None, 1, [], {"result": None}, {"result": {"a": 1}}, {"result": [1]},
           {"result": [{"metric": {}}]}, {"result": [{"metric": [], "values": []}]},
           *({"result": [{"metric": {}, "values": values}]} for values in (
               1, [1], [[1]], [["1", "2"]], [[1, None]], [[1, []]],
               [[float("inf"), "1"]]))]


class StandIn(http.server.BaseHTTPRequestHandler):
    """Answers like Prometheus; `server.answer` replaces an answer."""

    def do_GET(self):  # pylint: disable=invalid-name
        """Keeps (path, parameters) in server.asked."""
        path, _, query = self.path.partition("?")
        parameters = dict(urllib.parse.parse_qsl(query))
        self.server.asked.append((path, parameters))
        if self.server.password is not None and self.headers["Authorization"] != (
                "Basic " + base64.b64encode(self.server.password.encode()).decode()):
            self.server.answer = (401, b"Unauthorized")
        status, body = self.server.answer or (200, {
            "status": "success", "data": self.usual(path, parameters)})
        if isinstance(body, dict):
            body = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    @staticmethod
    def usual(path, parameters):
        """Two series, one with a number that JSON does not know."""
        if path == "/api/v1/query_range":
            start, step = int(parameters["start"]), int(parameters["step"])
            return {"result": [
                {"metric": {"code": "10", "le": "+Inf"},
                 "values": [[start, "1.5"], [start + 2 * step, "NaN"]]},
                {"metric": {"code": "2", "le": "1"},
                 "values": [[start + step, "+Inf"], [start + 2 * step, "3"]]}]}
        if path == "/api/v1/query":
            return {"result": [{"metric": {"job": "crest", "instance": "a:1"},
                                "value": [0, "0"]}]}
        return ["live", "elsewhere"]

    def log_message(self, format, *args):  # pylint: disable=redefined-builtin
        """Says nothing."""


def started(server):
    """The server, in a thread of its own."""
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    return server


class ServerTest(unittest.TestCase):
    """A page's server before a stand-in, for all tests."""

    @classmethod
    def setUpClass(cls):
        cls.stand_in = started(http.server.ThreadingHTTPServer(("127.0.0.1", 0),
                                                               StandIn))
        answers = serve.Answers(
            panels.Catalog(DASHBOARDS),
            prometheus.Prometheus("http://127.0.0.1:"
                                  f"{cls.stand_in.server_address[1]}"),
            SCRAPE_S, clock=lambda: NOW)
        cls.server = started(serve.Server(0, answers))
        for server in (cls.stand_in, cls.server):
            cls.addClassCleanup(server.server_close)
            cls.addClassCleanup(server.shutdown)

    def setUp(self):
        self.stand_in.asked = []
        self.stand_in.answer = self.stand_in.password = None

    def get(self, path, method="GET", host=None):
        """(status, headers, body) of a path that is sent as it is."""
        connection = http.client.HTTPConnection(*self.server.server_address,
                                                timeout=30)
        connection.putrequest(method, path, skip_host=host is not None)
        if host is not None:
            connection.putheader("Host", host)
        connection.endheaders()
        answer = connection.getresponse()
        body = answer.read()
        connection.close()
        return answer.status, answer.headers, body

    def assert_refused(self, status, path, **more):
        """A refusal with a reason, of which Prometheus does not hear."""
        got, _, body = self.get(path, **more)
        self.assertEqual(got, status, path)
        self.assertTrue(json.loads(body)["error"], path)
        self.assertEqual(self.stand_in.asked, [], path)

    def test_every_panel_asks_its_own_queries(self):
        """With Grafana's variables replaced, and nothing else changed."""
        for path in sorted(DASHBOARDS.glob("*.json")):
            dashboard = json.loads(path.read_text(encoding="utf-8"))
            for panel in dashboard["panels"]:
                if panel["type"] == "row":
                    continue
                self.stand_in.asked = []
                status, _, _ = self.get(
                    f"/api/dashboards/{dashboard['uid']}/panels/{panel['id']}"
                    "?range=300&points=100&var-namespace=live")
                self.assertEqual(status, 200)
                self.assertEqual(
                    [parameters["query"] for _, parameters in self.stand_in.asked],
                    [target["expr"].replace("$namespace", "live")
                     .replace("$__rate_interval", "8s")
                     for target in panel["targets"]])

    def test_panels_are_of_kinds_that_the_page_draws(self):
        """And name no mapping or colour that it does not know."""
        script = (ROOT / "tools/dashboards/page/plots.js").read_text()
        kinds = script[script.index("export const KINDS"):]
        style = (ROOT / "tools/dashboards/page/page.css").read_text()
        units = (ROOT / "tools/dashboards/page/units.js").read_text()
        for path in DASHBOARDS.glob("*.json"):
            for panel in json.loads(path.read_text(encoding="utf-8"))["panels"]:
                if panel["type"] == "row":
                    continue
                self.assertRegex(kinds, rf"\b{panel['type'].split('-')[-1]}\b")
                defaults = panel["fieldConfig"]["defaults"]
                self.assertFalse(panel["fieldConfig"]["overrides"], panel["title"])
                self.assertIn(defaults["unit"].replace("short", "SHORT"), units)
                colours = [step["color"] for step in
                           defaults.get("thresholds", {}).get("steps", [])]
                for mapping in defaults.get("mappings", []):
                    self.assertEqual(mapping["type"], "value")
                    colours += [one["color"] for one in mapping["options"].values()]
                for colour in colours:
                    self.assertIn(f".t-{colour}", style)

    def test_series_have_names_and_equal_lengths(self):
        """Values that are no finite numbers are null; names are sorted as numbers."""
        status, _, body = self.get("/api/dashboards/foretoken/panels/7"
                                   "?range=300&points=100")
        answer = json.loads(body)
        self.assertEqual((status, answer["step"], answer["count"]), (200, 5, 61))
        self.assertEqual(answer["start"] % 5, 0)
        self.assertEqual([one["name"] for one in answer["series"]], ["2", "10"])
        first, second = (one["values"] for one in answer["series"])
        self.assertEqual(first[:4], [None, None, 3.0, None])
        self.assertEqual(second[:4], [1.5, None, None, None])
        self.assertEqual({len(first), len(second)}, {61})

    def test_a_heatmap_has_the_bounds_of_its_buckets(self):
        """Whatever its legend says."""
        _, _, body = self.get("/api/dashboards/foretoken/panels/20"
                              "?range=300&points=50")
        self.assertEqual([one["name"] for one in json.loads(body)["series"]],
                         ["1", "+Inf"])

    def test_state_names_targets_and_values(self):
        """Which services are scraped, and the choices of variables."""
        status, _, body = self.get("/api/dashboards/foretoken/state")
        self.assertEqual((status, json.loads(body)), (200, {
            "scrape_interval": SCRAPE_S,
            "variables": {"namespace": ["elsewhere", "live"]},
            "targets": [{"job": "crest", "instance": "a:1", "up": False}]}))

    def test_other_queries_are_refused(self):
        """There is no way to send PromQL."""
        usual = f"{PANEL}?range=300&points=100"
        for path in (f"{usual}&query=up", f"{usual}&expr=up", f"{usual}&query=",
                     f"{usual}&match[]=up", f"{usual}&step=1", f"{usual}&start=1",
                     f"{usual}&var-datasource=x", f"{usual}&var-__rate_interval=1y",
                     f"{usual}&var-namespace=", f"{usual}&var-namespace=a%22%7D",
                     f"{usual}&var-namespace=a%0A", f"{usual}&var-namespace=.*",
                     f"{usual}&var-namespace=a|b", f"{usual}&var-namespace=a%5C",
                     f"{usual}&var-namespace={'a' * 254}",
                     usual + "&var-namespace=a" * 33, usual + "&x=1" * 70,
                     f"{usual}&var-namespace={'a,' * 3000}",
                     "/api/dashboards?query=up",
                     "/api/dashboards/foretoken/state?query=up"):
            self.assert_refused(400, path)
        for path in ("/api/v1/query?query=up", "/api/v1/query_range?query=up",
                     "/api/v1/status/config", "/api/dashboards/foretoken/panels/1",
                     "/metrics", "/-/quit", "/graph", "http://127.0.0.1:9106/graph"):
            self.assertIn(self.get(path)[0], (400, 404), path)
            self.assertEqual(self.stand_in.asked, [], path)

    def test_unknown_panels_are_refused(self):
        """Rows, too, which have no queries."""
        for path in ("/api/dashboards/foretoken/panels/99999",
                     "/api/dashboards/foretoken/panels/1",
                     "/api/dashboards/other/panels/2"):
            self.assert_refused(404, f"{path}?range=300&points=100")
        for path in ("/api/dashboards/other", "/api/dashboards/other/state",
                     "/api/dashboards/foretoken/panels/", "/api/dashboards/"):
            self.assert_refused(404, path)

    def test_ranges_and_points_are_bounded(self):
        """Whole numbers within bounds, once each."""
        for query in ("range=59&points=100", "range=604801&points=100",
                      "range=300&points=19", "range=300&points=1001",
                      "range=-300&points=100", "range=3e2&points=100",
                      "range=300.5&points=100", "range=9999999999&points=100",
                      "range=%D9%A3%D9%A0%D9%A0&points=100", "range=300", "points=100",
                      "range=300&range=300&points=100", "range=&points=100", ""):
            self.assert_refused(400, f"{PANEL}?{query}")
        for seconds, points in ((60, 20), (604800, 1000), (60, 1000), (604800, 20)):
            self.stand_in.asked = []
            self.assertEqual(self.get(f"{PANEL}?range={seconds}&points={points}")[0],
                             200)
            (_, asked), = self.stand_in.asked
            start, end = int(asked["start"]), int(asked["end"])
            self.assertLessEqual(end, NOW)
            self.assertLessEqual(end - start, seconds)
            self.assertLessEqual((end - start) / int(asked["step"]), 1000)
            self.assertGreaterEqual(int(asked["step"]), SCRAPE_S)

    def test_no_path_leaves_the_page(self):
        """Files are looked up by the whole path."""
        for path in ("/../serve.py", "/..%2fserve.py", "/%2e%2e/serve.py",
                     "/page.css/../../serve.py", "//etc/passwd", "/etc/passwd",
                     "/./page.css", "/page.css/", "/app.js%00", "/index.html",
                     "/page/index.html", "/..\\serve.py",
                     "/api/dashboards/../../../values.yaml",
                     "/api/dashboards/..%2f..%2fvalues", "/api/dashboards/%2e%2e",
                     "/api/dashboards/foretoken.json"):
            self.assert_refused(404, path)

    def test_the_page_has_a_strict_policy(self):
        """And loads nothing from elsewhere."""
        for path in serve.PARTS:
            status, headers, body = self.get(path + "?dashboard=foretoken")
            self.assertEqual(status, 200)
            policy = headers["Content-Security-Policy"].split("; ")
            self.assertEqual(policy[0], "default-src 'none'")
            self.assertFalse([one for one in policy if "unsafe" in one or "*" in one
                              or "http" in one])
            self.assertEqual(headers["X-Content-Type-Options"], "nosniff")
            # Names of XML's vocabularies are not addresses.
            text = body.decode().replace("http://www.w3.org/2000/svg", "")
            self.assertNotRegex(text, r"(?i)\bhttps?://|innerHTML|eval\(|style=")

    def test_other_hosts_are_refused(self):
        """A name that a stranger's page resolves to this machine is not answered."""
        for host in ("example.org", "127.0.0.1.example.org", "127.0.0.1:80@x", "",
                     "localhost.example.org:8081", "0.0.0.0:8081"):
            for path in ("/", "/api/dashboards", PANEL + "?range=300&points=100"):
                self.assert_refused(403, path, host=host)
        for host in ("localhost:8081", "127.0.0.1", "[::1]:9"):
            self.assertEqual(self.get("/", host=host)[0], 200)

    def test_refused_connections_are_closed(self):
        """Those of the page are kept."""
        self.assertEqual(self.get("/", host="example.org")[1]["Connection"], "close")
        self.assertIsNone(self.get("/")[1]["Connection"])

    def test_idle_connections_make_room(self):
        """Those that say nothing, and those that are kept after an answer."""
        with contextlib.ExitStack() as stack:
            def connect(text):
                connection = stack.enter_context(
                    socket.create_connection(self.server.server_address, timeout=30))
                connection.sendall(text)
                return connection
            kept = connect(b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
            self.assertIn(b"200", kept.recv(1 << 16))
            silent = [connect(b"GET / HTTP/1.1\r\n")
                      for _ in range(2 * serve.MAX_CONNECTIONS)]
            self.assertEqual(self.get("/")[0], 200)
            # The oldest are gone.
            while kept.recv(1 << 16):
                pass
            self.assertEqual(silent[0].recv(1), b"")

    def test_prometheus_is_asked_with_the_password(self):
        """That of --password-file; a refusal is told."""
        self.stand_in.password = "foretoken:secret"
        self.addCleanup(setattr, self.stand_in, "password", None)
        url = f"http://127.0.0.1:{self.stand_in.server_address[1]}"
        self.assertTrue(prometheus.Prometheus(url, "secret").now("up"))
        for password in ("other", None):
            with self.assertRaisesRegex(prometheus.Failure, "password"):
                prometheus.Prometheus(url, password).now("up")

    def test_only_reading_is_possible(self):
        """Other methods are not known; HEAD has no body."""
        for method in ("POST", "PUT", "DELETE", "OPTIONS", "CONNECT"):
            self.assertEqual(self.get("/api/dashboards", method=method)[0], 501)
        status, headers, body = self.get("/", method="HEAD")
        self.assertEqual((status, body), (200, b""))
        self.assertGreater(int(headers["Content-Length"]), 1000)

    def test_only_the_loopback_interface_is_bound(self):
        """By the server and its flag."""
        self.assertEqual(self.server.server_address[0], "127.0.0.1")
        for text in ("0.0.0.0:8081", ":8081", "8081", "127.0.0.1:99999",
                     "example.org:8081"):
            with self.assertRaises(Exception, msg=text):
                serve.loopback_port(text)

    def test_failures_of_prometheus_are_told(self):
        """In words; what it says beyond its bounds is not passed on."""
        path = f"{PANEL}?range=300&points=100"
        for answer, words in (
                ((422, {"status": "error", "error": "too many samples"}),
                 "too many samples"),
                ((200, b"<html>"), "is not a Prometheus"),
                ((200, [1]), None), ((200, {"status": "success"}), None),
                *(((200, {"status": "success", "data": data}), None)
                  for data in UNUSUAL),
                ((200, b"[" * 100000), None),
                ((200, b" " * (prometheus.MAX_ANSWER_BYTES + 1)), "too large")):
            if isinstance(answer[1], list):
                answer = (200, json.dumps(answer[1]).encode())
            self.stand_in.answer = answer
            status, _, body = self.get(path)
            self.assertEqual(status, 502)
            self.assertIn(words or "is not a Prometheus", json.loads(body)["error"])

    def test_many_series_are_cut_and_counted(self):
        """At most MAX_SERIES of a query."""
        count = prometheus.MAX_SERIES + 7
        self.stand_in.answer = (200, {"status": "success", "data": {"result": [
            {"metric": {"code": str(i)}, "values": []} for i in range(count)]}})
        answer = json.loads(self.get("/api/dashboards/foretoken/panels/7"
                                     "?range=300&points=100")[2])
        self.assertEqual((len(answer["series"]), answer["left_out"]),
                         (prometheus.MAX_SERIES, 7))


class UnreachableTest(unittest.TestCase):
    """Without a Prometheus."""

    def test_it_is_said(self):
        """With the address."""
        with socket.socket() as closed:
            closed.bind(("127.0.0.1", 0))
            address = f"127.0.0.1:{closed.getsockname()[1]}"
            client = prometheus.Prometheus(f"http://{address}")
            with self.assertRaises(prometheus.Failure) as failure:
                client.now("up")
        self.assertTrue(failure.exception.unreachable)
        self.assertIn(f"does not answer at {address}", str(failure.exception))


class ResolvingTest(unittest.TestCase):
    """Variables and legends, as Grafana has them."""

    def test_the_rate_interval_spans_four_scrapes(self):
        """Or a step and one, if that is more."""
        for seconds, points, scrape, step, rate in (
                (300, 300, 2, 2, 8), (300, 100, 15, 15, 60), (3600, 100, 2, 60, 62),
                (86400, 300, 15, 300, 315)):
            window = panels.Window(NOW, seconds, points, scrape)
            self.assertEqual(window.step, step)
            self.assertEqual(window.variables["__rate_interval"], f"{rate}s")
            self.assertEqual(window.variables["__interval"], f"{step}s")

    def test_variables_have_three_spellings(self):
        """Unknown ones are an error of the dashboard."""
        self.assertEqual(panels.fill("$a ${a} ${a:regex} [[a]] $ab", {"a": "1",
                                                                      "ab": "2"}),
                         "1 1 1 1 2")
        with self.assertRaises(ValueError):
            panels.fill("rate(x[$b])", {"a": "1"})

    def test_values_become_a_regular_expression(self):
        """All of them, one, several; a dot is a dot."""
        variable = panels.Variable({
            "name": "n", "query": {"query": "label_values(up, namespace)"},
            "allValue": ".*", "multi": True})
        self.assertEqual(variable.text([]), ".*")
        self.assertEqual(variable.text(["a-b"]), "a-b")
        self.assertEqual(variable.text(["a.b", "c"]), r"(a\\.b|c)")

    def test_legends(self):
        """Labels by name, the series itself without a format."""
        labels = {"__name__": "up", "job": "a", "le": "5"}
        self.assertEqual(panels.legend("{{job}}: {{ le }}", labels), "a: 5")
        self.assertEqual(panels.legend("{{other}}", labels), "other")
        self.assertEqual(panels.legend("", labels), 'up{job="a", le="5"}')
        self.assertEqual(panels.legend("", {}), "")
        self.assertEqual(panels.legend("{{job}}", labels, heatmap=True), "5")


if __name__ == "__main__":
    unittest.main()
