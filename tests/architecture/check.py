"""Include rules of common/, services/, tools/ and the laboratory.

    check.py cycles      no file includes itself, directly or through others
    check.py direction   tests/lab -> tools -> services -> common, of which none
                         includes tests; services meet in common, whose folders
                         include only folders further down LAYERS
    check.py cores       no core reaches gRPC, Protobuf, libpq, hiredis,
                         prometheus-cpp or Boost through any of its includes;
                         Boost may be used in the sources of common/net
    check.py clock       cores take their time from a Clock, never from the
                         machine's wall clock
    check.py parser      CLI11, whose templates take seconds to compile, is
                         included by the classes that hide it and nowhere else
    check.py headers     headers include gRPC, Protobuf, Boost and
                         nlohmann-json, themselves or through others, only where
                         the list says why, so that a source that needs none of
                         them does not compile them
    check.py self        the rules find what they forbid in made-up sources

Exit status 1 and one line for every violation.
"""

import collections
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
PRODUCT = ("common", "services", "tools")
TREES = (*PRODUCT, "tests/lab")
# The folders of common/, as the map in CONTRIBUTING.md orders them.
LAYERS = ("rpc", "metrics", "engine", "infer", "drafting", "config",
          "generation", "speculation", "grammar", "text", "gguf", "tracing",
          "sampling", "net", "base")
SUFFIXES = {".h", ".cc", ".cu", ".cuh"}

# Folders that must not know a transport, a database or a metrics library.
CORES = re.compile(
    r"services/[^/]+/core/|"
    r"common/(base|drafting|engine|generation|gguf|grammar|infer|net|sampling|"
    r"speculation|text|tracing)/")
FOREIGN = re.compile(
    r"grpc(pp)?/|google/protobuf/|foretoken/v1/|libpq|pqxx/|hiredis/|"
    r"prometheus/|boost/")
# Sources that wrap one of them; their headers do not pass it on.
WRAPPERS = ((re.compile(r"boost/"), re.compile(r"common/net/[^/]+\.cc$")),)
WALL_CLOCK = re.compile(r"absl::Now\b|system_clock")
# Writes the date of log lines; sets the origin of monotonic time; dates spans.
DATED = {"common/base/log.cc", "common/base/clock.h",
         "common/tracing/otlp_exporter.cc"}
# The flags of services, the commands of tools, and a program of one source.
PARSERS = {"common/config/flags.cc", "tools/cli/app.cc",
           "tests/lab/crest_postgres_bench.cc"}
# Headers that take as long to compile; names that show that they are used; and
# the headers that may include or reach them, each with its reason.
Heavy = collections.namedtuple("Heavy", "headers names allowed")
HEAVY = (
    Heavy(re.compile(r"grpc(pp)?/|foretoken/v1/.*\.pb\.h$|google/protobuf/"),
          re.compile(r"\b(grpc|v1|protobuf)::"), {
              r"common/rpc/": "wraps gRPC",
              r"services/[^/]+/(adapters/|server\.h$)":
                  "speaks a contract, or counts calls",
              r"services/[^/]+/config\.h$": "has the options of channels",
              r"services/local/(local_verifier|stack)\.h$":
                  "made of the servers",
              r"tools/cli/server_channel\.h$": "has the options of channels",
              r"tests/(attack|e2e|integration|soak)/": "speaks the contracts",
              r"tests/lab/(ping_pong|rest_service/rest_service)\.h$":
                  "a server of its own",
              r"tests/support/(scripted_generation_server|wire_client)\.h$":
                  "speaks a contract",
          }),
    Heavy(re.compile(r"boost/"), re.compile(r"\bboost::"), {
        r"services/gateway/adapters/(client|tls)_socket\.h$":
            "a stream of Asio",
        r"services/gateway/adapters/http_connection\.h$":
            "runs in Asio's loop",
    }),
    # json_fwd.h serves the headers that hold no value of Json.
    Heavy(re.compile(r"nlohmann/json\.hpp$|common/base/json\.h$"),
          re.compile(r"\bJson\b"), {
              r"common/base/json\.h$": "wraps nlohmann-json",
              r"common/drafting/crest_build/work_folder\.h$": "holds values",
              r"services/gateway/core/request_fields\.h$":
                  "takes lists of values",
              r"services/gateway/core/(constraint_fields|field_rules|"
              r"generation_fields|message_blocks|reasoning_rules|tool_rules)"
              r"\.h$": "takes RequestFields",
              r"tools/cli/chat/(chat_session|conversation)\.h$":
                  "holds values",
              r"tools/cli/mode_bench/mode_bench_report\.h$":
                  "has a value as a default",
              r"tests/attack/attack_process\.h$": "holds values",
              r"tests/support/ascii_tokenizer\.h$": "makes values",
              r"tests/unit/infer/tiny_checkpoint\.h$": "holds values",
              r"tests/unit/services/gateway/(fakes|service_fixture)\.h$":
                  "reads values",
          }),
)
# The one service that is made of the others.
COMPOSITE = "services/local/"

