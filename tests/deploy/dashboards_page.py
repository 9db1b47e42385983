"""The page of tools/dashboards in headless Chromium, before services under load.

    dashboards_page.py URL                  the page that tools/up --dashboards serves
    dashboards_page.py URL --screens DIR    also writes pictures
    dashboards_page.py --has-chromium       exits 0 if there is one

tests/deploy/dashboards starts what it needs.
"""

import argparse
import contextlib
import json
import pathlib
import socket
import subprocess
import sys
import time
import unittest
import urllib.request

from tools import ROOT

sys.path.insert(0, str(ROOT / "tests/e2e/page"))
# pylint: disable=wrong-import-position
import browser  # noqa: E402

# A loaded machine may take this long until a panel has data.
PATIENCE_S = 120
PHONE = (390, 844)
SCREEN = (1360, 860)

# A panel's marks and numbers: what somebody sees who looks at it.
SEEN = """(id => {
  const panel = document.querySelector(`.panel[data-id="${id}"]`);
  const box = panel.getBoundingClientRect();
  const marks = [...panel.querySelectorAll(
    '.series .line, .series .dot, .phase, .cells rect')];
  const plot = panel.querySelector('.plot').getBoundingClientRect();
  return {
    state: panel.dataset.state, note: panel.querySelector('.note').textContent,
    marks: marks.length,
    outside: marks.filter(mark => {
      const at = mark.getBoundingClientRect();
      return at.left < plot.left - 3 || at.right > plot.right + 3 ||
             at.top < plot.top - 3 || at.bottom > plot.bottom + 3;
    }).length,
    axis: panel.querySelectorAll('.axis text').length,
    legend: panel.querySelectorAll('.legend li').length,
    big: panel.querySelector('.big')?.textContent ?? '',
    label: panel.querySelector('svg')?.getAttribute('aria-label') ?? '',
    cut: box.right > document.documentElement.clientWidth + 0.5,
  };
})"""

# Elements that reach beyond the right edge, except those that scroll by themselves.
TOO_WIDE = """[...document.querySelectorAll('body *')].filter(element => {
  if (element.closest('.rows, svg, .skip')) return false;
  return element.getBoundingClientRect().right >
         document.documentElement.clientWidth + 0.5;
}).map(element => element.outerHTML.slice(0, 120))"""

# The contrast of an element's text with what lies behind it.
CONTRAST = """(selector => {
  const canvas = Object.assign(document.createElement('canvas'),
                               {width: 1, height: 1}).getContext('2d', {willReadFrequently: true});
  const light = colour => {
    canvas.clearRect(0, 0, 1, 1);
    canvas.fillStyle = colour;
    canvas.fillRect(0, 0, 1, 1);
    const [r, g, b, a] = canvas.getImageData(0, 0, 1, 1).data;
    const [x, y, z] = [r, g, b].map(v => (v /= 255, v <= 0.04045 ? v / 12.92
      : ((v + 0.055) / 1.055) ** 2.4));
    return a === 0 ? null : 0.2126 * x + 0.7152 * y + 0.0722 * z;
  };
  const element = document.querySelector(selector);
  const style = getComputedStyle(element);
  const text = light(element instanceof SVGElement ? style.fill : style.color);
  let behind = element, ground = null;
  while (ground === null) {
    ground = light(getComputedStyle(behind).backgroundColor);
    behind = behind.parentElement;
  }
  return (Math.max(text, ground) + 0.05) / (Math.min(text, ground) + 0.05);
})"""


