"""Checks of what is deployed against what the sources say.

    check.py dashboard|rules|flags|manifests|chart|features|schemas|extensions|routes
    check.py upgrade|self
    check.py image|certificates BINARIES

Exits 0 if all is well, 1 with what is not, 77 if the tool that a check needs
(promtool, kubectl, helm, schemas) is not here: tools/deps --deploy brings them.
HELM, KUBECTL and PROMTOOL name others.
"""

import json
import os
import pathlib
import re
import shutil
import sys
import tempfile

import catalog
import promql
from certificates import (called, check_certificates, issued, missing_names,
                          scripted)
from chart import CHART, KUBE_VERSION, SETS, rendered, template
from features import check_features
from schemas import check_extensions, check_routes, check_schemas
from tools import ROOT, SKIPPED, find, report, run, tool
from upgrade import check_upgrade

DASHBOARDS = CHART / "dashboards"
RULES = CHART / "rules/foretoken.yaml"
RUNBOOK = "docs/alerts.md"


# Dashboard and rules.

def dashboard_queries(dashboard):
    """[(panel's title, query)] of all panels."""
    queries = []
    for panel in dashboard["panels"]:
        for target in panel.get("targets", []):
            queries.append((panel["title"], target["expr"]))
    return queries


def rule_queries(text, kind="alert|record"):
    """[(name, query)] of alerts, recorded rules or both: an expression on its
    line, or folded below `>-`."""
    queries = []
    for rule in re.split(rf"(?m)^ *- (?:{kind}): ", text)[1:]:
        name = rule.split("\n", 1)[0]
        found = re.search(r"(?m)^( +)expr: (?:>-\n((?:\1 +.*\n)+)|(.*)\n)", rule)
        if found is None:
            raise SystemExit(f"{name}: no expression found")
        queries.append((name, " ".join((found[2] or found[3]).split())))
    return queries


def runbook_problems(alerts, text):
    """Every alert has a section of several sentences, and every section that is
    called like an alert is one."""
    sections = dict(re.findall(r"(?m)^### (\w+)\n\n((?:(?!^#).*\n)+)", text))
    problems = [f"{alert}: no section in {RUNBOOK}"
                for alert in alerts
                if len(re.findall(r"\.\s", sections.get(alert, ""))) < 2]
    return problems + [f"{RUNBOOK}: {name} is no alert"
                       for name in sections if name not in alerts]


def query_problems(queries, metrics):
    return [f"{where}: {problem}" for where, query in queries
            for problem in promql.problems(query, metrics)]


def check_dashboard():
    problems, queries = [], []
    for path in sorted(DASHBOARDS.iterdir()):
        dashboard = json.loads(path.read_text())
        queries += dashboard_queries(dashboard)
        ids = [panel["id"] for panel in dashboard["panels"]]
        if len(set(ids)) != len(ids):
            problems.append(f"{path.name}: panels share an id")
    problems += query_problems(queries, catalog.metrics())
    used = " ".join(query for _, query in queries)
    for name in catalog.metrics():
        if not re.search(rf"\b{name}(?:_bucket|_sum|_count)?\b", used):
            problems.append(f"{name}: no panel shows it")
    print(f"{len(queries)} queries")
    promtool = find("promtool")
    if promtool is None:
        print("skipped: the queries' syntax, no promtool here")
    elif not problems:
        check_syntax(promtool, queries)
    return report(problems)


def check_syntax(promtool, queries):
    """Each query as a recording rule, its variables filled in."""
    lines = ["groups:", "- name: dashboard", "  rules:"]
    for i, (_, query) in enumerate(queries):
        filled = query.replace("$__rate_interval", "5m")
        lines += [f"  - record: panel:{i}", "    expr: " + json.dumps(filled)]
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "dashboard.yaml"
        path.write_text("\n".join(lines) + "\n")
        run(promtool, "check", "rules", path)