_INCLUDE = re.compile(r'^\s*#\s*include\s+["<]([^">]+)[">]', re.MULTILINE)


def read_sources(trees=TREES):
    """{file: text} of every source file."""
    return {path.relative_to(ROOT).as_posix(): path.read_text(encoding="utf-8")
            for tree in trees for path in sorted((ROOT / tree).rglob("*"))
            if path.suffix in SUFFIXES}


def read_includes():
    """{file: [what it includes, as written]} of every source file."""
    return {file: _INCLUDE.findall(text)
            for file, text in read_sources().items()}


def cycles(includes):
    """One line for every include that closes a circle."""
    found, done, path = [], set(), []

    def visit(file):
        if file in path:
            found.append("cycle: " + " -> ".join(path[path.index(file):] +
                                                 [file]))
            return
        if file in done:
            return
        path.append(file)
        for included in includes.get(file, ()):
            visit(included)
        path.pop()
        done.add(file)

    for file in includes:
        visit(file)
    return found


def direction(includes):
    """One line for every include that points up or across services."""
    rank = {tree: i for i, tree in enumerate(PRODUCT)}
    layer = {folder: i for i, folder in enumerate(LAYERS)}
    found = []
    for file, included in includes.items():
        for other in included:
            tree, up = file.split("/")[0], other.split("/")[0]
            if tree not in rank:  # the laboratory includes all of the product
                continue
            if up == "tests":
                found.append(f"test: {file} includes {other}")
            if up not in rank:
                continue
            if rank[up] > rank[tree]:
                found.append(f"up: {file} includes {other}")
            elif (tree == up == "services" and not file.startswith(COMPOSITE)
                  and file.split("/")[1] != other.split("/")[1]):
                found.append(f"across: {file} includes {other}")
            elif tree == up == "common" and (layer[file.split("/")[1]] >
                                             layer[other.split("/")[1]]):
                found.append(f"up: {file} includes {other}")
    return found


def clock(sources):
    """One line for every core file that asks for the date."""
    return [f"wall clock: {file}" for file, text in sources.items()
            if CORES.match(file) and file not in DATED
            and WALL_CLOCK.search(text)]


def parser(includes):
    """One line for every file that includes CLI11 and need not."""
    return [f"parser: {file} includes {other}"
            for file, included in includes.items() if file not in PARSERS
            for other in included if other.startswith("CLI/")]


def reached(file, includes):
    """{file: the file that includes it} of all that `file` includes."""
    via = {}
    queue = collections.deque([file])
    while queue:
        current = queue.popleft()
        for other in includes.get(current, ()):
            if other not in via:
                via[other] = current
                queue.append(other)
    return via


def cores(includes):
    """One line for every core file that reaches a foreign library."""
    return [f"core: {file} reaches {other} in {by}"
            for file in filter(CORES.match, includes)
            for other, by in reached(file, includes).items()
            if FOREIGN.match(other) and not any(
                library.match(other) and wrapper.match(by)
                for library, wrapper in WRAPPERS)]


def headers(sources):
    """One line for every header that passes a heavy one on without a reason."""
    includes = {file: _INCLUDE.findall(text) for file, text in sources.items()}
    found = []
    for file in (file for file in sources if file.endswith(".h")):
        everything = reached(file, includes)
        for heavy in HEAVY:
            via = {other: by for other, by in everything.items()
                   if heavy.headers.match(other)}
            if not any(re.match(path, file) for path in heavy.allowed):
                found += [f"header: {file} reaches {other} in {by}"
                          for other, by in via.items()]
            elif (file in via.values() and
                  not heavy.names.search(_INCLUDE.sub("", sources[file]))):
                found.append(f"header: {file} names nothing of what it "
                             f"includes: {heavy.names.pattern}")
    return found


def reasons(sources):
    """One line for every reason in HEAVY that no header needs."""
    includes = {file: _INCLUDE.findall(text) for file, text in sources.items()}
    return [f"list: no header needs {path}"
            for heavy in HEAVY for path in heavy.allowed
            if not any(file.endswith(".h") and re.match(path, file) and
                       any(map(heavy.headers.match, reached(file, includes)))
                       for file in sources)]


