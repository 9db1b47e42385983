"""The playground as foretoken-local serves it, with the demo pair.

    served_page_test.py BIN                    BIN holds foretoken-local
    served_page_test.py BIN --model PATH       another model, with its template
    served_page_test.py BIN --screens DIR      also writes pictures

Exit status 77 where there is no Chromium.
"""

import argparse
import json
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest
import urllib.request

import browser
import stand_in

DEMO = stand_in.ROOT / "tools/demo"
PROMPT = "Once upon a time"


class Server:
    """A foretoken-local with its HTTP API on a port of its own."""

    def __init__(self, binary, model):
        self._folder = tempfile.TemporaryDirectory(prefix="served-")
        folder = pathlib.Path(self._folder.name)
        arguments = ["--model", model]
        if model == DEMO / "target":
            arguments += ["--draft-model", DEMO / "draft"]
        self._log = open(folder / "log", "w+", encoding="utf-8")
        self._process = subprocess.Popen(
            [binary, *arguments, "--listen", f"unix:{folder}/socket",
             "--metrics-listen=", "--http-listen", "127.0.0.1:0",
             # Drafts are in time on a busy machine, too.
             "--draft-wait-floor=20s", "--draft-wait-cap=20s"],
            stdin=subprocess.DEVNULL, stdout=self._log, stderr=self._log)
        try:
            self.url = self._wait_for_address()
        except browser.Failure:
            self.close()
            raise

    def _wait_for_address(self):
        pattern = re.compile(r"HTTP on (127\.0\.0\.1:\d+)")
        while True:
            match = pattern.search(self.log())
            if match:
                return f"http://{match[1]}/"
            try:
                self._process.wait(0.05)
            except subprocess.TimeoutExpired:
                continue
            raise browser.Failure(self.log())

    def log(self):
        """What it has logged."""
        self._log.seek(0)
        return self._log.read()

    def close(self):
        """Ends it."""
        self._process.terminate()
        self._process.wait()
        self._log.close()
        self._folder.cleanup()


