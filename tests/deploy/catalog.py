"""What the sources say: metrics of the catalogs, and flags of the services."""

import re

from tools import ROOT

SERVICES = {
    "orchestrator": "orchestrator",
    "verifier": "verifier",
    "draft-worker": "draft_worker",
    "trie-drafter": "trie_drafter",
    "crest": "crest",
    "gateway": "gateway",
}

_SPEC = re.compile(
    r"inline constexpr Spec (k\w+)\s*=\s*"
    r"(Counter|Gauge|Histogram)\((.*?)\);", re.DOTALL)
_STRING = re.compile(r'"((?:[^"\\]|\\.)*)"')


def _arguments(body):
    """The constructor's arguments, adjacent string literals joined."""
    arguments, depth, current = [], 0, ""
    for token in re.finditer(r'"(?:[^"\\]|\\.)*"|.', body, re.DOTALL):
        text = token.group(0)
        if text in "{(":
            depth += 1
        elif text in "})":
            depth -= 1
        if text == "," and depth == 0:
            arguments.append(current.strip())
            current = ""
        else:
            current += text
    if current.strip():
        arguments.append(current.strip())
    return arguments


def metrics():
    """{name: (kind, {labels})} of every Spec in common/metrics/catalog.h."""
    source = (ROOT / "common/metrics/catalog.h").read_text()
    found = {}
    for spec in _SPEC.finditer(source):
        fields = _arguments(spec.group(3))
        text = lambda field: "".join(_STRING.findall(field))
        first_label = 3 if spec.group(2) == "Histogram" else 2
        labels = {text(field) for field in fields[first_label:]}
        found[text(fields[0])] = (spec.group(2).lower(), labels)
        listed = len(re.findall(rf"&{spec.group(1)}\b", source))
        if listed != 1:
            raise SystemExit(f"{spec.group(1)} stands in {listed} lists of "
                             "catalog.h, want one")
    if len(found) < 50:
        raise SystemExit(f"only {len(found)} metrics found in catalog.h: it "
                         "is not read as it is written")
    return found


_FLAG = r'flags(?:\.|->)(?:%s)\(\s*"([a-z0-9-]+)"'
_KINDS = "Int|Int64|Double|Bool|Duration|String|Choice|List|Url|Secret"


def _flags_in(path, kinds=_KINDS):
    return set(re.findall(_FLAG % kinds, path.read_text()))


def drafting_services():
    """Those of the mode table: {"draft_model", Id::kDraftModel, "draft_worker","""
    table = (ROOT / "common/speculation/modes.cc").read_text()
    return set(re.findall(r'\{"[a-z_]+", Id::k\w+,\s+"([a-z_]+)"', table))


def flags(service):
    """({flags}, {secrets}) that foretoken-SERVICE takes: secrets come from
    the environment alone, or should."""
    folder = ROOT / "services" / SERVICES[service]
    taken, secrets, text = set(), set(), ""
    for path in sorted(folder.rglob("*.cc")):
        taken |= _flags_in(path)
        secrets |= _flags_in(path, "Secret|Url")
        text += path.read_text()
    # What every service has (run_service.h), and groups that some have. Flags
    # of listeners take a prefix where a process has two.
    listener = (ROOT / "common/rpc/listen_options.cc").read_text()
    if service == "gateway":
        listener += text
    else:
        taken |= _flags_in(ROOT / "common/rpc/server.cc")
    taken |= set(re.findall(r'flags\.\w+\(\s*name\("([a-z-]+)"\)', listener))
    taken |= _flags_in(ROOT / "common/metrics/registry.cc")
    if "backend.AddFlags(" in text:
        taken |= _flags_in(ROOT / "common/infer/factory/backend_factory.cc")
    if "loading.AddFlags(" in text:
        header = (ROOT / "common/infer/factory/draft_loading.h").read_text()
        taken |= set(re.findall(r'Flag\[\] = "([a-z-]+)"', header))
    if "AddHangFlags(" in text:
        taken |= _flags_in(ROOT / "common/engine/start/engine_start.cc")
    if "AddConstraintFlags(" in text:
        taken |= _flags_in(ROOT / "common/rpc/constraint_flags.cc")
    if "streams.AddFlags(" in text:
        taken |= _flags_in(ROOT / "common/rpc/stream_options.cc")
    if "discovery.AddFlags(" in text:
        taken |= _flags_in(ROOT / "common/rpc/discovery.cc")
    if "AddAnswerFlags(" in text:
        taken |= {"stall-timeout", "retry-after"}
    channel = (ROOT / "common/rpc/channel.cc").read_text()
    suffixes = re.findall(r'flags\.(?:Bool|String)\(\s*prefix \+ "(-[a-z-]+)"',
                          channel)
    if "DraftingServices()" in text:
        taken |= {name.replace("_", "-") for name in drafting_services()}
    for prefix in re.findall(r'channel\.AddFlags\(flags, "([a-z-]+)"', text):
        taken |= {prefix + suffix for suffix in suffixes}
    if len(taken) < 15:
        raise SystemExit(f"only {len(taken)} flags of {service} found: they "
                         "are not read as they are written")
    return taken, secrets


def environment_name(flag):
    return "FORETOKEN_" + flag.upper().replace("-", "_")