def check_rules():
    queries = rule_queries(RULES.read_text())
    problems = query_problems(queries, catalog.metrics())
    tests = (ROOT / "tests/deploy/rules_test.yaml").read_text()
    problems += runbook_problems(
        [name for name, _ in rule_queries(RULES.read_text(), "alert")],
        (ROOT / RUNBOOK).read_text())
    for name, _ in rule_queries(RULES.read_text(), "record"):
        if f"- expr: {name}\n" not in tests:
            problems.append(f"{name}: no test asks for it")
    for alert, _ in rule_queries(RULES.read_text(), "alert"):
        if not re.search(rf"alertname: {alert}\n(?: +(?!- ).*\n)*? +exp_alerts:\n",
                         tests):
            problems.append(f"{alert}: no test sees it fire")
    if report(problems):
        return 1
    promtool = tool("promtool")
    run(promtool, "check", "rules", RULES)
    run(promtool, "test", "rules", ROOT / "tests/deploy/rules_test.yaml")
    print(f"{len(queries)} rules checked and tested")
    return 0


# Flags: in values.schema.json, and in manifests.

def schema_flags():
    """{service: flags that `config` of the chart takes}."""
    schema = json.loads((CHART / "values.schema.json").read_text())
    keys = {"orchestrator": "orchestrator", "verifier": "verifier",
            "draft-worker": "draftWorker", "trie-drafter": "trieDrafter",
            "crest": "crest", "gateway": "gateway"}
    return {service: schema["properties"][key]["properties"]["config"]
            ["propertyNames"]["enum"] for service, key in keys.items()}


def flag_problems(of_schema, templates):
    problems, every = [], set()
    # What the templates set by themselves; they write some names in parts.
    fixed = set(re.findall(r"\bFORETOKEN_[A-Z_]+\b", templates))
    for service, names in of_schema.items():
        taken, secrets = catalog.flags(service)
        every |= {catalog.environment_name(flag) for flag in taken}
        for flag in names:
            if flag not in taken:
                problems.append(f"{service}.config.{flag}: no such flag")
            elif flag in secrets:
                problems.append(f"{service}.config.{flag}: a secret belongs "
                                "in a Secret")
    for name in sorted(fixed - every):
        problems.append(f"{name}: no service reads it")
    return problems


# For measurements, or written in parts by the templates.
NOT_OFFERED = {"random-model", "random-seed", "crest", "draft-worker",
               "trie-drafter"} | {
    peer + flag for peer in ("verifier", "drafter", "orchestrator") for flag in
    ("-insecure", "-tls-ca", "-tls-cert", "-tls-key", "-tls-name",
     "-token-file")}


def check_flags():
    templates = "".join(path.read_text()
                        for path in sorted((CHART / "templates").iterdir()))
    of_schema = schema_flags()
    for service, names in of_schema.items():
        taken, secrets = catalog.flags(service)
        for flag in sorted(taken - secrets - set(names) - NOT_OFFERED):
            if catalog.environment_name(flag) not in templates:
                print(f"note: values.schema.json does not offer {service}'s "
                      f"--{flag}")
    return report(flag_problems(of_schema, templates))


def manifest_problems(text):
    """Every FORETOKEN_* of a service's documents is a flag of its own."""
    problems, seen = [], 0
    for document in re.split(r"(?m)^---$", text):
        names = set(re.findall(r"\bFORETOKEN_[A-Z_]+\b", document))
        if not names:
            continue
        component = re.search(r"app\.kubernetes\.io/component: (\S+)", document)
        service = component[1] if component else None
        if service not in catalog.SERVICES:
            problems.append(f"{sorted(names)}: of which service?")
            continue
        known = {catalog.environment_name(flag)
                 for flag in catalog.flags(service)[0]}
        for name in sorted(names - known):
            problems.append(f"{service}: does not read {name}")
        seen += len(names)
    if seen < 40:
        problems.append(f"only {seen} variables found in the manifests")
    return problems


def name_problems(text, certificate):
    """Names of the configuration that are no headless Service, or that the
    certificate does not have."""
    headless = set()
    for document in text.split("\n---\n"):
        if (re.search(r"(?m)^kind: Service$", document)
                and "clusterIP: None" in document):
            name = re.search(r"(?m)^  name: (\S+)", document)[1]
            headless |= {f"{name}:{port}"
                         for port in re.findall(r"\bport: (\d+)", document)}
    names = called(text)
    problems = [f"{name}: no headless Service" for name in names - headless]
    if len(names) < 3:
        problems.append(f"only {len(names)} names found in the manifests")
    return problems + missing_names(text, certificate)


