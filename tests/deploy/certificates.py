"""The certificates between the services: the chart's own, those that it asks
cert-manager for, and that of k8s/certificate. All have the names by which the
services call each other, and a service serves with the chart's own."""

import base64
import contextlib
import http.server
import json
import pathlib
import re
import subprocess
import sys
import tempfile
import threading
import time

import chart
from features import Manifests
from tools import ROOT, report, run, tool

TRIAL = ROOT / "helm/trial.yaml"


def called(text):
    """NAME:PORT of every service that the configuration of `text` calls."""
    found = set(re.findall(r"dns:///([^\s\",]+)", text))
    # What gRPC resolves by itself.
    return found | set(
        re.findall(r'(?m)^ +FORETOKEN_ORCHESTRATOR: "?([^\s"]+)', text))


def missing_names(text, certificate):
    """Names that the configuration calls, and the probes', without a certificate."""
    names = {address.split(":")[0] for address in called(text)} | {"localhost"}
    return [f"{name}: not in the certificate"
            for name in sorted(names - set(certificate))]


def issued(*arguments):
    """The names that the chart asks cert-manager for."""
    manifest, = chart.objects(chart.template(
        "--set", "tls.issuer.name=private", "-s", "templates/certificate.yaml",
        *arguments))
    return manifest["spec"]["dnsNames"]


def scripted():
    """The names of k8s/certificate."""
    return run(ROOT / "k8s/certificate", "--names").split()


def names_of(certificate):
    """The DNS names in a certificate, a file."""
    text = run(tool("openssl"), "x509", "-noout", "-ext", "subjectAltName", "-in",
               certificate)
    return re.findall(r"DNS:([^\s,]+)", text)


def written(secret, folder):
    """The files of a Secret, in `folder`; its keys are the chart's."""
    if sorted(secret["data"]) != ["ca.crt", "tls.crt", "tls.key"]:
        raise SystemExit(f"{chart.name_of(secret)}: {sorted(secret['data'])}")
    for name, data in secret["data"].items():
        (folder / name).write_bytes(base64.b64decode(data))
    return folder


def pair_problems(what, folder, names):
    """The certificate has the names, its key, and is trusted by its ca.crt."""
    openssl, problems = tool("openssl"), []
    found = names_of(folder / "tls.crt")
    if sorted(found) != sorted(names):
        return [f"{what}: names {sorted(set(found) ^ set(names))}"]
    key = run(openssl, "pkey", "-pubout", "-in", folder / "tls.key")
    if run(openssl, "x509", "-noout", "-pubkey", "-in", folder / "tls.crt") != key:
        problems.append(f"{what}: the key is another certificate's")
    for name in names:
        if not name.startswith("*"):
            run(openssl, "verify", "-CAfile", folder / "ca.crt",
                "-verify_hostname", name, folder / "tls.crt")
    # A year, as the pages say.
    run(openssl, "x509", "-noout", "-checkend", 330 * 86400, "-in",
        folder / "tls.crt")
    return problems


def served_problems(binaries, folder):
    """A service with this certificate answers a client that trusts its CA, by the
    names of its Services, and by no other."""
    sys.path.append(str(ROOT / "tests/e2e"))
    import free_ports
    port = free_ports.in_a_row(1)[0]
    service = subprocess.Popen(
        [binaries / "foretoken-trie-drafter", "--tokenizer",
         ROOT / "tools/demo/target", "--listen", f"127.0.0.1:{port}",
         "--tls-cert", folder / "tls.crt", "--tls-key", folder / "tls.key"],
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    health = [binaries / "foretoken", "health", "--server", f"localhost:{port}",
              "--server-tls-ca", folder / "ca.crt"]
    try:
        run(*health, "--wait", 60)
        run(*health, "--server-tls-name", "foretoken-trie-drafter-headless")
        run(*health, "--server-tls-name", "foretoken-other", fails=True)
    finally:
        service.terminate()
        service.wait()
    return []


def trial_problems(names, folder):
    """helm/trial.yaml: what the pods mount is what the chart makes, and two
    processors are enough."""
    manifests, problems = Manifests(TRIAL), []
    secrets = manifests.of("Secret")
    made = written(secrets["foretoken-tls"], folder)
    problems += pair_problems("helm/trial.yaml", made, names)
    processors = 0
    for workload, pod in manifests.pods().items():
        for container in pod["containers"]:
            share = container["resources"]["requests"]["cpu"]
            processors += (int(share[:-1]) / 1000 if share.endswith("m")
                           else int(share))
        for volume in pod["volumes"]:
            name = volume.get("secret", {}).get("secretName")
            if name and name not in secrets:
                problems.append(f"helm/trial.yaml: {workload} waits for {name}")
    for workload in manifests.of("Deployment") | manifests.of("StatefulSet"):
        if workload not in manifests.pods():
            problems.append(f"helm/trial.yaml: {workload} has no pod")
    if processors > 2:
        problems.append(f"helm/trial.yaml: requests {processors} processors")
    return problems


class Cluster(http.server.BaseHTTPRequestHandler):
    """What Helm asks a cluster that has one Secret, `server.secret`, or none."""

    def do_GET(self):  # pylint: disable=invalid-name
        """Answers like the API server."""
        secret = self.server.secret
        path = "/api/v1/namespaces/foretoken/secrets/foretoken-tls"
        found = {
            "/version": {"major": "1", "minor": "29", "gitVersion": "v1.29.0"},
            "/api": {"kind": "APIVersions", "versions": ["v1"]},
            "/apis": {"kind": "APIGroupList", "apiVersion": "v1", "groups": []},
            "/api/v1": {"kind": "APIResourceList", "groupVersion": "v1", "resources": [
                {"name": "secrets", "singularName": "secret", "namespaced": True,
                 "kind": "Secret", "verbs": ["get"]}]},
            **({path: secret} if secret else {})}.get(self.path.partition("?")[0])
        missing = {"kind": "Status", "apiVersion": "v1", "status": "Failure",
                   "reason": "NotFound", "code": 404}
        body = json.dumps(found or missing).encode()
        self.send_response(200 if found else 404)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format, *args):  # pylint: disable=redefined-builtin
        """No line for a request."""