def self_test():
    """What each rule must find, and what it must leave alone."""
    wanted = [
        (cycles, {"common/a.h": ["common/b.h"], "common/b.h": ["common/a.h"]}),
        (direction, {"common/base/a.h": ["services/x/core/b.h"]}),
        (direction, {"services/x/a.h": ["services/y/core/b.h"]}),
        (direction, {"common/infer/a.h": ["common/engine/b.h"]}),
        (direction, {"tools/cli/a.cc": ["tests/lab/rest/b.h"]}),
        (direction, {"services/x/core/a.h": ["tests/support/b.h"]}),
        (cycles, {"tests/lab/a.h": ["tests/lab/b.h"],
                  "tests/lab/b.h": ["tests/lab/a.h"]}),
        (cores, {"services/x/core/a.h": ["common/rpc/b.h"],
                 "common/rpc/b.h": ["grpcpp/grpcpp.h"]}),
        (cores, {"services/x/core/a.cc": ["boost/asio/post.hpp"]}),
        (cores, {"common/net/a.cc": ["grpcpp/grpcpp.h"]}),
        (cores, {"common/net/a.h": ["boost/asio.hpp"]}),
        (clock, {"services/x/core/a.cc": "const auto now = absl::Now();"}),
        (parser, {"tools/cli/a.h": ["CLI/CLI.hpp"]}),
        (headers, {"tools/cli/a.h": "#include \"grpcpp/channel.h\""}),
        (headers, {"common/infer/a.h":
                   "#include \"foretoken/v1/b.grpc.pb.h\"\nv1::B b;"}),
        (headers, {"services/x/server.h": "#include <boost/asio.hpp>"}),
        (headers, {"common/text/a.h": "#include <nlohmann/json.hpp>"}),
        (headers, {"tests/support/a.h": "#include \"common/base/json.h\""}),
        (headers, {"common/text/a.h": "#include \"common/text/b.h\"",
                   "common/text/b.h": "#include \"common/base/json.h\""}),
        (headers, {"common/rpc/a.h": "#include \"grpcpp/channel.h\"\nint a;"}),
        (reasons, {"common/base/json.h": "#include <nlohmann/json.hpp>"}),
        (headers, {"common/net/a.h": "#include \"boost/asio.hpp\""}),
    ]
    allowed = [
        (cycles, {"common/a.h": ["common/b.h", "common/c.h"],
                  "common/b.h": ["common/c.h"], "common/c.h": ["vector"]}),
        (direction, {"services/local/a.h": ["services/y/core/b.h"],
                     "tools/cli/a.cc": ["services/x/b.h", "common/base/c.h"],
                     "common/engine/a.h": ["common/infer/b.h"],
                     "tests/lab/a.cc": ["tools/cli/b.h", "tests/support/c.h",
                                        "services/x/core/d.h"]}),
        (cores, {"services/x/server.h": ["grpcpp/grpcpp.h"],
                 "services/x/core/a.h": ["common/base/b.h"],
                 "common/net/a.cc": ["boost/asio.hpp"]}),
        (clock, {"services/x/core/a.cc": "const auto now = MonotonicNow();",
                 "common/base/log.cc": "Format(absl::Now())"}),
        (parser, {"tools/cli/app.cc": ["CLI/CLI.hpp"],
                  "tools/cli/a.cc": ["tools/cli/app.h"]}),
        (headers, {"tools/cli/a.cc": "#include \"grpcpp/channel.h\"",
                   "services/x/server.h":
                       "#include \"foretoken/v1/b.grpc.pb.h\"\nv1::B b;",
                   "services/x/config.h": "#include \"services/x/server.h\"",
                   "common/text/a.h": "#include \"common/base/json_fwd.h\""}),
    ]
    found = [f"{rule.__name__} misses {sources}" for rule, sources in wanted
             if not rule(sources)]
    found += [f"{rule.__name__} forbids {sources}" for rule, sources in allowed
              if rule(sources)]
    if len(read_includes()) < 100:
        found.append("the sources were not found")
    return found


def main():
    rules = {"cycles": cycles, "direction": direction, "cores": cores,
             "parser": parser}
    name = sys.argv[1] if len(sys.argv) == 2 else ""
    if name == "self":
        found = self_test()
    elif name == "clock":
        found = clock(read_sources())
    elif name == "headers":
        sources = read_sources((*PRODUCT, "tests"))
        found = headers(sources) + reasons(sources)
    elif name in rules:
        found = rules[name](read_includes())
    else:
        sys.exit(__doc__)
    print("\n".join(found) or f"{name}: ok")
    sys.exit(1 if found else 0)


main()
