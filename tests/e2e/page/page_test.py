"""The playground in headless Chromium: what people do, and what they see.

    page_test.py                  against a stand-in for the gateway
    page_test.py --screens DIR    also writes pictures of what is shown
    page_test.py --seconds N [--seed S] PageTest.test_random_texts_become_elements
                                  random texts for N seconds, from seed S on

Exit status 77 where there is no Chromium. FORETOKEN_CHROMIUM names another.
"""

import argparse
import json
import pathlib
import random
import re
import sys
import time
import unittest

import browser
import stand_in

MARKDOWN = """# A heading

Some *slanted*, **bold**, `code`, ~~struck~~ and a [link](https://example.org/a).

1. First
2. Second with **weight**
   - nested

> Quoted words

| Name | Price |
|------|------:|
| tea  |     3 |

```python
def merge(a, b):
    return sorted(a + b)
```

The end, with 2 * 3 * 4 and snake_case_name and x<y."""

# What random documents are made of.
FRAGMENTS = ("# ", "## ", "- ", "* ", "1. ", "2) ", "> ", "```", "```c\n", "~~~",
             "\n", "\n\n", "    ", "  ", "word", " two words", "**", "*", "_",
             "__", "~~", "`", "``", "[a](https://b.example/c)", "[", "](", ")",
             "!", "|", "|---|---|\n", "| a | b |", "---", "***", "\\*", "\\",
             "<b>", "&amp;", "https://a.example/b_c.", "\u00e9", "\U0001f600",
             "\t", "- [ ] ", "===", "```html\n", '"', "'", "/*", "*/", "//",
             "<!--", "1e")

# Code, and the coloured parts of it.
CODE = (
    ("python", '''# It's a "comment"
@cached
def price(item, rate=0x1F):
    """Two # lines
    of 'text\\""""
    return f"{item} # \\\\" + 1.5e-3 if item else None  # done''',
     [("comment", "# It's a \"comment\""), ("keyword", "@cached"),
      ("keyword", "def"), ("number", "0x1F"),
      ("string", "\"\"\"Two # lines\n    of 'text\\\"\"\"\""),
      ("keyword", "return"), ("string", '"{item} # \\\\"'),
      ("number", "1.5e-3"), ("keyword", "if"), ("keyword", "else"),
      ("keyword", "None"), ("comment", "# done")]),
    ("ts", "let a1 = `b\n${c}`; // d\n/* e\n*/ const { f } = 'g",
     [("keyword", "let"), ("string", "`b\n${c}`"), ("comment", "// d"),
      ("comment", "/* e\n*/"), ("keyword", "const"), ("string", "'g")]),
    ("C++", "#include <a>\nint n = 1'000 + 0xFp-2; char c = '\\'';",
     [("keyword", "#include"), ("keyword", "int"), ("number", "1'000"),
      ("number", "0xFp-2"), ("keyword", "char"), ("string", "'\\''")]),
    ("rust", "fn f<'a>(x: &'a str) -> char { 'b' } // 'c'",
     [("keyword", "fn"), ("keyword", "str"), ("keyword", "char"),
      ("string", "'b'"), ("comment", "// 'c'")]),
    ("bash", "for f in a#b; do echo \"$f\" don't $# # no\ndone",
     [("keyword", "for"), ("keyword", "in"), ("keyword", "do"),
      ("keyword", "echo"), ("string", '"$f"'), ("comment", "# no"),
      ("keyword", "done")]),
    ("sql", "SELECT 'it' FROM t -- all\nwhere n > 2;",
     [("keyword", "SELECT"), ("string", "'it'"), ("keyword", "FROM"),
      ("comment", "-- all"), ("keyword", "where"), ("number", "2")]),
    ("json", '{"a" : "b", "c": [1, -2.5, true]}',
     [("name", '"a"'), ("string", '"b"'), ("name", '"c"'), ("number", "1"),
      ("number", "2.5"), ("keyword", "true")]),
    ("yaml", "a-b: https://c.example # d\n'e': no",
     [("name", "a-b"), ("comment", "# d"), ("name", "'e'"),
      ("keyword", "no")]),
    ("html", "<!-- a --><p class=\"b\">it's 1</p>",
     [("comment", "<!-- a -->"), ("keyword", "<p"), ("name", "class"),
      ("string", '"b"'), ("keyword", ">"), ("keyword", "</p"),
      ("keyword", ">")]),
    # The bound on what is coloured lies within a character of two units.
    ("js", "// " + "x" * 49_996 + "\U0001f600\nif", [("comment",
                                                     "// " + "x" * 49_996)]),
    ("constructor", "if 'a': 1  # b", []),
    ("", "if 'a': 1  # b", []),
)