def kustomize(path):
    return run(tool("kubectl"), "kustomize", path)


def check_manifests():
    problems = []
    for path in ("base", "overlays/cpu", "overlays/gpu"):
        text = kustomize(ROOT / "k8s" / path)
        problems += [f"k8s/{path}: {p}"
                     for p in manifest_problems(text)
                     + name_problems(text, scripted())]
        for wanted in ("readOnlyRootFilesystem: true", "runAsNonRoot: true",
                       "allowPrivilegeEscalation: false"):
            if text.count(wanted) != len(catalog.SERVICES):
                problems.append(f"k8s/{path}: {wanted}: not in every service")
        gpus = text.count("nvidia.com/gpu: ")
        if (gpus > 0) != path.endswith("gpu"):
            problems.append(f"k8s/{path}: {gpus} containers ask for GPUs")
    return report(problems)


# The chart itself.

def normal_form(text):
    """The same manifests in kustomize's spelling."""
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder)
        (path / "all.yaml").write_text(text)
        (path / "kustomization.yaml").write_text(
            "resources: [all.yaml]\nsortOptions: {order: legacy}\n")
        return kustomize(path)


def notes(value_set):
    """What `helm install` prints: `helm template` renders it, but keeps it."""
    with tempfile.TemporaryDirectory() as folder:
        copy = pathlib.Path(folder) / "foretoken"
        shutil.copytree(CHART, copy)
        shutil.move(copy / "templates/NOTES.txt", copy / "notes.txt")
        (copy / "templates/notes.yaml").write_text(
            'notes: |-\n  {{- tpl (.Files.Get "notes.txt") . | nindent 2 }}\n')
        return run(tool("helm"), "template", "foretoken", copy, "--namespace",
                   "foretoken", "-f", value_set, "-s", "templates/notes.yaml",
                   "--kube-version", KUBE_VERSION)


def notes_problems():
    """The notes end with a command that generates, with flags that exist; they
    name what a certificate of one's own needs."""
    flags = set(re.findall(r'"--([a-z-]+)', "".join(
        path.read_text() for path in (ROOT / "tools/cli").glob("*.cc"))))
    problems = []
    for value_set in SETS:
        last = notes(value_set).rstrip().splitlines()[-1]
        if "-- foretoken generate --server localhost:50050 " not in last:
            problems.append(f"{value_set.name}: the notes end with {last!r}")
        for flag in set(re.findall(r" --([a-z-]+)", last)) - flags:
            problems.append(f"{value_set.name}: notes: generate has no --{flag}")
    said = notes(ROOT / "tests/deploy/values/defaults.yaml").split()
    return problems + [f"the notes do not name {name}"
                       for name in issued() if name not in said]


def check_chart():
    run(tool("helm"), "lint", "--strict", CHART)
    problems = notes_problems()
    everything = rendered(ROOT / "tests/deploy/values/everything.yaml")
    problems += (manifest_problems(everything)
                 + name_problems(everything, issued()))
    # The one rule of the policies with the collector's port.
    if everything.count("port: 4318") != 1 or "port: 4318" in template():
        problems.append("want a way to the collector if one is configured")
    for arguments, wanted in REFUSED:
        said = template(*arguments, fails=True)
        if wanted not in said:
            problems.append(f"{arguments}: said {said!r}, want {wanted!r}")
    if find("kubectl") is None:
        print("skipped: k8s/ against the chart, no kubectl here")
    else:
        normal_form(everything)
        common = ["-f", ROOT / "k8s/values.yaml"]
        for overlay in ("cpu", "gpu"):
            folder = ROOT / "k8s/overlays" / overlay
            chart = template(*common, "-f", folder / "values.yaml")
            if normal_form(chart) != kustomize(folder):
                problems.append(f"k8s/overlays/{overlay} is not what the chart "
                                "gives: run k8s/render, or mend its patches")
    return report(problems)