@contextlib.contextmanager
def upgrades():
    """upgrade(SECRET, ARGUMENT...): the Secret that an upgrade makes of the one that
    the cluster has."""
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Cluster) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()

        def upgrade(secret, *arguments):
            server.secret = secret
            made, = chart.objects(run(
                tool("helm"), "template", "foretoken", chart.CHART, "--namespace",
                "foretoken", "--set", "tls.generate=true", "-s",
                "templates/certificate.yaml", "--dry-run=server", "--kube-apiserver",
                f"http://127.0.0.1:{server.server_address[1]}", *arguments))
            return made
        yield upgrade
        server.shutdown()


def kept_problems():
    """An upgrade keeps the chart's certificate while it has the names and 30 days, and
    makes another one otherwise."""
    problems, day = [], 86400
    with upgrades() as upgrade, tempfile.TemporaryDirectory() as scratch:
        first = upgrade(None)
        expires = int(first["metadata"]["annotations"]["foretoken/certificate-expires"])
        folder = written(first, pathlib.Path(scratch))
        for seconds, fails in ((-60, False), (60, True)):
            run(tool("openssl"), "x509", "-noout", "-checkend",
                round(expires - time.time()) + seconds, "-in", folder / "tls.crt",
                fails=fails)

        def altered(**annotations):
            secret = json.loads(json.dumps(first))
            secret["metadata"]["annotations"] = {
                name: text for name, text in {
                    **secret["metadata"]["annotations"],
                    **{f"foretoken/certificate-{key}": value
                       for key, value in annotations.items()}}.items() if text}
            return secret
        now = round(time.time())
        lacking = altered()
        del lacking["data"]["tls.key"]
        renamed = ["--set", "tls.serverName=one.name"]
        for what, secret, arguments, kept in (
                ("nothing changed", first, [], True),
                ("31 days left", altered(expires=str(now + 31 * day)), [], True),
                ("29 days left", altered(expires=str(now + 29 * day)), [], False),
                ("it has expired", altered(expires=str(now - day)), [], False),
                ("another name", first, renamed, False),
                ("no annotations", altered(names="", expires=""), [], False),
                ("no key", lacking, [], False)):
            made = upgrade(secret, *arguments)
            if (made["data"] == secret["data"]) != kept:
                problems.append(f"an upgrade, {what}: kept {not kept}, want {kept}")
            annotations = secret["metadata"].get("annotations")
            if kept and made["metadata"]["annotations"] != annotations:
                problems.append(f"an upgrade, {what}: other annotations")
            if not kept:
                written(made, folder)
                problems += pair_problems(f"an upgrade, {what}", folder,
                                          issued(*arguments))
    return problems


def check_certificates(binaries):
    problems = []
    names = issued()
    for what, found in (("the chart", names), ("k8s/certificate", scripted())):
        problems += [f"{what}: {problem}"
                     for problem in missing_names(chart.template(), found)]
    other = chart.template("--set", "fullnameOverride=other")
    if missing_names(other, issued("--set", "fullnameOverride=other")):
        problems.append("another name of the release is not in its certificate")
    if not missing_names(other, names):
        problems.append("not seen: a name that a certificate does not have")
    without = chart.template("--set", "tls.issuer=null")
    if any(one["kind"] == "Certificate" for one in chart.objects(without)):
        problems.append("a Certificate without an issuer")
    certificate, = chart.objects(chart.template(
        "--set", "tls.issuer.name=1.0,tls.issuer.kind=ClusterIssuer", "-s",
        "templates/certificate.yaml"))
    if certificate["spec"]["issuerRef"] != {"name": "1.0", "kind": "ClusterIssuer",
                                            "group": "cert-manager.io"}:
        problems.append(f"issuerRef: {certificate['spec']['issuerRef']}")
    problems += kept_problems()
    if "one.name" not in issued("--set", "tls.serverName=one.name"):
        problems.append("tls.serverName is not in the certificate")
    with tempfile.TemporaryDirectory() as scratch:
        folder = pathlib.Path(scratch)
        secret, = chart.objects(run(ROOT / "k8s/certificate"))
        problems += pair_problems("k8s/certificate", written(secret, folder),
                                  scripted())
        problems += trial_problems(names, folder)
        problems += served_problems(binaries, folder)
        if not pair_problems("", folder, names + ["one.name"]):
            problems.append("not seen: a certificate without a name")
    print(json.dumps(names))
    return report(problems)