class PageTest(unittest.TestCase):
    """One browser for all; every test opens the page afresh."""

    url = screens = None

    @classmethod
    def setUpClass(cls):
        cls.page = browser.Browser(browser.find())
        cls.addClassCleanup(cls.page.close)
        # Not through a proxy of the environment.
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with opener.open(cls.url + "api/dashboards", timeout=30) as answer:
            cls.dashboards = {
                one["uid"]: json.loads(opener.open(
                    f"{cls.url}api/dashboards/{one['uid']}", timeout=30).read())
                for one in json.load(answer)}

    def setUp(self):
        self.page.open_afresh(self.url)
        self.page.complaints.clear()
        self.page.requests.clear()

    def tearDown(self):
        self.assertEqual(self.page.complaints, [])
        self.assertEqual([url for url in self.page.requests
                          if not url.startswith((self.url, "data:"))], [])

    def shoot(self, name):
        """Takes a picture, if pictures are wanted."""
        if self.screens:
            self.page.screenshot(self.screens / f"{name}.png")

    def open(self, uid):
        """Opens a dashboard and waits until its panels are there."""
        self.page.open(f"{self.url}?dashboard={uid}&range=300")
        count = sum(panel["type"] != "row"
                    for panel in self.dashboards[uid]["panels"])
        self.page.wait(f"document.querySelectorAll('.panel').length === {count}")

    def look_at(self, identifier, states=("ok",)):
        """What a panel shows when it is scrolled into sight and in such a state."""
        selector = f'.panel[data-id="{identifier}"]'
        self.page.evaluate(f"document.querySelector('{selector}')"
                           ".scrollIntoView({block: 'center'})")
        end = time.monotonic() + PATIENCE_S
        while True:
            seen = self.page.evaluate(f"{SEEN}({identifier})")
            if seen["state"] in states or time.monotonic() > end:
                return seen
            time.sleep(0.1)

    def assert_drawn(self, panel):
        """A panel has marks inside its plot, and labels or a number."""
        seen = self.look_at(panel["id"])
        what = f"{panel['title']}: {seen}"
        self.assertEqual(seen["state"], "ok", what)
        self.assertGreater(seen["marks"], 0, what)
        self.assertEqual(seen["outside"], 0, what)
        self.assertFalse(seen["cut"], what)
        self.assertNotRegex(seen["label"], "NaN|undefined|Infinity", what)
        if panel["type"] == "stat":
            self.assertRegex(seen["big"], r"^\d", what)
        else:
            self.assertGreater(seen["axis"], 1, what)
        if panel["type"] in ("timeseries", "state-timeline"):
            self.assertGreater(seen["legend"], 0, what)

    def test_every_panel_is_drawn_with_data(self):
        """On a screen, in both dashboards."""
        for uid, dashboard in self.dashboards.items():
            self.open(uid)
            self.shoot(f"{uid}-light")
            panels = [one for one in dashboard["panels"] if one["type"] != "row"]
            self.assertGreater(len(panels), 10)
            for panel in panels:
                self.assert_drawn(panel)
            self.assertEqual(
                self.page.evaluate("[...document.querySelectorAll('h2')]"
                                   ".map(e => e.textContent)"),
                [one["title"] for one in dashboard["panels"]
                 if one["type"] == "row"])
        self.assertEqual(len(self.dashboards), 2)

    def test_accept_length_and_tokens_per_second_are_numbers(self):
        """The first row of the first dashboard, with the units of its panels."""
        self.open("foretoken")
        length = self.look_at(3)["big"]
        self.assertGreaterEqual(float(length), 1.0)
        self.assertRegex(self.look_at(2)["big"], r"^[0-9.]+ ?K?tokens/s$")
        self.assertRegex(self.look_at(4)["big"], r"^[0-9.]+ (s|ms|µs)p95$")
        self.assertEqual(self.page.text("#state"), "6 of 6 scraped")

    def test_nothing_overflows_a_phone(self):
        """In the light and in the dark, all panels drawn."""
        for uid, dashboard in self.dashboards.items():
            self.page.resize(*PHONE)
            self.open(uid)
            for panel in dashboard["panels"]:
                if panel["type"] != "row":
                    self.look_at(panel["id"], ("ok", "empty", "error"))
            for scheme in ("light", "dark"):
                self.page.prefer(scheme)
                self.assertEqual(
                    self.page.evaluate("document.documentElement.scrollWidth"),
                    PHONE[0])
                self.assertEqual(self.page.evaluate(TOO_WIDE), [])
                self.page.evaluate("scrollTo(0, 0)")
                self.shoot(f"{uid}-phone-{scheme}")

    def test_text_can_be_read_light_and_dark(self):
        """The system's colours and the button's."""
        self.open("foretoken")
        self.look_at(6)
        grounds = []
        for scheme in ("light", "dark"):
            self.page.prefer(scheme)
            grounds.append(self.page.evaluate(
                "getComputedStyle(document.body).backgroundColor"))
            for selector in (".panel h3", ".axis text", ".legend .name",
                             ".legend .num", ".big", ".big .unit", ".about",
                             "#state", ".rows a", ".note"):
                contrast = self.page.evaluate(f"{CONTRAST}('{selector}')")
                self.assertGreaterEqual(contrast, 4.5, f"{scheme}: {selector}")
            self.shoot(f"foretoken-panels-{scheme}")
        self.assertNotEqual(*grounds)
        self.page.click("#theme")
        self.assertEqual(self.page.evaluate(
            "getComputedStyle(document.body).backgroundColor"), grounds[0])
        self.page.reload()
        self.assertEqual(self.page.evaluate(
            "getComputedStyle(document.body).backgroundColor"), grounds[0])

    def test_values_are_shown_at_the_pointer(self):
        """And by the keys, with a line in every panel in sight."""
        self.open("foretoken")
        self.look_at(7)
        self.page.evaluate("document.querySelector("
                           "'.panel[data-id=\"7\"] .plot').focus()")
        self.page.key("ArrowLeft")
        rows = self.page.evaluate("[...document.querySelectorAll('.values .row')]"
                                  ".map(e => e.textContent)")
        self.assertIn("OK", " ".join(rows))
        self.assertRegex(self.page.text(".values .when"), r"^\d\d:\d\d:\d\d$")
        self.assertGreater(self.page.evaluate(
            "[...document.querySelectorAll('.cross')]"
            ".filter(e => e.getAttribute('d')).length"), 1)
        self.shoot("values")
        self.page.key("Escape")
        self.assertTrue(self.page.evaluate("document.querySelector('.values')"
                                           ".hidden"))
        box = self.page.evaluate(
            "(({left, top, width, height}) => ({x: left + width - 20,"
            " y: top + height / 2}))(document.querySelector("
            "'.panel[data-id=\"7\"] .plot').getBoundingClientRect())")
        self.page.call("Input.dispatchMouseEvent", type="mouseMoved", **box)
        self.page.wait("!document.querySelector('.values').hidden")

    def test_a_series_can_be_seen_alone(self):
        """Its legend is a switch, which outlasts a refresh."""
        self.open("foretoken")
        self.look_at(6)
        count = "document.querySelectorAll('.panel[data-id=\"6\"] g.series').length"
        self.assertEqual(self.page.evaluate(count), 2)
        button = '.panel[data-id="6"] .legend button'
        self.page.click(button)
        self.assertEqual(self.page.evaluate(count), 1)
        self.wait_for_refresh(6)
        self.assertEqual(self.page.evaluate(count), 1)
        self.page.click(f"{button}[aria-pressed=true]")
        self.assertEqual(self.page.evaluate(count), 2)

    def wait_for_refresh(self, identifier):
        """Waits until a panel has been asked for once more."""
        self.page.requests.clear()
        end = time.monotonic() + PATIENCE_S
        while not any(f"/panels/{identifier}?" in url for url in self.page.requests):
            self.assertLess(time.monotonic(), end, "no refresh")
            self.page.wait("true")
            time.sleep(0.05)

    def test_numbers_are_written_as_grafana_writes_them(self):
        """Values and axes, by unit."""
        for value, unit, decimals, text in (
                (0, "s", None, "0 s"), (0.00042, "s", None, "420 µs"),
                (1.5, "s", None, "1.5 s"), (90, "s", None, "1.5 min"),
                (0.256, "percentunit", None, "25.6%"), (1, "percentunit", 0, "100%"),
                (1234, "short", None, "1.23 K"), (2.5e6, "short", None, "2.5 Mil"),
                (0.0123, "short", None, "0.0123"), (1.498, "short", 2, "1.50"),
                (1536, "bytes", None, "1.5 KiB"), (100, "bytes", None, "100 B"),
                (3, "none", None, "3"), (1200, "reqps", None, "1.2K req/s"),
                (12, "ops", None, "12 ops/s"), (0.5, "cps", None, "0.5 c/s")):
            self.assertEqual(self.page.evaluate(
                "import('/units.js').then(m => m.format("
                f"{value}, '{unit}', {json.dumps(decimals)}))"), text)
        for low, high, unit, labels in (
                (0, 1, "percentunit", ["0%", "25%", "50%", "75%", "100%"]),
                (0, 2, "s", ["0", "500 ms", "1 s", "1.5 s", "2 s"]),
                (0, 1000, "short", ["0", "250", "500", "750", "1 K"]),
                (0, 4096, "bytes", ["0 KiB", "1 KiB", "2 KiB", "3 KiB", "4 KiB"]),
                (1, 3, "short", ["1", "1.5", "2", "2.5", "3"])):
            self.assertEqual(self.page.evaluate(
                f"import('/units.js').then(m => m.axisLabels(m.niceTicks({low}, "
                f"{high}, 4, '{unit}').ticks, '{unit}'))"), labels)
        # Steps that a number of this size cannot tell apart.
        self.assertLessEqual(self.page.evaluate(
            "import('/units.js').then(m => m.niceTicks(1e17, 1e17 + 16, 4, 'short')"
            ".ticks.length)"), 50)

    def test_ranges_and_sections(self):
        """A range is asked for at once and kept in the address; a section folds."""
        self.open("foretoken-capacity")
        self.look_at(2)
        self.page.requests.clear()
        self.page.evaluate("document.querySelector('#range').value = '3600';"
                           "document.querySelector('#range')"
                           ".dispatchEvent(new Event('change'))")
        self.page.wait("location.search.includes('range=3600')")
        self.wait_for_refresh(2)
        self.assertIn("range=3600", self.page.requests[-1])
        self.page.click("h2 button")
        self.assertEqual(self.page.evaluate(
            "document.querySelector('.panel[data-id=\"2\"]').offsetHeight"), 0)
        self.page.click("#pause")
        self.assertEqual(self.page.text("#state"), "Paused")
        self.page.reload()
        self.page.wait("document.querySelector('#range').value === '3600'")

    def answer_once(self, ending, answer):
        """The page's next request for a path with this ending gets `answer`, JavaScript
        of a promise of a response."""
        self.page.evaluate("""(() => {
          const usual = window.fetch;
          window.fetch = (path, ...more) => {
            if (!path.endsWith('%s')) return usual(path, ...more);
            window.fetch = usual;
            return %s;
          };
        })()""" % (ending, answer))

    def refresh(self):
        """Begins a round."""
        self.page.evaluate("document.querySelector('#range')"
                           ".dispatchEvent(new Event('change'))")

    def test_an_answer_that_comes_late_is_dropped(self):
        """A later one has been shown."""
        self.open("foretoken")
        self.page.wait("/^[0-9]+ of/.test(document.querySelector('#state')"
                       ".textContent)")
        shown = self.page.text("#state")
        self.answer_once("/state", """new Promise((give) => {
          window.giveLate = () => give(new Response(
              JSON.stringify({variables: {}, targets: []})));
        })""")
        self.refresh()
        self.page.wait("window.giveLate")
        self.page.evaluate("document.querySelector('#state').lastElementChild"
                           ".textContent = ''")
        self.refresh()
        self.page.wait("document.querySelector('#state').textContent !== ''")
        self.page.evaluate("giveLate(); new Promise(done => setTimeout(done, 0))")
        self.page.wait("true")
        self.assertEqual(self.page.text("#state"), shown)

    def test_a_round_that_fails_is_not_the_last(self):
        """Whatever the server answered."""
        self.open("foretoken")
        self.look_at(2, ("ok", "empty", "error"))
        self.answer_once("/state", "Promise.resolve(new Response('null'))")
        self.refresh()
        self.wait_for_refresh(2)
        self.assertTrue(any("TypeError" in one for one in self.page.complaints),
                        self.page.complaints)
        self.page.complaints.clear()

    def test_a_dashboard_that_cannot_be_opened_is_named(self):
        """The other one stays."""
        self.open("foretoken")
        self.answer_once("/foretoken-capacity", "Promise.resolve(new Response("
                         "'{\"error\": \"It is gone.\"}', {status: 404}))")
        self.page.evaluate("document.querySelector('#pause').click()")
        self.page.click("#dashboards [data-uid=foretoken-capacity]")
        self.page.wait("document.querySelector('#trouble').textContent"
                       ".includes('It is gone.')")
        self.assertIn("dashboard=foretoken&", self.page.evaluate("location.search"))

    def test_what_is_missing_is_said(self):
        """Without Prometheus; and where it has no such series."""
        with socket.socket() as closed:
            # Bound, but it does not listen.
            closed.bind(("127.0.0.1", 0))
            with served(f"http://127.0.0.1:{closed.getsockname()[1]}") as url:
                self.page.open(url)
                self.page.wait("!document.querySelector('#trouble').hidden")
                text = self.page.text("#trouble")
                self.assertIn("Prometheus does not answer", text)
                self.assertIn("tools/up --dashboards", text)
                self.page.wait("document.querySelector('.panel .note')"
                               ".textContent.includes('does not answer')")
                self.shoot("unreachable")
                # Ends what it still asks for.
                self.page.open("about:blank")
        self.assertTrue(self.page.complaints)
        self.assertTrue(all("502" in one for one in self.page.complaints))
        self.page.complaints.clear()
        self.page.requests.clear()
        self.page.open(f"{self.url}?dashboard=foretoken&var-namespace=elsewhere")
        self.page.wait("document.querySelector('.panel[data-state=empty]')")
        self.assertEqual(self.page.text(".panel[data-state=empty] .note"),
                         "No data yet.")
        self.assertEqual(self.page.evaluate(
            "document.querySelector('#var-namespace').value"), "elsewhere")
        self.shoot("empty")


@contextlib.contextmanager
def served(prometheus):
    """The URL of another page, for this Prometheus."""
    with subprocess.Popen(
            [sys.executable, "-B", ROOT / "tools/dashboards/serve.py", "--listen",
             "127.0.0.1:0", "--prometheus", prometheus],
            stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process.stdout.readline().split()[-1]
        finally:
            process.terminate()


def main():
    """Runs what the command line asks for."""
    parser = argparse.ArgumentParser()
    parser.add_argument("url", nargs="?")
    parser.add_argument("--has-chromium", action="store_true")
    parser.add_argument("--screens", type=pathlib.Path)
    options, rest = parser.parse_known_args()
    if options.has_chromium:
        sys.exit(browser.find() is None)
    if options.screens:
        options.screens.mkdir(parents=True, exist_ok=True)
    PageTest.url, PageTest.screens = options.url, options.screens
    unittest.main(argv=[sys.argv[0], *rest])


if __name__ == "__main__":
    main()