class ServedPageTest(unittest.TestCase):
    """One server and one browser for all."""

    binary = model = screens = None

    @classmethod
    def setUpClass(cls):
        cls.server = Server(cls.binary, cls.model)
        cls.addClassCleanup(cls.server.close)
        cls.page = browser.Browser(browser.find())
        cls.addClassCleanup(cls.page.close)

    def setUp(self):
        self.page.open_afresh(self.server.url)
        self.page.wait("document.querySelector('#mode').value === 'auto'")
        self.page.complaints.clear()

    def tearDown(self):
        self.assertEqual(self.page.complaints, [])

    def shoot(self, name):
        """Takes a picture, if pictures are wanted."""
        if self.screens:
            self.page.screenshot(self.screens / f"{name}.png")

    def ask(self, text):
        """Types a prompt and sends it."""
        self.page.click("#prompt")
        self.page.type(text)
        self.page.key("Enter")

    def choose_mode(self, mode):
        """Mode auto may find that drafts do not pay; others always draft."""
        self.page.evaluate(
            f"document.querySelector('#mode').value = '{mode}';"
            "document.querySelector('#mode')"
            ".dispatchEvent(new Event('change'))")

    def wait_for_end(self, selector=".reply[aria-busy=false]"):
        """Waits until nothing runs."""
        self.page.wait(f"document.querySelector('{selector}') &&"
                       " !document.querySelector('#send').hidden")
        self.assertEqual(self.page.text(".alert"), "")

    def test_the_page_comes_with_its_policy(self):
        """The parts that page_test.py drives, and a policy that allows the
        script and the style they have."""
        with urllib.request.urlopen(self.server.url) as answer:
            page = answer.read().decode()
            self.assertEqual(page, stand_in.page_text())
            self.assertEqual(answer.headers["content-security-policy"],
                             stand_in.policy(page))

    def test_replies_are_those_of_the_api(self):
        """The text and every token's drafter, as a client of its own sees."""
        self.page.evaluate(
            "for (const [id, value] of Object.entries({seed: '5',"
            " max_tokens: 96})) { const e = document.getElementById(id);"
            " e.value = value; e.dispatchEvent(new Event('input'));"
            " e.dispatchEvent(new Event('change')); }")
        self.choose_mode("draft_model")
        self.ask(PROMPT)
        self.wait_for_end()
        self.assertGreater(self.page.count(".reply .t.d-draft_model"), 0)
        body = {"model": self.page.evaluate(
                    "document.querySelector('#model').value"),
                "messages": [{"role": "user", "content": PROMPT}],
                "temperature": 0.6, "top_p": 0.95, "max_tokens": 96, "seed": 5,
                "speculation": "off"}
        request = urllib.request.Request(
            self.server.url + "v1/chat/completions",
            data=json.dumps(body).encode(),
            headers={"content-type": "application/json"})
        with urllib.request.urlopen(request) as answer:
            plain = json.load(answer)["choices"][0]["message"]["content"]
        kept = json.loads(self.page.evaluate(
            "sessionStorage.getItem('foretoken-chat')"))
        self.assertEqual(kept["turns"][1]["content"], plain)
        self.shoot("served-chat")
        self.page.prefer("dark")
        self.shoot("served-chat-dark")

    def test_every_round_has_its_tree(self):
        """The trees' accepted nodes are the tokens of the text."""
        self.choose_mode("draft_model")
        self.ask(PROMPT)
        self.wait_for_end()
        self.page.evaluate("document.activeElement.blur()")
        self.page.key("r")
        self.page.wait("!document.querySelector('#tree').hidden")
        # It opens at the first round with drafts.
        first, rounds = map(int, re.findall(r"\d+",
                                            self.page.text("#tree-title")))
        self.assertGreater(rounds, 1)
        self.assertGreater(self.page.count("#canvas .node"), 2)
        for _ in range(first - 1):
            self.page.click("#tree-back")
            self.assertEqual(self.page.count("#canvas .node"), 2)
        drafted = accepted = 0
        for number in range(rounds):
            what = self.page.text("#tree-what")
            lit = self.page.evaluate(
                "new Set([...document.querySelectorAll('.t.lit')]"
                ".map(e => e.dataset.i)).size")
            nodes = self.page.count("#canvas .node.acc:not(.d-target)")
            # Tokens that show nothing are not lit.
            self.assertLessEqual(lit, nodes + 1)
            accepted += nodes
            drafted += self.page.count("#canvas .node.rej") + nodes
            if nodes > 0:
                self.assertIn(f"{nodes} accepted", what)
            if nodes > 1 and self.page.count("#canvas .node.rej") > 0:
                self.shoot("served-tree")
            if number + 1 < rounds:
                self.page.click("#tree-next")
        length = self.page.text("#length")
        self.assertEqual(length, f"{1 + accepted / rounds:.2f}")
        self.assertGreater(accepted, 0)
        self.assertGreater(drafted, accepted)

    def test_off_and_auto_write_the_same(self):
        """With both clocks."""
        self.page.click("#to-compare")
        self.ask(PROMPT)
        self.wait_for_end(".verdict")
        self.assertIn("one by one", self.page.text(".verdict"))
        self.assertRegex(self.page.text(".verdict .saved"),
                         r"^\d+ % (of the time saved|more time)$")
        self.shoot("served-compare")

    def test_a_starter_has_a_schema(self):
        """Which both modes keep to."""
        self.page.click("#to-compare")
        self.page.click("#races button:last-child")
        self.wait_for_end(".verdict")
        self.assertIn("one by one", self.page.text(".verdict"))
        for text in self.page.evaluate(
                "[...document.querySelectorAll('.pane .md')]"
                ".map(e => e.textContent)"):
            self.assertIn("keywords", json.loads(text))
        self.assertGreater(self.page.count(".pane .t.d-grammar"), 0)
        self.shoot("served-starter")

    def set_schema(self, source=None):
        """Chooses a schema, the page's example unless there is another, and a
        seed, so that every run has the same text."""
        self.page.evaluate(
            "for (const [id, value] of Object.entries("
            f"{json.dumps({'seed': '5', 'output': 'schema'})})) {{"
            " const e = document.getElementById(id); e.value = value;"
            " e.dispatchEvent(new Event('input'));"
            " e.dispatchEvent(new Event('change')); }")
        if source is not None:
            self.page.evaluate(
                "{ const e = document.querySelector('#source');"
                f" e.value = {json.dumps(source)};"
                " e.dispatchEvent(new Event('input')); }")
        return json.loads(self.page.evaluate(
            "document.querySelector('#source').value"))

    def test_a_schema_is_kept_to(self):
        """The reply is JSON of the example, in part forced; so are both of a
        comparison."""
        required = self.set_schema()["required"]
        self.ask(PROMPT)
        self.wait_for_end()
        self.assertEqual(list(json.loads(self.page.text(".reply .md"))),
                         required)
        self.assertGreater(self.page.count(".reply .t.d-grammar"), 0)
        for legend in (".reply .keys", "#drafters"):
            self.assertIn("Grammar", self.page.text(legend))
        self.shoot("served-schema")
        self.page.click("#to-compare")
        self.ask(PROMPT)
        self.wait_for_end(".verdict")
        self.assertIn("one by one", self.page.text(".verdict"))
        self.assertEqual(
            [list(json.loads(text)) for text in self.page.evaluate(
                "[...document.querySelectorAll('.pane .md')]"
                ".map(e => e.textContent)")], [required] * 2)
        self.shoot("served-schema-compare")

    def test_choices_are_kept_to(self):
        """As the server reads them: the reply is one of the example's."""
        self.page.evaluate(
            "{ const e = document.querySelector('#output'); e.value = 'choice';"
            " e.dispatchEvent(new Event('change')); }")
        example = self.page.evaluate("document.querySelector('#source').value")
        self.ask(PROMPT)
        self.wait_for_end()
        self.assertIn(self.page.text(".reply .md"), example.split("\n"))

    def test_a_schema_is_refused_at_its_box(self):
        """By keyword and path; the example is taken afterwards."""
        self.set_schema(json.dumps({"type": "object", "properties": {
            "when": {"$ref": "https://example.org/date"}}}))
        self.ask(PROMPT)
        self.page.wait("document.querySelector('.reply .alert')")
        self.assertIn("400", self.page.complaints.pop())
        self.assertTrue(self.page.text("#source-wrong").startswith(
            "/properties/when: $ref: "), self.page.text("#source-wrong"))
        self.shoot("served-schema-refused")
        self.page.click("#example")
        self.page.click("#send")
        self.page.wait("document.querySelectorAll('.reply').length > 1 &&"
                       " !document.querySelector('#send').hidden")
        self.assertEqual(self.page.count(".reply:last-child .alert"), 0)
        json.loads(self.page.text(".reply:last-child .md"))

    def test_a_reply_stops(self):
        """And the server ends it."""
        self.page.evaluate(
            "document.querySelector('#max_tokens').value = 1500;"
            "document.querySelector('#max_tokens')"
            ".dispatchEvent(new Event('change'))")
        self.ask(PROMPT)
        self.page.wait("document.querySelectorAll('.reply .t').length > 5")
        self.page.key("Escape")
        self.wait_for_end()
        self.assertIn("stopped", self.page.text(".reply .foot"))


def main():
    """Runs what the command line asks for."""
    parser = argparse.ArgumentParser()
    parser.add_argument("bin", type=pathlib.Path)
    parser.add_argument("--model", type=pathlib.Path, default=DEMO / "target")
    parser.add_argument("--screens", type=pathlib.Path)
    options, rest = parser.parse_known_args()
    if browser.find() is None:
        print("skipped: no chromium here (apt install chromium)")
        sys.exit(77)
    if options.screens:
        options.screens.mkdir(parents=True, exist_ok=True)
    ServedPageTest.binary = options.bin / "foretoken-local"
    ServedPageTest.model = options.model
    ServedPageTest.screens = options.screens
    unittest.main(argv=[sys.argv[0], *rest])


if __name__ == "__main__":
    main()