# 30 ways by which text might run as HTML or as a script.
ATTACKS = (
    "<script>hit()</script>",
    "<img src=x onerror=hit()>",
    "<svg onload=hit()></svg>",
    "<svg><script>hit()</script></svg>",
    "<iframe src=\"javascript:parent.hit()\"></iframe>",
    "<iframe srcdoc=\"<script>parent.hit()</script>\"></iframe>",
    "<body onload=hit()>",
    "<details open ontoggle=hit()>x</details>",
    "<video><source onerror=hit()></video>",
    "<input autofocus onfocus=hit()>",
    "<a href=\"javascript:hit()\" id=run>press</a>",
    "<object data=\"javascript:hit()\"></object>",
    "<embed src=\"data:text/html,<script>hit()</script>\">",
    "<base href=\"https://evil.invalid/\">",
    "<meta http-equiv=refresh content=\"0;url=javascript:hit()\">",
    "<form action=\"javascript:hit()\"><button id=run>press</button></form>",
    "<style>@import 'https://evil.invalid/a.css'; body{display:none}</style>",
    "<link rel=stylesheet href=\"https://evil.invalid/a.css\">",
    "<math><mtext><table><mglyph><style><img src=x onerror=hit()>",
    "</textarea></title></style></script><script>hit()</script>",
    "<!--><script>hit()</script-->",
    "&lt;script&gt;hit()&lt;/script&gt; &#60;img src=x onerror=hit()&#62;",
    "[press](javascript:hit())",
    "[press](JaVaScRiPt&colon;hit()) [press](\tjavascript:hit())",
    "[press](data:text/html;base64,PHNjcmlwdD5oaXQoKTwvc2NyaXB0Pg==)",
    "[press](https://example.org/\"onmouseover=\"hit()\"x=\") [p](vbscript:hit())",
    "![x](https://evil.invalid/a.png\" onerror=\"hit())\n\n"
    "![x](javascript:hit())",
    "```\"><script>hit()</script>\n</code></pre><script>hit()</script>\n```",
    "| <img src=x onerror=hit()> | b |\n|---|---|\n"
    "| `<script>hit()</script>` | <https://a.invalid/\"onclick=hit()> |",
    "<javascript:hit()> https://a.invalid/'onclick='hit() "
    "{{constructor.constructor('hit()')()}} ${hit()}",
)
# 36 texts of 100 KB for readers that look at the same characters again and
# again: such a reader takes minutes or more for one of them.
SIZE = 100_000
LONG = tuple((head + body * (SIZE // len(body) + 1))[:SIZE - len(tail)] + tail
             for head, body, tail in (
    ("# ", " ", "x"),                       # headings: marks at the end
    ("# a", " #", "x"),
    ("```", " ", "`"),                      # fences
    ("~~~", "~", "`"),
    ("```\n", "``\n", ""),
    ("- ", "- ", "x"),                      # rules and items
    ("*", " ", "x"),
    ("", "- a\n\n", "x"),
    ("- a\n", "\n", "  b"),
    ("", "> ", "a"),                        # quotes
    ("", ">\n", ""),
    ("a|b\n-", " ", "x"),                   # tables
    ("a|b\n", "-|", "x"),
    ("|a" * 9000 + "\n" + "|-" * 9000 + "\n", "|\n", ""),
    ("|a" * 60 + "\n" + "|-" * 60 + "\n", "|\n", ""),
    ("", "|a|\n|-|\n", ""),
    ("", "[", ""),                          # links
    ("", "[a](", ""),
    ("", "[a](" + " " * 1990, ""),
    ("", "[a](b \"", ""),
    ("", "http://a" + "." * 1980 + "x ", ""),
    ("", "ahttp://", ""),
    ("", "<http://", ""),
    ("", " ".join("`" * count for count in range(1, 400)) + " ", ""),  # code
    ("", "*`a*", ""),
    ("", "*a **b _c __d ~~e ", ""),         # emphasis
    ("*a " * 16000, "b* ", ""),
    ("", "**_a** ", ""),
    ("```js\n", "`${", ""),                 # coloured code
    ("```lua\n", "--[", ""),
    ("```python\n", "\"\\\"'", ""),
    ("```json\n", "\"a\"" + " " * 1000, ""),
    ("```c\n", "1'/*", ""),
    ("```html\n", "<a '", ""),
    ("", "\\", ""),                         # anything
    ("", " ", "x"),
))
# Random texts of one conversation, and of a run that is not told for how long.
TURNS = 8
SEEDS = 3
# Elements that no reply may contain.
FOREIGN = ("script, img, svg, iframe, object, embed, base, meta, form, style, "
           "link, math, video, input, details, body, template")


# Attributes in a reply, which are of the page's making alone.
ATTRIBUTES = ("class", "data-i", "href", "target", "rel", "type", "tabindex",
              "role", "aria-label", "start")


def random_text(chance):
    """Markdown, or nearly, with words mNw that count up from m0w."""
    parts = []
    for _ in range(chance.choice((3, 10, 40, 200))):
        kind = chance.random()
        if kind < 0.5:
            part = chance.choice(FRAGMENTS)
        elif kind < 0.55:
            part = chance.choice(ATTACKS)
        elif kind < 0.6:  # nested, or in a row
            part = chance.choice(FRAGMENTS) * chance.choice((2, 9, 70, 1500))
        elif kind < 0.65 and parts:  # again, as at the end of a span
            part = chance.choice(parts)
        elif kind < 0.7:
            part = "\n" + " " * chance.randrange(9)
        elif kind < 0.73:
            part = chr(chance.choice((0, 0x7f, 0xa0, 0x2028, 0x202e, 0xfeff,
                                      0xfffd, 0x1f468, 0xe0001)))
        else:
            part = "m"
        parts.append(part)
    words = iter(range(len(parts)))
    return "".join(f" m{next(words)}w " if part == "m" else part
                   for part in parts)


# A reply to the example schema, and who wrote which piece of it.
FORCED = (("{", "target"), ('"', "grammar"), ("title", "grammar"),
          ('": "', "grammar"), ("*Owls*", "target"), ('\\"s', "target"),
          ('", "', "grammar"), ("level", "grammar"), ('": "', "grammar"),
          ("e", "target"), ("asy", "grammar"), ('"', "grammar"),
          ("}", "target"))


def chunks(*parts):
    """A stream: (a member of the delta, its text, [(token, who wrote it)])."""
    return [{"choices": [{"delta": {name: text}}], "foretoken": {
                "tokens": [{"id": i, "text": piece, "drafter": drafter}
                           for i, (piece, drafter) in enumerate(tokens)]}}
            for name, text, tokens in parts] + [
                {"choices": [{"delta": {}, "finish_reason": "stop"}]}, "[DONE]"]


def says(body):
    """The stand-in's reply to a request."""
    prompt = body["messages"][-1]["content"]
    if prompt.startswith("attack "):
        return ATTACKS[int(prompt.split()[1])]
    return {"markdown": MARKDOWN, "endless": None, "": "?",
            "busy": (429, "Too many requests.")}.get(
                prompt, f"You said {prompt}. " * (12 if len(prompt) < 99 else 1))


# {what is written: its contrast} of texts below the 4.5 that WCAG wants (1.4.3).
FAINT = """(() => {
  const canvas = document.createElement('canvas').getContext(
    '2d', {willReadFrequently: true});
  const parts = (colour) => {
    canvas.clearRect(0, 0, 1, 1);
    canvas.fillStyle = colour;
    canvas.fillRect(0, 0, 1, 1);
    return [...canvas.getImageData(0, 0, 1, 1).data];
  };
  const light = (rgb) => rgb.slice(0, 3).map((v) => v / 255).map((v) =>
    v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4)
    .reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
  const ground = (element) => {
    const layers = [];
    for (; element; element = element.parentElement) {
      layers.unshift(parts(getComputedStyle(element).backgroundColor));
      if (layers[0][3] === 255) break;
    }
    return layers.reduce((below, above) => below.map((v, i) =>
      v + (above[i] - v) * above[3] / 255), [255, 255, 255]);
  };
  const faint = {};
  for (const element of document.querySelectorAll('body *')) {
    const text = [...element.childNodes].filter((node) => node.nodeType === 3)
      .map((node) => node.data.trim()).join('');
    if (!text || element.getClientRects().length === 0 ||
        element.closest('svg, .sr, .skip, script')) continue;
    const pair = [light(parts(getComputedStyle(element).color)),
                  light(ground(element))];
    const contrast = (Math.max(...pair) + 0.05) / (Math.min(...pair) + 0.05);
    if (contrast < 4.5) faint[text] = contrast;
  }
  return faint;
})()"""


class PageTest(unittest.TestCase):
    """One browser for all; every test opens the page anew."""

    screens = None
    seconds = 0
    seed = 1

    @classmethod
    def setUpClass(cls):
        cls.gateway = stand_in.Gateway(says)
        cls.page = browser.Browser(browser.find())

    @classmethod
    def tearDownClass(cls):
        cls.page.close()
        cls.gateway.close()

    def setUp(self):
        self.gateway.replies = says
        self.gateway.requests.clear()
        self.gateway.left.clear()
        self.gateway.go_on.set()
        self.gateway.pause_s = {}
        self.gateway.key = None
        self.page.open_afresh(self.gateway.url)
        self.page.wait("document.querySelector('#mode').value === 'auto'")
        self.page.complaints.clear()
        self.page.requests.clear()

    def tearDown(self):
        self.gateway.go_on.set()
        self.assertEqual(self.page.complaints, [])
        for url in self.page.requests:
            self.assertTrue(url.startswith((self.gateway.url, "data:")), url)

    def shoot(self, name):
        """Takes a picture, if pictures are wanted."""
        if self.screens:
            self.page.screenshot(self.screens / f"{name}.png")

    def ask(self, text):
        """Types a prompt and sends it."""
        self.page.click("#prompt")
        self.page.wait("document.activeElement.id === 'prompt'")
        self.page.type(text)
        self.page.key("Enter")

    def reply(self, number=1):
        """Waits for the end of a reply; returns its words."""
        self.page.wait(
            "document.querySelectorAll('.reply[aria-busy=false]').length >= "
            f"{number} && !document.querySelector('#send').hidden")
        return self.page.evaluate(
            f"[...document.querySelectorAll('.reply .md')][{number - 1}]"
            ".textContent")

    def choose(self, selector, value):
        """Chooses an option."""
        self.page.evaluate(
            f"(() => {{ const s = document.querySelector('{selector}');"
            f" s.value = {json.dumps(value)};"
            " s.dispatchEvent(new Event('change')); })()")

    def test_the_first_look(self):
        """Something to begin with, in light and in dark."""
        self.shoot("start-light")
        self.page.prefer("dark")
        self.shoot("start-dark")
        self.assertEqual(self.page.count("#starters button"), 4)
        self.page.click("#starters button")
        self.reply()
        self.assertEqual(
            self.gateway.requests[0]["messages"][0]["content"],
            self.page.evaluate("document.querySelector('#starters button')"
                               ".firstChild.textContent"))
        self.assertEqual(self.page.count("#hero:not([hidden])"), 0)

    def test_a_conversation_is_streamed_and_coloured_by_drafter(self):
        """Types, streams, reads."""
        self.gateway.pause_s = {"auto": 0.05}
        self.gateway.go_on.clear()
        self.ask("two birds")
        # Shown while the rest is held back.
        self.page.wait("document.querySelector('.reply .t')")
        self.assertEqual(self.page.evaluate(
            "document.querySelector('.reply').getAttribute('aria-busy')"),
                         "true")
        self.assertEqual(self.page.count("#send:not([hidden])"), 0)
        self.gateway.go_on.set()
        self.assertEqual(self.reply(), "You said two birds. " * 12)
        request = self.gateway.requests[0]
        self.assertEqual(request["model"], "demo")
        self.assertEqual(request["speculation"], "auto")
        self.assertEqual(request["foretoken"], {"tokens": True, "rounds": True})
        self.assertTrue(request["stream"])
        self.assertIn(f"seed {request['seed']}", self.page.text(".reply .foot"))
        text = "You said two birds. " * 12
        want = {}
        for committed, _ in stand_in.rounds_of(text, True):
            for _, drafter in committed:
                want[drafter] = want.get(drafter, 0) + 1
        shown = self.page.evaluate(
            "[...document.querySelectorAll('.reply .t')].reduce((all, t) => {"
            " const d = t.className.match(/d-(\\w+)/)[1];"
            " all[d] = (all[d] || 0) + 1; return all; }, {})")
        self.assertEqual(shown, want)
        total = sum(want.values())
        legend = self.page.text(".reply .keys")
        self.assertIn(f"{round(100 * want['fused_prior'] / total)} %", legend)
        self.assertIn("Common phrases", legend)
        self.assertIn(f"{total} tokens", self.page.text(".reply .foot"))
        self.assertEqual(self.page.count("#drafters li"), len(want))
        self.assertEqual(self.page.count("#drafters .line"), len(want))
        self.assertRegex(self.page.text("#length"), r"^\d\.\d\d$")
        self.shoot("chat-light")
        # The second turn sends the first along, in the same scope.
        self.ask("more")
        self.reply(2)
        second = self.gateway.requests[1]
        self.assertEqual([m["role"] for m in second["messages"]],
                         ["user", "assistant", "user"])
        self.assertEqual(second["messages"][1]["content"], text)
        self.assertEqual(second["cache_scope"], request["cache_scope"])

    def test_markdown_becomes_elements(self):
        """Blocks and spans, and the text between them."""
        self.ask("markdown")
        self.reply()
        for selector, text in (
                ("h3", "A heading"), ("em", "slanted"), ("strong", "bold"),
                ("code", "code"), ("s", "struck"), ("ol > li", "First"),
                ("ol ul li", "nested"), ("blockquote", "Quoted words"),
                ("th", "Name"), ("td.right", "3"), ("figcaption span", "python"),
                ("pre", "def merge(a, b):\n    return sorted(a + b)"),
                ("> p:last-child",
                 "The end, with 2 * 3 * 4 and snake_case_name and x<y.")):
            self.assertEqual(self.page.text(f".reply .md {selector}"), text)
        self.assertEqual(self.page.evaluate(
            "document.querySelector('.reply .md a').href"),
                         "https://example.org/a")
        self.shoot("markdown-light")

    def test_code_has_the_colours_of_its_language(self):
        """Of those that are known; its text stays as it was."""
        self.gateway.replies = lambda _: chunks(("content", "\n\n".join(
            f"```{language}\n{source}\n```" for language, source, _ in CODE),
                                                 ()))
        self.ask("code")
        self.reply()
        shown = self.page.evaluate(
            "[...document.querySelectorAll('.reply pre code')].map(e =>"
            " [e.textContent, [...e.querySelectorAll('[class^=syntax]')].map("
            "s => [s.className.slice(7), s.textContent])])")
        for (language, source, parts), (text, coloured) in zip(CODE, shown):
            with self.subTest(language=language):
                self.assertEqual(text, source)
                self.assertEqual([tuple(part) for part in coloured], parts)
        self.assertEqual(len(shown), len(CODE))

    def test_code_keeps_the_colours_of_its_drafters(self):
        """Tokens within keywords and across their ends, in a list; all of it
        can be read on every tint."""
        ids = self.page.evaluate(
            "[...document.styleSheets[0].cssRules].flatMap(rule =>"
            " [...(rule.selectorText ?? '').matchAll(/\\.d-(\\w+)/g)].filter("
            "() => rule.style.getPropertyValue('--c')).map(m => m[1]))")
        self.assertGreater(len(ids), 10)
        lines = ["# by hand"] + [f"if {i}: return 'of {name}'  # {i}"
                                 for i, name in enumerate(ids * 2)]
        source = "1. So:\n   " + "\n   ".join(["```python", *lines, "```"])
        pieces = [source[i:i + 3] for i in range(0, len(source), 3)]
        said = [(piece, ids[i % len(ids)]) for i, piece in enumerate(pieces)]
        self.gateway.replies = lambda _: chunks(("content", source, said))
        self.ask("code")
        self.reply()
        tokens = self.page.evaluate(
            "[...document.querySelectorAll('pre code .t')].map(e =>"
            " [e.dataset.i, e.textContent, e.className.slice(4)])")
        for index, text, drafter in tokens:
            piece, want = said[int(index)]
            self.assertIn(text, piece)
            self.assertEqual(drafter, want)
        self.assertEqual("".join(text for _, text, _ in tokens),
                         "\n".join(lines))
        self.assertGreater(self.page.count(".syntax-keyword .t"), len(ids))
        ground = self.page.evaluate(
            "Object.fromEntries([...document.querySelectorAll('pre code .t')]"
            ".map(e => [e.className, getComputedStyle(e).backgroundColor]))")
        # The whole of the fused drafter and its first part share one.
        self.assertEqual(len(set(ground.values())), len(ids) - 1)
        colours = self.page.evaluate(
            "['keyword', 'string', 'number', 'comment'].map(kind =>"
            " getComputedStyle(document.querySelector(`.syntax-${kind} .t`))"
            ".color)")
        self.assertEqual(len(set(colours)), 4)
        self.readable()
        self.shoot("code-light")
        self.page.prefer("dark")
        self.shoot("code-dark")

    def test_a_reply_stops(self):
        """By key, with what has come; the server notices."""
        self.ask("endless")
        self.page.wait("document.querySelectorAll('.reply .t').length > 20")
        self.page.key("Escape")
        self.assertGreater(len(self.reply()), 20)
        self.assertIn("stopped", self.page.text(".reply .foot"))
        self.assertTrue(self.gateway.left.wait(browser.PATIENCE_S))
        self.ask("again")
        self.reply(2)

    def test_modes_are_switched(self):
        """What is chosen is sent, and kept over a reload."""
        self.choose("#mode", "off")
        self.ask("plainly")
        self.reply()
        self.assertEqual(self.gateway.requests[0]["speculation"], "off")
        self.assertEqual(
            self.page.count(".reply .t"), self.page.count(".reply .d-target.t"))
        self.assertIn("accept length 1.00", self.page.text(".reply .foot"))
        self.page.reload()
        self.page.wait("document.querySelector('#mode').value === 'off'")

    def test_settings_are_sent(self):
        """Temperature, top p, maximum, seed, system prompt."""
        self.page.evaluate(
            "for (const [id, value] of Object.entries({temperature: 0.85,"
            " top_p: 0.5, max_tokens: 99, seed: '42', system: 'Be brief.'})) {"
            " const e = document.getElementById(id); e.value = value;"
            " e.dispatchEvent(new Event('input'));"
            " e.dispatchEvent(new Event('change')); }")
        self.ask("hello")
        self.reply()
        request = self.gateway.requests[0]
        self.assertEqual(
            {name: request[name] for name in
             ("temperature", "top_p", "max_tokens", "seed")},
            {"temperature": 0.85, "top_p": 0.5, "max_tokens": 99, "seed": 42})
        self.assertEqual(request["messages"][0],
                         {"role": "system", "content": "Be brief."})
        self.assertIn("seed 42", self.page.text(".reply .foot"))
        self.page.evaluate(
            "for (const [id, value] of Object.entries({top_p: 1, max_tokens: '',"
            " system: ' '})) { const e = document.getElementById(id);"
            " e.value = value; e.dispatchEvent(new Event('input'));"
            " e.dispatchEvent(new Event('change')); }")
        self.ask("again")
        self.reply(2)
        request = self.gateway.requests[1]
        self.assertNotIn("top_p", request)
        self.assertNotIn("max_tokens", request)
        self.assertEqual(request["messages"][0]["role"], "user")

    def write(self, text):
        """Writes another source of a constraint."""
        self.page.evaluate(
            "(() => { const s = document.querySelector('#source');"
            f" s.value = {json.dumps(text)};"
            " s.dispatchEvent(new Event('input'));"
            " s.dispatchEvent(new Event('change')); })()")

    def readable(self):
        """Asserts that nothing is faint, in light and in dark."""
        for scheme in ("dark", "light"):
            self.page.prefer(scheme)
            self.assertEqual(self.page.evaluate(FAINT), {})

    def test_a_schema_is_sent(self):
        """The example as it is; what is forced has a colour; the reply is text
        as it is; both are kept over a reload."""
        text = "".join(piece for piece, _ in FORCED)
        self.gateway.replies = lambda _: chunks(("content", text, FORCED))
        self.page.evaluate("document.activeElement.blur()")
        self.page.key("o")
        self.page.wait("document.activeElement.id === 'output'")
        self.assertEqual(self.page.count("#source-field[hidden]"), 1)
        self.choose("#output", "schema")
        source = self.page.evaluate("document.querySelector('#source').value")
        self.assertIn("title", json.loads(source)["required"])
        self.ask("owls")
        self.assertEqual(self.reply(), text)
        request = self.gateway.requests[0]
        self.assertEqual(request["response_format"], {
            "type": "json_schema",
            "json_schema": {"name": "output", "schema": source}})
        self.assertNotIn("structured_outputs", request)
        self.assertIn("JSON Schema", self.page.text(".reply .foot"))
        forced = sum(drafter == "grammar" for _, drafter in FORCED)
        self.assertEqual(self.page.count(".reply .t.d-grammar"), forced)
        ground = ("getComputedStyle(document.querySelector('.reply .t.d-{}'))"
                  ".backgroundColor")
        self.assertNotEqual(self.page.evaluate(ground.format("grammar")),
                            self.page.evaluate(ground.format("target")))
        percent = f"{round(100 * forced / len(FORCED))} %"
        for legend in (".reply .keys", "#drafters"):
            self.assertIn("Grammar", self.page.text(legend))
            self.assertIn(percent, self.page.text(legend))
        self.readable()
        self.shoot("schema-light")
        self.page.reload()
        self.assertEqual(self.reply(), text)
        self.assertIn("JSON Schema", self.page.text(".reply .foot"))
        self.assertEqual(self.page.evaluate(
            "document.querySelector('#output').value"), "schema")

    def test_every_format_has_its_field(self):
        """And a source of its own, which is kept; both runs of a comparison
        have the same."""
        word = {"regex": "[a-z]+", "grammar": 'root ::= "a"',
                "choice": "yes\n\nno, or\n  \n"}
        for number, (format_name, want) in enumerate((
                ("json", {"response_format": {"type": "json_object"}}),
                ("regex", {"structured_outputs": {"regex": word["regex"]}}),
                ("grammar", {"structured_outputs": {"grammar":
                                                    word["grammar"]}}),
                ("choice", {"structured_outputs": {"choice": ["yes",
                                                              "no, or"]}}),
                ("text", {}))):
            self.choose("#output", format_name)
            if format_name in word:
                self.assertNotEqual(self.page.evaluate(
                    "document.querySelector('#source').value"), "")
                self.write(word[format_name])
            self.ask(format_name)
            self.reply(number + 1)
            request = self.gateway.requests[-1]
            self.assertEqual(
                {name: request[name] for name in
                 ("response_format", "structured_outputs") if name in request},
                want)
        self.page.reload()
        self.choose("#output", "regex")
        self.assertEqual(self.page.evaluate(
            "document.querySelector('#source').value"), word["regex"])
        self.page.click("#example")
        self.assertEqual(self.page.evaluate(
            "JSON.parse(localStorage.foretoken).regex"), self.page.evaluate(
                "document.querySelector('#source').value"))
        self.assertNotEqual(self.page.evaluate(
            "document.querySelector('#source').value"), word["regex"])
        # The source that it replaced can be had back.
        self.page.evaluate("document.execCommand('undo')")
        self.assertEqual(self.page.evaluate(
            "document.querySelector('#source').value"), word["regex"])
        self.page.click("#to-compare")
        self.ask("a race")
        self.page.wait("document.querySelector('.verdict')")
        off, auto = self.gateway.requests[-2:]
        self.assertEqual((off["speculation"], auto["speculation"]),
                         ("off", "auto"))
        self.assertIn("regex", off["structured_outputs"])
        self.assertEqual(off["structured_outputs"], auto["structured_outputs"])
        self.assertIn("one by one", self.page.text(".verdict"))
        self.assertIn("Regex", self.page.text("#echo"))

    def test_a_wrong_constraint_is_not_sent(self):
        """What is not JSON is said at its box, and the prompt stays."""
        self.choose("#output", "schema")
        for source, fault in (('{"type": ', "Invalid JSON"), (" ", "is empty"),
                              ("[1]", "is an object")):
            self.write(source)
            self.assertIn(fault, self.page.text("#source-wrong"))
            self.page.evaluate("document.querySelector('#prompt').value = ''")
            self.ask("hello")
            self.page.wait("document.activeElement.id === 'source'")
            self.assertEqual(self.page.evaluate(
                "document.querySelector('#prompt').value"), "hello")
        self.assertEqual(self.gateway.requests, [])
        self.assertEqual(self.page.evaluate(
            "document.querySelector('#source').getAttribute('aria-invalid')"),
                         "true")
        self.readable()
        self.shoot("schema-wrong-light")
        self.write("{}")
        self.assertEqual(self.page.count("#source-wrong:not([hidden])"), 0)
        self.page.click("#send")
        self.reply()
        self.assertEqual(len(self.gateway.requests), 1)

    def test_a_refused_constraint_is_said_at_its_box(self):
        """With the server's keyword and path; the prompt can be sent again."""
        field = "response_format.json_schema.schema"
        self.gateway.replies = lambda _: (400, {
            "message": f"{field}: /properties/a: $ref: b is not in this schema",
            "param": field})
        self.page.resize(390, 844, 2)
        self.choose("#output", "schema")
        self.ask("hello")
        self.reply()
        self.assertIn("400", self.page.complaints.pop())
        self.assertEqual(self.page.text("#source-wrong"),
                         "/properties/a: $ref: b is not in this schema")
        self.assertIn(field, self.page.text(".reply .alert"))
        # Where the settings float, they are opened.
        self.page.wait("document.activeElement.id === 'source'")
        self.page.wait("document.querySelector('#side').getBoundingClientRect()"
                       ".right <= 390.5")
        self.assertLessEqual(self.page.evaluate(
            "document.documentElement.scrollWidth"), 390)
        self.shoot("phone-schema-refused")
        self.page.key("Escape")
        self.gateway.replies = says
        self.page.click("#send")
        self.reply(2)
        self.assertEqual(self.page.count("#source-wrong:not([hidden])"), 0)
        self.assertEqual(self.gateway.requests[1]["messages"],
                         [{"role": "user", "content": "hello"}])
        # Others are not the constraint's.
        self.gateway.replies = lambda _: (400, {"message": "Too hot.",
                                                "param": "temperature"})
        self.ask("again")
        self.reply(3)
        self.assertIn("400", self.page.complaints.pop())
        self.assertEqual(self.page.text("#source-wrong"), "")

    def test_thinking_is_shown_apart(self):
        """Open until the content begins, with its tokens' colours; later turns
        send it as what it was."""
        self.gateway.replies = lambda _: chunks(
            ("reasoning_content", "Is it *so*?",
             [("<think>", "target"), ("Is", "target"), (" it", "crest"),
              (" *so*?", "crest")]),
            ("reasoning_content", " Yes.",
             [(" Yes", "target"), (".", "crest")]),
            ("content", "**It is.**",
             [("</think>", "target"), ("\n\n", "fused_prior"),
              ("**It", "target"), (" is.**", "fused_prior")]))
        tokens = ("[...document.querySelectorAll('.reply {} .t')].map(t =>"
                  " [t.textContent, t.dataset.i, t.className.slice(4)])")
        self.gateway.go_on.clear()
        self.ask("is it so?")
        self.page.wait("document.querySelector('.think[open] .t.d-crest')")
        self.assertEqual(self.page.text(".think div"), "Is it *so*?")
        self.assertEqual(self.page.count(".waiting"), 0)
        self.shoot("thinking-light")
        self.gateway.go_on.set()
        self.assertEqual(self.reply(), "It is.")
        shown = {part: self.page.evaluate(tokens.format(part))
                 for part in (".think", ".md strong")}
        self.assertEqual(shown, {
            ".think": [["Is", "1", "target"], [" it", "2", "crest"],
                       [" *so*?", "3", "crest"], [" Yes", "4", "target"],
                       [".", "5", "crest"]],
            ".md strong": [["It", "8", "target"],
                           [" is.", "9", "fused_prior"]]})
        self.assertIn("10 tokens", self.page.text(".reply .foot"))
        self.assertEqual(self.page.count(".think[open]"), 0)
        self.page.click(".think summary")
        self.page.wait("document.querySelector('.think[open]')")
        self.page.click("#drafters button.d-crest")
        self.assertEqual(self.page.count(".think .t.on"), 3)
        self.page.click("#drafters button.d-crest")
        self.readable()
        self.page.reload()
        self.assertEqual(self.reply(), "It is.")
        self.assertEqual(self.page.text(".think div"), "Is it *so*? Yes.")
        self.assertEqual(self.page.count(".think[open]"), 0)
        self.gateway.replies = says
        self.ask("sure?")
        self.reply(2)
        self.assertEqual(self.gateway.requests[1]["messages"], [
            {"role": "user", "content": "is it so?"},
            {"role": "assistant", "content": "**It is.**",
             "reasoning_content": "Is it *so*? Yes."},
            {"role": "user", "content": "sure?"}])
        # A reply without thinking shows none.
        self.assertEqual(self.page.count(".think:not([hidden])"), 1)

    def test_thinking_may_be_all_there_is(self):
        """Cut before the content: it stays open, and is not sent again."""
        self.gateway.replies = lambda _: [
            {"choices": [{"delta": {"reasoning_content": "Hm"}}]},
            {"choices": [{"delta": {}, "finish_reason": "length"}]}, "[DONE]"]
        self.ask("why?")
        self.assertEqual(self.reply(), "")
        self.assertEqual(self.page.text(".think[open] div"), "Hm")
        self.assertIn("cut at the maximum", self.page.text(".reply .foot"))
        self.ask("well?")
        self.reply(2)
        self.assertEqual(self.gateway.requests[1]["messages"],
                         [{"role": "user", "content": "well?"}])

    def test_a_tree_opens_the_thinking_it_belongs_to(self):
        """So that the tokens of the round are seen."""
        self.gateway.replies = lambda _: [
            {"choices": [{"delta": {"reasoning_content": "Hm, yes."}}],
             "foretoken": {
                 "tokens": [{"id": 1, "text": "Hm,", "drafter": "target"},
                            {"id": 2, "text": " yes", "drafter": "crest"},
                            {"id": 3, "text": ".", "drafter": "target"}],
                 "rounds": [{"nodes": [
                     {"id": 2, "text": " yes", "parent": -1, "drafter": "crest",
                      "probability": 0.9, "accepted": True}],
                             "committed": [2, 3]}]}},
            *chunks(("content", "It is.", [("It is.", "target")]))]
        self.ask("is it so?")
        self.assertEqual(self.reply(), "It is.")
        self.assertEqual(self.page.count(".think[open]"), 0)
        self.page.click(".reply .foot button")
        self.page.wait("!document.querySelector('#tree').hidden")
        self.assertEqual(self.page.count(".think[open] .t.lit"), 2)
        self.assertEqual(self.page.count(".t.lit"), 2)

    def test_a_key_is_asked_for(self):
        """Where the server wants one; it does not outlive the tab."""
        self.gateway.key = "open sesame"
        self.page.reload()
        self.page.wait("document.activeElement.id === 'key'")
        self.assertIn("Who are you?", self.page.text("#trouble"))
        self.assertIn("401", self.page.complaints.pop())
        self.page.type("open sesame")
        self.page.key("Enter")
        self.page.wait("!document.querySelector('#trouble')")
        self.ask("hello")
        self.reply()
        self.assertEqual(len(self.gateway.requests), 1)
        self.assertNotIn("sesame",
                         self.page.evaluate("JSON.stringify(localStorage)"))

    def test_off_and_auto_are_compared(self):
        """Side by side, one after the other, both clocks, one output."""
        self.gateway.pause_s = {"off": 0.01}
        self.page.click("#to-compare")
        self.ask("a race")
        self.page.wait("document.querySelector('.verdict')")
        self.assertEqual([r["speculation"] for r in self.gateway.requests],
                         ["off", "auto"])
        first, second = self.gateway.requests
        self.assertEqual(first["seed"], second["seed"])
        self.assertEqual([r["cache_scope"] for r in self.gateway.requests],
                         ["", ""])
        self.assertEqual(first["messages"], second["messages"])
        self.assertEqual(self.page.count(".pane"), 2)
        clocks = self.page.evaluate(
            "[...document.querySelectorAll('.clock')].map(e => e.textContent)")
        for clock in clocks:
            self.assertRegex(clock, r"^\d+\.\d\d s$")
        self.assertGreater(float(clocks[0][:-2]), 0)
        self.assertIn("tokens, one by one", self.page.text(".verdict"))
        self.assertEqual(self.page.count(".pane .md .t:not(.d-target)") > 0,
                         True)
        self.shoot("compare-light")
        self.page.prefer("dark")
        self.shoot("compare-dark")

    def test_a_comparison_has_prompts_to_begin_with(self):
        """Code to edit, a question, code to write, and JSON: each with a format
        of its own, whatever the settings say."""
        self.choose("#output", "regex")
        self.page.click("#to-compare")
        self.page.prefer("dark")
        self.shoot("compare-start-dark")
        self.page.prefer("light")
        self.shoot("compare-start-light")
        self.assertEqual(self.page.count("#races button"), 4)
        sent = []
        for number in range(4):
            self.page.click(f"#races button:nth-child({number + 1})")
            self.page.wait("document.querySelector('.verdict')")
            off, auto = self.gateway.requests[-2:]
            self.assertEqual((off["speculation"], auto["speculation"]),
                             ("off", "auto"))
            self.assertEqual(off["messages"], auto["messages"])
            self.assertNotIn("structured_outputs", off)
            for request in (off, auto):
                self.assertEqual("response_format" in request, number == 3)
            self.assertIn("one by one", self.page.text(".verdict"))
            sent.append(off)
            self.page.click("#new")
            self.page.wait("!document.querySelector('.verdict')")
            self.assertEqual(self.page.count("#compare .turn"), 0)
        self.assertEqual(len(self.gateway.requests), 8)
        edit = sent[0]["messages"][0]["content"]
        code = re.search(r"```python\n(.*)\n```$", edit, re.DOTALL)[1]
        self.assertTrue(25 <= len(code.split("\n")) <= 40)
        compile(code, "starter", "exec")
        schema = sent[3]["response_format"]["json_schema"]["schema"]
        self.assertEqual(json.loads(schema)["type"], "object")
        # What was set is as it was.
        self.assertEqual(self.page.evaluate(
            "document.querySelector('#output').value"), "regex")

    def test_the_time_saved_is_measured(self):
        """Of one output: a share of the time with `off`, or the time more."""
        self.page.click("#to-compare")
        self.assertNotIn("saved", self.page.evaluate("document.body.innerText"))
        for slow in ("off", "auto"):
            self.gateway.pause_s = {slow: 0.02}
            self.ask("a race")
            self.page.wait("document.querySelector('.verdict')")
            off, auto = (float(clock[:-2]) for clock in self.page.evaluate(
                "[...document.querySelectorAll('.race .num')].map("
                "e => e.textContent)"))
            share = int(self.page.text(".verdict .saved").split()[0])
            # Clocks are shown with two digits.
            error = 100 * 0.011 * (off + auto) / off ** 2
            if off != auto:
                self.assertIn("of the time saved" if off > auto else "more time",
                              self.page.text(".verdict .saved"))
            self.assertAlmostEqual(share, 100 * abs(off - auto) / off,
                                   delta=1 + error)
            self.page.click("#new")
            self.page.wait("!document.querySelector('.verdict')")
        # A reply alone has nothing to compare with.
        self.page.click("#to-chat")
        self.ask("alone")
        self.reply()
        self.assertNotIn("saved", self.page.evaluate("document.body.innerText"))

    def test_outputs_that_differ_are_said_to_differ(self):
        """The verdict looks at every token."""
        self.gateway.replies = lambda body: (
            "one two three four" if body["speculation"] == "off"
            else "one two three five")
        self.page.click("#to-compare")
        self.ask("a race")
        self.page.wait("document.querySelector('.verdict')")
        self.assertIn("The outputs differ.", self.page.text(".verdict"))
        # Times of two texts are not a measure of drafting.
        self.assertEqual(self.page.count(".verdict .saved"), 0)
        self.assertNotIn("as fast", self.page.text(".verdict"))

    def test_a_tree_opens(self):
        """On a click, with what was drafted, accepted and rejected."""
        self.ask("trees")
        self.reply()
        text = "You said trees. " * 12
        rounds = stand_in.rounds_of(text, True)[1:]
        at = next(i for i, (_, nodes) in enumerate(rounds) if len(nodes) > 3 and
                  sum(node["accepted"] for node in nodes) > 1)
        index = 1 + sum(len(committed) for committed, _ in rounds[:at])
        self.page.click(f".reply .t[data-i='{index}']")
        self.page.wait("!document.querySelector('#tree').hidden")
        committed, nodes = rounds[at]
        accepted = sum(node["accepted"] for node in nodes)
        self.assertEqual(self.page.text("#tree-title"),
                         f"Round {at + 1} of {len(rounds)}")
        self.assertEqual(self.page.text("#tree-what"),
                         f"{len(nodes)} drafted, {accepted} accepted, "
                         f"{len(committed)} committed")
        self.assertEqual(self.page.count("#canvas .node.rej"),
                         len(nodes) - accepted)
        # Those accepted, and the model's own.
        self.assertEqual(self.page.count("#canvas .node.acc"), accepted + 1)
        self.assertEqual(self.page.count("#canvas .edge"), len(nodes) + 1)
        self.assertEqual(
            self.page.evaluate("[...document.querySelectorAll('.t.lit')]"
                               ".map(e => e.textContent).join('')"),
            "".join(piece for piece, _ in committed))
        self.shoot("tree-light")
        self.page.prefer("dark")
        self.shoot("tree-dark")
        self.page.evaluate("document.activeElement.blur()")
        self.page.key("ArrowRight")
        self.page.wait("document.querySelector('#tree-title').textContent"
                       f".startsWith('Round {at + 2} ')")
        self.page.key("Escape")
        self.page.wait("document.querySelector('#tree').hidden")
        self.assertEqual(self.page.count(".t.lit"), 0)

    def test_trees_open_at_the_first_draft(self):
        """By the button and by the key; without drafts, at the first round."""
        node = {"id": 3, "text": " c", "parent": -1, "drafter": "crest",
                "probability": 0.9, "accepted": True}
        rounds = [{"nodes": [], "committed": [2]},
                  {"nodes": [], "committed": [2]},
                  {"nodes": [node], "committed": [3, 2]},
                  {"nodes": [node], "committed": [3, 2]}]
        said = [("a", "target"), (" b", "target"), (" b", "target"),
                (" c", "crest"), (" b", "target"), (" c", "crest"),
                (" b", "target")]
        for drafted, want in ((rounds, "Round 3 of 4"),
                              (rounds[:2], "Round 1 of 2")):
            reply = chunks(("content", "a b b c b c b", said))
            reply[0]["foretoken"]["rounds"] = drafted
            self.gateway.replies = lambda _, reply=reply: reply
            self.ask("trees")
            self.page.wait("document.querySelector('.reply[aria-busy=false]')")
            self.page.click(".reply .foot button")
            self.page.wait("document.activeElement.id === 'tree-title'")
            self.assertEqual(self.page.text("#tree-title"), want)
            self.page.key("Escape")
            self.page.wait("document.querySelector('#tree').hidden")
            self.page.evaluate("document.activeElement.blur()")
            self.page.key("r")
            self.page.wait("document.activeElement.id === 'tree-title'")
            self.assertEqual(self.page.text("#tree-title"), want)
            self.page.click("#new")
            self.page.wait("document.querySelectorAll('.turn').length === 0")

    def test_every_drafter_has_a_name(self):
        """And a colour; its id is the tooltip wherever it is named."""
        source = (stand_in.ROOT / "common/speculation/drafter_id.h").read_text(
            encoding="utf-8")
        names = source.split("kDrafterNames = {")[1].split("}")[0]
        ids = ["target"] + re.findall(r'"(\w+)"', names)
        self.assertEqual(len(ids), 13)
        reply = chunks(("content", " ".join(ids), [
            (" " * (i > 0) + id, id) for i, id in enumerate(ids)]))
        reply[0]["foretoken"]["rounds"] = [{
            "committed": list(range(1, len(ids))),
            "nodes": [{"id": i, "text": id, "parent": -1, "drafter": id,
                       "probability": 0.5, "accepted": False}
                      for i, id in enumerate(ids) if i]}]
        self.gateway.replies = lambda _: reply
        self.ask("names")
        self.reply()
        self.page.click(".reply .foot button")
        self.page.wait("!document.querySelector('#tree').hidden")
        entries = lambda selector: dict(self.page.evaluate(
            f"[...document.querySelectorAll('{selector}')].map(e =>"
            " [e.title, (e.querySelector('.name') ?? e.children[1])"
            ".firstChild.textContent])"))
        named = entries(".reply .keys li")
        self.assertEqual(sorted(named), sorted(ids))
        self.assertEqual(len(set(named.values())), len(ids))
        for drafter, name in named.items():
            self.assertRegex(name, "^[A-Z][a-z ]+$")
            self.assertNotEqual(name, drafter)
        self.assertEqual(entries("#drafters button"), named)
        self.assertEqual(entries("#tree-keys li[title]"), named)
        colours = self.page.evaluate(
            "[...document.querySelectorAll('.reply .t')].map(e =>"
            " getComputedStyle(e).getPropertyValue('--c'))")
        # The whole of the fused drafter and its first part share one.
        self.assertEqual(len(set(colours)), len(ids) - 1)
        self.assertNotIn(self.page.evaluate(
            "getComputedStyle(document.body).getPropertyValue('--c')"), colours)
        self.shoot("drafters-light")

    def test_a_conversation_survives_a_reload(self):
        """With its colours; the next turn continues it."""
        self.ask("before")
        before = self.reply()
        tokens = self.page.count(".reply .t")
        self.page.reload()
        self.assertEqual(self.reply(), before)
        self.assertEqual(self.page.count(".reply .t"), tokens)
        self.ask("after")
        self.reply(2)
        self.assertEqual(len(self.gateway.requests[1]["messages"]), 3)
        self.page.click("#new")
        self.page.wait("document.querySelectorAll('.turn').length === 0")
        self.page.reload()
        self.assertEqual(self.page.count(".turn"), 0)

    def test_what_is_streamed_is_drawn_as_at_once(self):
        """A reload draws whole replies; streams grow them block by block."""
        chance = random.Random(1)
        documents = ["".join(chance.choices(FRAGMENTS, k=40)).strip()
                     for _ in range(16)]
        self.gateway.replies = lambda body: documents[
            int(body["messages"][-1]["content"])]
        # Longer than the page waits between two drawings.
        self.gateway.pause_s = {"auto": 0.05}
        for number in range(len(documents)):
            self.ask(str(number))
            self.reply(number + 1)
        drawn = "[...document.querySelectorAll('.md')].map(e => e.innerHTML)"
        streamed = self.page.evaluate(drawn)
        self.page.reload()
        self.reply(len(documents))
        for document, grown, whole in zip(documents, streamed,
                                          self.page.evaluate(drawn)):
            self.assertEqual(grown, whole, document)
        self.assertEqual(len(streamed), len(documents))

    def test_it_fits_a_phone(self):
        """At 390 pixels nothing sticks out, and everything can be reached."""
        wide = "document.documentElement.scrollWidth"
        self.page.resize(390, 844, 2)
        self.shoot("phone-start")
        self.ask("markdown")
        self.reply()
        self.assertLessEqual(self.page.evaluate(wide), 390)
        self.assertEqual(self.page.evaluate(
            "[...document.querySelectorAll('.bar *, .composer *')].filter(e => {"
            " const box = e.getBoundingClientRect();"
            " return box.width > 1 && (box.left < 0 || box.right > 390); })"
            ".length"), 0)
        self.assertRegex(self.page.text("#strip"), "tokens/s")
        self.shoot("phone-light")
        self.page.click("#open-side")
        self.page.wait("document.querySelector('#side').getBoundingClientRect()"
                       ".right <= 390.5")
        self.shoot("phone-side")
        self.page.key("Escape")
        self.page.wait("getComputedStyle(document.querySelector('#side'))"
                       ".visibility === 'hidden'")
        self.page.click(".reply .t:not(.d-target)")
        self.page.wait("!document.querySelector('#tree').hidden")
        self.page.prefer("dark")
        self.shoot("phone-tree-dark")
        self.assertLessEqual(self.page.evaluate(wide), 390)
        self.page.click("#tree-close")
        self.page.click("#to-compare")
        self.assertLessEqual(self.page.evaluate(wide), 390)
        self.shoot("phone-compare-start-dark")
        # A prompt of many lines leaves room for the replies.
        self.page.click("#races button")
        self.page.wait("document.querySelector('.verdict')")
        self.assertLessEqual(self.page.evaluate(wide), 390)
        self.assertLess(self.page.evaluate(
            "document.querySelector('.verdict').getBoundingClientRect().top"),
                        422)
        self.shoot("phone-compare-dark")

    def test_keys_reach_everything(self):
        """Without a pointer."""
        self.ask("keys")
        self.reply()
        self.page.evaluate("document.activeElement.blur()")
        self.page.key("r")
        self.page.wait("document.activeElement.id === 'tree-title'")
        self.page.key("Escape")
        self.page.evaluate("document.activeElement.blur()")
        self.page.key("c")
        self.page.wait("document.body.classList.contains('plain')")
        self.page.key("t")
        self.page.wait("document.documentElement.dataset.theme === 'dark'")
        self.shoot("chat-dark")
        self.page.key("m")
        self.page.wait("document.activeElement.id === 'mode'")
        self.page.evaluate("document.activeElement.blur()")
        self.page.key("?")
        self.page.wait("document.querySelector('#help').open")
        self.shoot("help-dark")
        self.page.key("Escape")
        self.page.wait("!document.querySelector('#help').open")
        self.page.key("x")
        self.page.wait("!document.querySelector('#compare').hidden")
        self.page.evaluate("document.activeElement.blur()")
        self.page.key("x")
        self.page.evaluate("document.activeElement.blur()")
        self.page.key("n")
        self.page.wait("document.querySelectorAll('.turn').length === 0")

    def test_it_can_be_read_and_named(self):
        """Contrast in light and dark; names of everything that is pressed."""
        self.ask("markdown")
        self.reply()
        self.page.click(".reply .t:not(.d-target)")
        self.page.wait("!document.querySelector('#tree').hidden")
        for scheme in ("light", "dark"):
            self.page.prefer(scheme)
            self.assertEqual(self.page.evaluate(FAINT), {})
        pressed = ("button", "link", "textbox", "combobox", "slider",
                   "checkbox", "spinbutton")
        names = [node.get("name", {}).get("value", "") for node in
                 self.page.call("Accessibility.getFullAXTree")["nodes"]
                 if not node["ignored"] and node["role"]["value"] in pressed]
        self.assertGreater(len(names), 20)
        self.assertNotIn("", names)

    def test_a_drafter_is_shown_alone(self):
        """The legend is also a filter, while tokens come and after."""
        self.gateway.pause_s = {"auto": 0.03}
        self.ask("alone")
        self.page.wait("document.querySelector('#drafters .d-fused_prior')")
        self.page.click("#drafters button.d-fused_prior")
        self.reply()
        self.assertGreater(self.page.count(".t.on"), 0)
        self.assertEqual(self.page.count(".t.on"),
                         self.page.count(".t.d-fused_prior"))
        self.page.click("#drafters button.d-fused_prior")
        self.assertEqual(self.page.count(".reply.solo"), 0)

    def test_errors_are_shown(self):
        """The server's words, and the page goes on."""
        self.ask("busy")
        self.reply()
        # The browser logs every answer of 429 itself.
        self.assertEqual(len(self.page.complaints), 1)
        self.assertIn("429", self.page.complaints.pop())
        self.assertIn("Too many requests. Try again in 7 s.",
                      self.page.text(".alert"))
        self.ask("better")
        self.reply(2)
        # What was never answered is not sent again.
        self.assertEqual(len(self.gateway.requests[1]["messages"]), 1)
        self.gateway.replies = lambda _: [
            {"choices": [{"delta": {"content": "Half"}}]},
            {"error": {"message": "The model has gone."}}]
        self.ask("worse")
        self.assertIn("Half", self.reply(3))
        self.assertIn("The model has gone.",
                      self.page.text(".reply:last-child .alert"))
        self.gateway.replies = lambda _: [
            {"choices": [{"delta": {"content": "Cut"}}]}]
        self.ask("cut")
        self.reply(4)
        self.assertIn("The stream ended early.",
                      self.page.text(".reply:last-child .alert"))

    def test_tokens_wait_for_text_that_is_held_back(self):
        """Text comes later than its tokens, in other pieces, or never."""
        tokens = lambda *texts: {"tokens": [
            {"id": i, "text": text, "drafter": "fused_prior" if i else "target"}
            for i, text in enumerate(texts)]}
        self.gateway.replies = lambda _: [
            {"choices": [{"delta": {"content": "a"}}],
             "foretoken": tokens("a", " b")},
            {"choices": [{"delta": {"content": ""}}], "foretoken": tokens("c")},
            {"choices": [{"delta": {"content": " bc d"}}]},
            {"choices": [{"delta": {"content": ""}}],
             "foretoken": tokens(" d", "", "!", "?")},
            {"choices": [{"delta": {"content": "?"}}]},
            {"choices": [{"delta": {}, "finish_reason": "stop"}]}, "[DONE]"]
        self.ask("hello")
        self.assertEqual(self.reply(), "a bc d?")
        self.assertEqual(self.page.evaluate(
            "[...document.querySelectorAll('.reply .t')].map(e =>"
            " [e.textContent, e.dataset.i])"),
                         [["a", "0"], [" b", "1"], ["c", "2"], [" d", "3"],
                          ["?", "6"]])
        self.assertIn("7 tokens", self.page.text(".reply .foot"))

    def test_a_server_without_the_extension_is_served(self):
        """Plain chunks of any server of this API."""
        self.gateway.replies = lambda _: [
            {"choices": [{"delta": {"content": "Plain **words**"}}]},
            {"choices": [{"delta": {}, "finish_reason": "stop"}]}, "[DONE]"]
        self.ask("hello")
        self.assertEqual(self.reply(), "Plain words")
        self.assertEqual(self.page.count(".reply strong"), 1)

    def test_long_texts_are_read_in_one_pass(self):
        """As they come, and at a reload; the page answers all the while."""
        self.assertEqual(len(LONG), 36)
        self.gateway.replies = lambda body: [
            {"choices": [{"delta": {
                "content": LONG[int(body["messages"][-1]["content"])]}}]},
            {"choices": [{"delta": {}, "finish_reason": "stop"}]}, "[DONE]"]
        for number, text in enumerate(LONG):
            with self.subTest(text=text[:40]):
                self.assertEqual(len(text), SIZE)
                self.ask(str(number))
                shown = self.reply()
                self.page.reload()
                self.assertEqual(self.reply(), shown)
                self.page.click("#new")
                self.page.wait("document.querySelectorAll('.turn').length === 0")

    def check_elements(self, reply):
        """A reply consists of what the page makes, and leads nowhere else."""
        self.assertEqual(
            self.page.count(", ".join(f"{reply} .md {name.strip()}" for
                                      name in FOREIGN.split(","))), 0)
        self.assertEqual(self.page.evaluate(
            f"[...document.querySelectorAll('{reply} .md *')].flatMap("
            "e => [...e.attributes]).map(a => a.name).filter(name => "
            f"!{json.dumps(ATTRIBUTES)}.includes(name))"), [])
        self.assertEqual(self.page.evaluate(
            f"[...document.querySelectorAll('{reply} a')].map(a => "
            "a.protocol).filter(p => p !== 'https:' && p !== 'http:')"), [])

    def converse(self, chance):
        """Random replies, as they come and after a reload."""
        texts = [random_text(chance) for _ in range(TURNS)]
        self.gateway.replies = lambda body: [
            {"choices": [{"delta": {
                "content": texts[int(body["messages"][-1]["content"])]}}]},
            {"choices": [{"delta": {}, "finish_reason": "stop"}]}, "[DONE]"]
        drawn = "[...document.querySelectorAll('.md')].map(e => e.innerHTML)"
        for number, text in enumerate(texts):
            with self.subTest(text=text[:200]):
                self.ask(str(number))
                shown = self.reply(number + 1)
                self.check_elements(".reply:last-child")
                # Nothing is shown twice, or in another order.
                words = [int(n) for n in re.findall(r"\bm(\d+)w", shown)]
                self.assertEqual(words, sorted(set(words)))
        before = self.page.evaluate(drawn)
        self.page.reload()
        self.reply(TURNS)
        self.assertEqual(self.page.evaluate(drawn), before)
        self.page.click("#new")
        self.page.wait("document.querySelectorAll('.turn').length === 0")

    def test_random_texts_become_elements(self):
        """A few seeds; with --seconds, one after the other for that long."""
        self.page.evaluate("window.hits = 0; window.hit = () => ++window.hits;")
        end = time.monotonic() + self.seconds
        seed = self.seed
        while seed < self.seed + SEEDS or time.monotonic() < end:
            with self.subTest(seed=seed):
                self.converse(random.Random(seed))
            seed += 1
        if self.seconds:
            print(f"seeds {self.seed} to {seed - 1}", file=sys.stderr)
        self.assertEqual(self.page.evaluate("window.hits ?? 0"), 0)

    def test_no_output_runs_as_html(self):
        """Thirty ways, in the text, and where else strings are shown."""
        self.assertEqual(len(ATTACKS), 30)
        self.page.evaluate("window.hits = 0; window.hit = () => ++window.hits;")
        for number, attack in enumerate(ATTACKS):
            with self.subTest(attack=attack):
                self.ask(f"attack {number}")
                self.reply(number + 1)
                reply = ".reply:last-child"
                self.check_elements(reply)
                # Pressing everything runs nothing.
                self.page.evaluate(
                    f"for (const e of document.querySelectorAll('{reply} .md *'"
                    ")) { if (e.tagName === 'A') e.addEventListener('click', "
                    "event => event.preventDefault()); if (e.tagName !== "
                    "'BUTTON') e.click(); e.dispatchEvent(new Event("
                    "'mouseover')); }")
        nasty = "<img src=x onerror=hit()>"
        self.gateway.replies = lambda _: [
            {"choices": [{"delta": {"reasoning_content": nasty}}]},
            {"choices": [{"delta": {"content": nasty}}], "foretoken": {
                "tokens": [{"id": nasty, "text": nasty, "drafter": nasty}]}},
            {"choices": [{"delta": {"content": nasty}}], "foretoken": {
                "tokens": [{"id": 2, "text": nasty, "drafter": "__proto__"}],
                "rounds": [{"nodes": [{"id": nasty, "text": nasty, "parent": -1,
                                       "drafter": nasty, "probability": nasty,
                                       "accepted": False}],
                            "committed": [2]}]}},
            {"choices": [{"delta": {}, "finish_reason": "stop"}]}, "[DONE]"]
        self.ask(nasty)
        self.assertEqual(self.reply(len(ATTACKS) + 1), nasty * 2)
        self.assertEqual(self.page.text(".reply:last-child .think div"), nasty)
        self.page.click(".reply:last-child .t[data-i='1']")
        self.page.wait("!document.querySelector('#tree').hidden")
        self.assertEqual(self.page.count("#canvas .node.rej"), 1)
        self.gateway.replies = lambda _: (400, {
            "message": nasty, "param": "structured_outputs.regex"})
        self.choose("#output", "regex")
        self.ask(nasty)
        self.reply(len(ATTACKS) + 2)
        self.assertIn("400", self.page.complaints.pop())
        self.assertEqual(self.page.text("#source-wrong"), nasty)
        self.gateway.models[0]["id"] = nasty
        self.gateway.models[0]["foretoken"]["modes"].append(nasty)
        self.page.reload()
        self.page.evaluate("window.hits ??= 0; window.hit = () => ++window.hits;")
        self.reply(len(ATTACKS) + 2)
        self.page.wait("document.querySelector('#model').value.includes('<')")
        self.gateway.models[0]["id"] = "demo"
        self.gateway.models[0]["foretoken"]["modes"].pop()
        self.assertEqual(self.page.count("img, iframe, object, embed"), 0)
        self.assertEqual(self.page.evaluate("window.hits"), 0)

    def test_the_policy_holds_where_the_page_would_not(self):
        """A string that is parsed as HTML is refused, and so is its script."""
        self.assertIn("TrustedHTML", self.page.evaluate(
            "(() => { try { document.body.innerHTML = '<b>x</b>'; }"
            " catch (error) { return String(error); } return ''; })()"))
        self.page.evaluate("new Promise(r => setTimeout(r))")
        self.assertEqual(len(self.page.complaints), 1)
        self.page.complaints.clear()


def main():
    """Runs what the command line asks for."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--screens", type=pathlib.Path)
    parser.add_argument("--seconds", type=float, default=0)
    parser.add_argument("--seed", type=int, default=1)
    options, rest = parser.parse_known_args()
    if browser.find() is None:
        print("skipped: no chromium here (apt install chromium)")
        sys.exit(77)
    PageTest.seconds, PageTest.seed = options.seconds, options.seed
    if options.screens:
        options.screens.mkdir(parents=True, exist_ok=True)
        PageTest.screens = options.screens
    unittest.main(argv=[sys.argv[0], *rest])


if __name__ == "__main__":
    main()
