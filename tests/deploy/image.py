"""What tests/deploy/image asks of the chart and of the image.

    image.py render OUT             the pods that Helm renders, as JSON
    image.py names PODS             the names of Services
    image.py arguments PODS NAME POSTGRES_URL   for `podman run`, after its image
                                    and its network, one a line
    image.py status FILE            a /proc/PID/status without privileges
    image.py sbom SBOM PACKAGES     the SBOM names all packages
"""

import json
import pathlib
import re
import sys

import chart
from tools import report

VALUES = ["--set", "tls.enabled=false,insecure=true",
          "--set", "crest.build.enabled=true,corpus.existingClaim=corpus",
          "--set", "crest.build.datastore=code,crest.datastores[0]=code=postgres"]


def render(out):
    objects = chart.objects(chart.template(*VALUES))
    config = {o["metadata"]["name"]: o["data"] for o in objects
              if o["kind"] == "ConfigMap"}
    pods = {}
    for o in objects:
        if o["kind"] in ("Deployment", "StatefulSet", "Job"):
            labels = o["spec"]["template"]["metadata"]["labels"]
            pods[labels["app.kubernetes.io/component"]] = o["spec"]["template"]["spec"]
    services = [o["metadata"]["name"] for o in objects if o["kind"] == "Service"]
    pathlib.Path(out).write_text(json.dumps(
        {"config": config, "pods": pods, "services": services}))
    return report([] if len(pods) == 7 else [f"pods: {sorted(pods)}"])


def print_names(path):
    print("\n".join(json.loads(pathlib.Path(path).read_text())["services"]))
    return 0


def flags_of(pod, container):
    """The flags that a security context and its volumes mean."""
    inner, outer = container["securityContext"], pod["securityContext"]
    flags = ["--user", f"{outer['runAsUser']}:{outer['runAsGroup']}"]
    if not outer["runAsNonRoot"] or inner["allowPrivilegeEscalation"]:
        sys.exit("the chart's pod may be root")
    flags += ["--security-opt", "no-new-privileges"]
    if inner["readOnlyRootFilesystem"]:
        flags += ["--read-only", "--read-only-tmpfs=false"]
    for capability in inner["capabilities"]["drop"]:
        flags += ["--cap-drop", capability]
    empty = {volume["name"] for volume in pod.get("volumes", [])
             if "emptyDir" in volume}
    for mount in container.get("volumeMounts", []):
        if mount["name"] in empty:
            flags += ["--tmpfs", mount["mountPath"] + ":rw,mode=1777"]
    return flags


def environment(container, config, secrets):
    variables = {}
    for source in container.get("envFrom", []):
        variables.update(config[source["configMapRef"]["name"]])
    for variable in container.get("env", []):
        if "value" in variable:
            variables[variable["name"]] = variable["value"]
        else:
            variables[variable["name"]] = secrets[variable["name"]]
    return [word for name, value in variables.items()
            for word in ("--env", f"{name}={value}")]


def print_arguments(path, name, postgres):
    rendered = json.loads(pathlib.Path(path).read_text())
    pod = rendered["pods"][name]
    container = pod["containers"][0]
    words = flags_of(pod, container)
    words += environment(container, rendered["config"],
                         {"FORETOKEN_POSTGRES_URL": postgres,
                          "FORETOKEN_REDIS_URL": ""})
    print("\n".join(words))
    print("IMAGE")
    print("\n".join(container.get("command", []) + container.get("args", [])))
    return 0


def check_status(path):
    status = dict(re.findall(r"(?m)^(\w+):\s*(.*)$", pathlib.Path(path).read_text()))
    problems = [f"{key}: {status[key]}" for key in ("Uid", "Gid")
                if set(status[key].split()) != {"65532"}]
    problems += [f"{key}: {status[key]}" for key in status
                 if key.startswith("Cap") and int(status[key], 16)]
    if status["NoNewPrivs"] != "1":
        problems.append("privileges can be gained")
    return report(problems)


def check_sbom(path, packages):
    sbom = json.loads(pathlib.Path(path).read_text())
    named = {(p["name"], p["versionInfo"]) for p in sbom["packages"]}
    want = {tuple(line.split()) for line in
            pathlib.Path(packages).read_text().splitlines()}
    problems = [f"not in the SBOM: {package}" for package in sorted(want - named)]
    ids = [p["SPDXID"] for p in sbom["packages"]]
    problems += [f"twice in the SBOM: {i}" for i in set(ids) if ids.count(i) > 1]
    described = set(ids) | {"SPDXRef-DOCUMENT"}
    for relation in sbom["relationships"]:
        if relation["relatedSpdxElement"] not in described:
            problems.append(f"not in the SBOM: {relation}")
    if not any(p["name"] == "nlohmann-json3-dev" for p in sbom["packages"]):
        problems.append("the SBOM misses what was compiled in")
    if len(want) < 50:
        problems.append(f"only {len(want)} packages in the image")
    print(f"SBOM: {len(want)} packages installed, "
          f"{len(sbom['relationships']) - 1} compiled in")
    return report(problems)


if __name__ == "__main__":
    sys.exit({"render": render, "names": print_names,
              "arguments": print_arguments, "status": check_status,
              "sbom": check_sbom}[sys.argv[1]](*sys.argv[2:]))