REFUSED = [
    (["--set", "tls.enabled=false"], "set insecure=true"),
    (["--set", "insecure=true"], "want tls.enabled=false"),
    (["--set", "tls.secretName="], "tls.secretName"),
    (["--set", "tls.generate=true,tls.enabled=false,insecure=true"],
     "tls.generate: want"),
    (["--set", "tls.generate=true,tls.issuer.name=x"], "no tls.issuer"),
    (["--set", "tls.enabled=false,insecure=true,auth.public.secretName=x"],
     "cross the network in clear"),
    (["--set", "models.volume.existingClaim=a,models.volume.hostPath=/b"],
     "not both"),
    (["--set", "crest.postgres.secretName="], "crest.postgres.secretName"),
    (["--set", "corpus.existingClaim=a,corpus.claim.create=true"],
     "corpus: want one of"),
    (["--set", "corpus.existingClaim=a,corpus.fetch.image=b"],
     "fetch.image, not both"),
    (["--set", "corpus.fetch.image=b"], "corpus.fetch.command"),
    (["--set", "crest.build.enabled=true"], "want corpus.existingClaim"),
    (["--set", "crest.build.enabled=true,crest.build.datastore=code,"
      "corpus.existingClaim=a"], "want code=postgres in crest.datastores"),
    (["--set", "trieDrafter.priorBuild.enabled=true,corpus.existingClaim=a"],
     "want trieDrafter.prior"),
    (["--set", "trieDrafter.priorBuild.enabled=true,corpus.existingClaim=a,"
      "trieDrafter.prior=/tmp/prior,models.volume.existingClaim=b"],
     "trieDrafter.prior on it"),
    (["--set", "crest.build.config.postgres-url=x"], "postgres-url"),
    (["-f", ROOT / "tests/deploy/values/grown.yaml", "--set",
      "trieDrafter.priorBuild.config.exclude-ids=a"], "prompts excludes"),
    (["-f", ROOT / "tests/deploy/values/trial.yaml", "--set",
      "trieDrafter.priorBuild.config.minutes=5"], "prompts asks for"),
    (["--set", "verifier.autoscaling.enabled=true"], "want autoscaling.by"),
    (["--set", "autoscaling.by=keda,orchestrator.autoscaling.requestsRunning=0"],
     "orchestrator.autoscaling: every target is 0"),
    (["--set", "orchestrator.autoscaling.minReplicas=9"], "above maxReplicas"),
    (["--set", "orchestrator.grpcRoute.enabled=true"], "want the gateways"),
    (["--set", "gateway.httpRoute.enabled=true"], "want the gateways"),
    (["--set", "gateway.enabled=false,gateway.ingress.enabled=true"],
     "want no way in to it"),
    (["--set", "auth.public.secretName=x"], "auth.gateway.secretName: required"),
    (["--set", "auth.gateway.secretName=x"], "want auth.public"),
    (["--set", "tls.enabled=false,insecure=true,auth.gateway.secretName=x"],
     "cross the network in clear"),
    (["--set", "gateway.config.api-key-file=x"], "api-key-file"),
]


# The image's run-time packages.

def depends(packages):
    """`packages` and all libraries they depend on."""
    every, new = set(), set(packages)
    while new:
        every |= new
        text = run("dpkg-query", "-W", "-f", "${Depends},", *sorted(new))
        new = {name for name in re.findall(r"(?:^|[,|]) *([\w.+-]+)", text)
               if re.match("z?lib", name)} - every
    return every


def libraries_needed(folder):
    """File names of all that the binaries load."""
    files = set()
    for binary in sorted(folder.glob("foretoken*")):
        if os.access(binary, os.X_OK):
            for path in re.findall(r"=> (/\S+)", run("ldd", binary)):
                files.add(os.path.basename(os.path.realpath(path)))
    return files


def image_problems(dockerfile, wanted):
    stage = dockerfile[dockerfile.index("\nFROM debian:12-slim"):]
    listed = re.search(r"--no-install-recommends([^&]*)&&", stage)[1]
    every = depends(listed.replace("\\", " ").split())
    files = run("dpkg", "-L", *sorted(every)).splitlines()
    have = {os.path.basename(line) for line in files}
    return [f"{library}: no package of the image has it"
            for library in sorted(wanted - have)]


def check_image():
    tool("dpkg-query")
    folder = pathlib.Path(sys.argv[2])
    if not (folder / "foretoken-orchestrator").exists():
        print(f"skipped: no services in {folder}")
        return SKIPPED
    dockerfile = (ROOT / "tools/image/Dockerfile").read_text()
    wanted = libraries_needed(folder)
    problems = image_problems(dockerfile, wanted)
    if not image_problems(dockerfile.replace("libhiredis0.14 ", ""), wanted):
        problems.append("not seen: a package that is missing")
    return report(problems)


