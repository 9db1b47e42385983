"""Examples of structured output, checks of answers: see structured_output.py."""

import dataclasses
import json
import re

try:
    import jsonschema
except ImportError:
    jsonschema = None


END = "<|endoftext|>"  # of the model of the tests


@dataclasses.dataclass
class Example:
    source: str  # vllm, sglang, llama.cpp or openai
    name: str
    fields: dict  # of the request
    check: object  # (text, ended): raises if the answer is wrong
    # Biases of texts that are one token, for a model that knows nothing.
    favour: dict = dataclasses.field(default_factory=dict)
    endpoint: str = "chat"  # or completions, responses
    prompt: str = "Answer as the format says."


# Checks -----------------------------------------------------------------------

def one_of(*choices):
    def check(text, ended):
        assert text in choices if ended else \
            any(choice.startswith(text) for choice in choices), text
    return check


def matches(whole, begun=None):
    """`begun` matches beginnings; without it every answer ends."""
    def check(text, ended):
        assert ended or begun is not None, f"cut: {text!r}"
        assert re.fullmatch(whole if ended else begun, text, re.DOTALL), text
    return check


def holds(*conditions):
    """Any JSON, for which the conditions hold."""
    def check(text, ended):
        if not ended:
            assert is_json_beginning(text), text
            return
        value = json.loads(text)
        for condition in conditions:
            assert condition(value), text
    return check


def valid(schema, *conditions):
    def is_valid(value):
        if jsonschema is not None:
            jsonschema.Draft202012Validator(schema).validate(value)
        return True
    return holds(is_valid, *conditions)


_TEXT = r'"(?:[^"\\\x00-\x1f]|\\.)*'
_SCALAR = (r"(?:[0-9.eE+-]*|t(?:r(?:ue?)?)?|f(?:a(?:l(?:se?)?)?)?|"
           rf"n(?:u(?:ll?)?)?|{_TEXT}\\?)")
# A key or a value that has begun.
_BEGUN = re.compile(
    rf'\s*(?:{_TEXT}(?:"\s*(?::\s*{_SCALAR})?|\\)?|{_SCALAR})?', re.DOTALL)


def is_json_beginning(text):
    """Whether JSON can go on from `text`."""
    for end in range(len(text), -1, -1):
        closers = brackets(text[:end])
        if closers is None:
            continue
        try:
            json.loads((text[:end] or "0") + "".join(reversed(closers)))
        except ValueError:
            continue
        rest = text[end:]
        if text[:end].rstrip()[-1:] not in ("", "[", "{"):
            if text[end - 1].isdigit() and re.fullmatch(r"[0-9.eE+-]*", rest):
                return True
            if not rest.lstrip().startswith(","):
                return False
            rest = rest.lstrip()[1:]
        return _BEGUN.fullmatch(rest) is not None
    return False


def brackets(text):
    """The closers that `text` lacks; None within a string, or if one is wrong."""
    closers = []
    for part in re.findall(r'"(?:[^"\\]|\\.)*"|"|[\[\]{}]', text, re.DOTALL):
        if part == '"':
            return None
        if part in "[{":
            closers.append("]" if part == "[" else "}")
        elif part in "]}" and (not closers or closers.pop() != part):
            return None
    return closers


def lines(line, least=1):
    """Whole lines, of which the last may be cut."""
    def check(text, ended):
        parts = text.split("\n")
        last = parts.pop()
        assert all(re.fullmatch(line, part) for part in parts), text
        assert not ended or (not last and len(parts) >= least), text
    return check


def c_code(text, ended):
    text = re.sub(r"/\*.*?\*/|//[^\n]*\n", "", text, flags=re.DOTALL)
    assert not text or "int float char".startswith(text) or re.match(
        r"(int|float|char|int\w*|fl?o?a?|ch?a?|in?)([ \t\n]|$)", text), text
    if ended and "/*" not in text and "//" not in text:
        for opener, closer in ("()", "{}"):
            assert text.count(opener) == text.count(closer), text