# The checks' own test: each must see what is wrong.

def check_self():
    metrics = catalog.metrics()
    wrong = [
        "rate(foretoken_round_total[5m])",                        # no such name
        "foretoken_rounds_total",                                 # no rate
        'rate(foretoken_requests_total{reason="late"}[5m])',      # no such label
        "sum by (drafter) (rate(foretoken_rounds_total[5m]))",    # nor there
        "foretoken_tree_nodes",                                   # a histogram
        "rate(foretoken_rounds_total_bucket[5m])",                # none
        "up",                                                     # not ours
    ]
    right = [
        'rate(foretoken_requests_total{code!~"OK|CANCELLED",job="x"}[5m])',
        "sum by (le, drafter) (rate(foretoken_draft_latency_seconds_bucket[5m]))",
        "sum by (drafter, reason) "
        "(increase(foretoken_degraded_rounds_total[5m]))",
        "max by (service) (foretoken_breaker_state)",
    ]
    problems = [f"not seen: {query}" for query in wrong
                if not promql.problems(query, metrics)]
    problems += [f"{query}: {promql.problems(query, metrics)}"
                 for query in right if promql.problems(query, metrics)]
    if not query_problems(rule_queries(RULES.read_text().replace(
            "foretoken_kv_pages_free /", "foretoken_kv_pages_fre /")), metrics):
        problems.append("not seen: a wrong name in a rule")
    dashboard = json.loads((DASHBOARDS / "foretoken.json").read_text().replace(
        "foretoken_trie_rounds_total", "foretoken_trie_round_total", 1))
    if not query_problems(dashboard_queries(dashboard), metrics):
        problems.append("not seen: a wrong name in the dashboard")
    section = "### A\n\nCause. Cure.\n\n## B\n"
    if runbook_problems(["A"], section):
        problems.append("an alert with its section is a problem")
    if len(runbook_problems(["C"], section)) != 2:
        problems.append("not seen: an alert without a section, or a section without")
    if not flag_problems({"verifier": ["max-session"]}, ""):
        problems.append("not seen: a flag that is none")
    if not flag_problems({"crest": ["postgres-url"]}, ""):
        problems.append("not seen: a secret among flags")
    if not flag_problems(schema_flags(), "FORETOKEN_LISTENS: x"):
        problems.append("not seen: a variable that nobody reads")
    label = "app.kubernetes.io/component: crest\n"
    if len(manifest_problems(label + "FORETOKEN_VERIFIERS: x")) != 2:
        problems.append("not seen: a variable of another service")
    names = "dns:///foretoken-crest:1 dns:///b:1\n  FORETOKEN_ORCHESTRATOR: c:1"
    if len(name_problems(names, ["localhost", "foretoken-crest", "b", "c"])) != 3:
        problems.append("not seen: a name that does not resolve to pods")
    services = "\n---\n".join(
        f"kind: Service\n  name: {name}\n  clusterIP: None\n  port: {port}"
        for name, port in (("foretoken-crest", 1), ("b", 1), ("c", 1)))
    described = f"{services}\n---\n{names}"
    if name_problems(described, ["localhost", "foretoken-crest", "b", "c"]):
        problems.append("names of Services and of the certificate are a problem")
    if len(name_problems(described, ["localhost", "b", "c"])) != 1:
        problems.append("not seen: a name that the certificate does not have")
    return report(problems)


CHECKS = {"dashboard": check_dashboard, "rules": check_rules,
          "flags": check_flags, "manifests": check_manifests,
          "chart": check_chart, "features": check_features,
          "schemas": check_schemas,
          "extensions": check_extensions, "routes": check_routes,
          "upgrade": check_upgrade, "image": check_image, "self": check_self,
          "certificates": lambda: check_certificates(pathlib.Path(sys.argv[2]))}

if __name__ == "__main__":
    wanted = 3 if sys.argv[1:2] in (["image"], ["certificates"]) else 2
    if len(sys.argv) != wanted or sys.argv[1] not in CHECKS:
        sys.exit(__doc__)
    sys.exit(CHECKS[sys.argv[1]]())
