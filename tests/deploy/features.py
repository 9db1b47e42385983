"""What value sets are for: each says of its objects what must hold together."""

import json
import pathlib
import re

import chart
from tools import ROOT, report

VALUES = ROOT / "tests/deploy/values"


class Manifests:
    """The objects of one rendering, of a set in values/ or of a file, by kind and
    name."""

    def __init__(self, value_set, *arguments):
        self.objects = chart.objects(
            chart.template("-f", value_set if isinstance(value_set, pathlib.Path)
                           else VALUES / f"{value_set}.yaml", *arguments))

    def of(self, kind):
        return {manifest["metadata"]["name"]: manifest
                for manifest in self.objects if manifest["kind"] == kind}

    def pods(self):
        """{workload: its pod's spec}."""
        found = {}
        for manifest in self.objects:
            spec = manifest.get("spec", {})
            if manifest["kind"] == "CronJob":
                spec = spec["jobTemplate"]["spec"]
            if "template" in spec:
                found[manifest["metadata"]["name"]] = spec["template"]["spec"]
        return found


def secrets_of(pod):
    """Names of the Secrets in the environment of a pod's containers."""
    return {variable["valueFrom"]["secretKeyRef"]["name"]
            for container in pod["containers"]
            for variable in container.get("env", []) if "valueFrom" in variable}


def claims_of(pod):
    return {volume["persistentVolumeClaim"]["claimName"]
            for volume in pod["volumes"] if "persistentVolumeClaim" in volume}


def autoscaling_problems():
    problems = []
    for value_set, kind, other in (
            ("keda", "ScaledObject", "HorizontalPodAutoscaler"),
            ("adapter", "HorizontalPodAutoscaler", "ScaledObject")):
        manifests = Manifests(value_set)
        if manifests.of(other):
            problems.append(f"{value_set}: both kinds of autoscalers")
        scalers = manifests.of(kind)
        if len(scalers) != 3:
            problems.append(f"{value_set}: {len(scalers)} {kind}, want 3")
        for scaler in scalers.values():
            target = scaler["spec"]["scaleTargetRef"]
            scaled = manifests.of(target["kind"]).get(target["name"])
            if scaled is None:
                problems.append(f"{value_set}: {target} does not exist")
            elif "replicas" in scaled["spec"]:
                problems.append(f"{value_set}: {target['name']} has replicas "
                                "of its own, which an upgrade would restore")
    for workload in chart.objects(chart.template()):
        if workload["kind"] == "StatefulSet" and (
                workload["spec"].get("replicas") != 1):
            problems.append("verifiers without autoscaling have no replicas")
    return problems


def trial_problems():
    manifests, problems = Manifests("trial"), []
    pods = manifests.pods()
    for workload in ("foretoken-crest", "foretoken-trie-drafter",
                     "foretoken-postgres", "foretoken-redis"):
        if secrets_of(pods[workload]) != {"foretoken-trial"}:
            problems.append(f"trial: Secrets of {workload}: "
                            f"{secrets_of(pods[workload])}")
    urls = manifests.of("Secret")["foretoken-trial"]["stringData"]
    for name in ("postgres", "redis"):
        service = manifests.of("Service")[f"foretoken-{name}"]
        address = (f"{service['metadata']['name']}:"
                   f"{service['spec']['ports'][0]['port']}")
        if f"@{address}" not in urls[f"{name}-url"]:
            problems.append(f"trial: the URL of {name} is not of {address}")
    if any(manifest["kind"] == "Secret"
           for manifest in chart.objects(chart.template())):
        problems.append("the chart makes Secrets without being asked")
    return problems


def build_problems():
    manifests, problems = Manifests("trial"), []
    claims = set(manifests.of("PersistentVolumeClaim"))
    for name, claim in manifests.of("PersistentVolumeClaim").items():
        if claim["metadata"]["annotations"].get(
                "helm.sh/resource-policy") != "keep":
            problems.append(f"{name}: is deleted with the release")
    for name, pod in manifests.pods().items():
        if claims_of(pod) - claims:
            problems.append(f"{name}: no claim {claims_of(pod) - claims}")
    jobs = manifests.of("Job")
    crest = [name for name in jobs if "crest-build" in name]
    prior = [name for name in jobs if "prior-build" in name]
    if len(crest) != 1 or len(prior) != 1:
        return problems + [f"trial: Jobs {sorted(jobs)}"]
    if secrets_of(manifests.pods()[crest[0]]) != {"foretoken-trial"}:
        problems.append(f"{crest[0]}: has no database")
    # Only the prior's Job may write to the models.
    for name, pod in manifests.pods().items():
        for container in pod["containers"]:
            for mount in container["volumeMounts"]:
                writes = mount["name"] == "models" and not mount["readOnly"]
                if writes != (name == prior[0] and mount["name"] == "models"):
                    problems.append(f"{name}: models written: {writes}")
    # A Job cannot change, so another configuration is another Job.
    if set(Manifests("trial").of("Job")) != set(jobs):
        problems.append("the same values give another Job")
    other = Manifests("trial", "--set", "crest.build.config.top=9").of("Job")
    if crest[0] in other or prior[0] not in other:
        problems.append(f"crest.build.config: {sorted(jobs)}, {sorted(other)}")
    # A trie drafter waits for the prior that is being built, and for no other.
    for value_set, waits in (("trial", True), ("everything", False)):
        pod = Manifests(value_set).pods()["foretoken-trie-drafter"]
        if ("initContainers" in pod) != waits:
            problems.append(f"{value_set}: the trie drafter waits: {not waits}")
    if len(Manifests("nightly").of("CronJob")) != 2:
        problems.append("nightly: want two CronJobs")
    return problems


def grow_problems():
    """A prior of what the target writes has the target's and the prompts' flags."""
    pod = Manifests("grown").pods()["foretoken-prior-build"]
    container = pod["containers"][0]
    words = container["command"] + container["args"]
    wanted = ["foretoken", "prior", "grow", "--out=/models/auto.prior",
              "--model=/models/llm", "--prompts=/corpus/prompts.jsonl",
              "--chat=chatml", "--max-bytes=100000000", "--minutes=60", "--threads=4"]
    problems = [] if words == wanted else [f"grown: {words}"]
    source = (ROOT / "tools/cli").glob("*.cc")
    flags = set(re.findall(r'"--([a-z-]+)"', "".join(
        path.read_text() for path in source)))
    schema = json.loads((chart.CHART / "values.schema.json").read_text())
    for service, part in (("trieDrafter", "priorBuild"), ("crest", "build")):
        offered = schema["properties"][service]["properties"][part][
            "properties"]["config"]["propertyNames"]["enum"]
        problems += [f"{service}.{part}.config.{flag}: no such flag"
                     for flag in offered if flag not in flags]
    return problems


def fetch_problems():
    """Text from an object store is written before it is read, and by nothing else."""
    manifests, problems = Manifests("objects"), []
    builds = {name: pod for name, pod in manifests.pods().items()
              if "-build" in name}
    if len(builds) != 2:
        problems.append(f"objects: builds {sorted(builds)}")
    for name, pod in builds.items():
        fetch, build = pod["initContainers"][0], pod["containers"][0]
        if fetch["envFrom"] != [{"secretRef": {"name": "texts"}}]:
            problems.append(f"{name}: fetches with {fetch['envFrom']}")
        if "envFrom" in build:
            problems.append(f"{name}: builds with the store's credentials")
        for container, read_only in ((fetch, None), (build, True)):
            mounts = {mount["name"]: mount.get("readOnly")
                      for mount in container["volumeMounts"]}
            if mounts["corpus"] != read_only:
                problems.append(f"{name}: {container['name']} mounts the corpus "
                                f"with readOnly: {mounts['corpus']}")
            if not container["securityContext"]["readOnlyRootFilesystem"]:
                problems.append(f"{name}: {container['name']} may write its root")
        volume = next(v for v in pod["volumes"] if v["name"] == "corpus")
        if "emptyDir" not in volume:
            problems.append(f"{name}: the text is in {volume}")
    for name, wanted in (("crest-build", {53, 443, 5432}), ("prior-build", {53, 443})):
        policy = manifests.of("NetworkPolicy")[f"foretoken-{name}"]["spec"]
        ports = {port["port"] for rule in policy["egress"] for port in rule["ports"]}
        if ports != wanted:
            problems.append(f"{name}: connects to ports {sorted(ports)}")
    return problems


def priority_problems():
    manifests, problems = Manifests("adapter"), []
    classes = manifests.of("PriorityClass")
    for name, pod in manifests.pods().items():
        wanted = pod.get("priorityClassName")
        if name == "foretoken-verifier":
            if wanted != "high":
                problems.append(f"{name}: priority {wanted}, want high")
        elif wanted not in classes:
            problems.append(f"{name}: no class {wanted}")
    order = [manifest["value"] for manifest in sorted(
        classes.values(), key=lambda manifest: manifest["value"])]
    if len(set(order)) != 3:
        problems.append(f"priorities {order}")
    if any("priorityClassName" in pod
           for pod in Manifests("defaults").pods().values()):
        problems.append("defaults: pods have priorities")
    return problems


def route_problems():
    problems = []
    service = Manifests("keda").of("Service")["foretoken-orchestrator"]
    port = service["spec"]["ports"][0]
    backend = Manifests("keda").of("GRPCRoute")["foretoken-orchestrator"][
        "spec"]["rules"][0]["backendRefs"][0]
    if backend != {"name": "foretoken-orchestrator", "port": port["port"]}:
        problems.append(f"GRPCRoute: {backend}")
    for arguments, protocol in (
            ([], "GRPCS"), (["--set", "tls.enabled=false,insecure=true"], "GRPC")):
        ingress = Manifests("adapter", *arguments).of("Ingress")[
            "foretoken-orchestrator"]
        annotations = ingress["metadata"]["annotations"]
        if annotations.get(
                "nginx.ingress.kubernetes.io/backend-protocol") != protocol:
            problems.append(f"Ingress: {annotations}, want {protocol}")
        path = ingress["spec"]["rules"][0]["http"]["paths"][0]
        if path["backend"]["service"]["port"]["name"] != port["name"]:
            problems.append(f"Ingress: {path}")
    return problems


def gateway_problems():
    """The gateway reaches the orchestrators, has what it needs of theirs and no more,
    and can be left out."""
    problems = []
    name = "foretoken-gateway"
    labels = Manifests("defaults").of("Deployment")[name]["spec"]["selector"][
        "matchLabels"]
    clients = [{"podSelector": {"matchLabels": labels}}]
    admitted = Manifests("defaults").of("NetworkPolicy")["foretoken-orchestrator"][
        "spec"]["ingress"][0]["from"]
    if clients[0] not in admitted:
        problems.append(f"orchestrators admit {admitted}")
    # No peers are all peers: one more would shut the others out.
    if Manifests("defaults", "--set", "networkPolicy.clients=null").of(
            "NetworkPolicy")["foretoken-orchestrator"]["spec"]["ingress"][0][
                "from"]:
        problems.append("orchestrators admit fewer peers than values say")
    for value_set, protocol, scheme in (("adapter", "HTTPS", "HTTPS"),
                                        ("plain", None, "HTTP")):
        manifests = Manifests(value_set)
        probe = manifests.pods()[name]["containers"][0]["readinessProbe"]
        if probe["httpGet"] != {"path": "/health", "port": "http",
                                "scheme": scheme}:
            problems.append(f"{value_set}: {probe}")
        port = manifests.of("Service")[name]["spec"]["ports"][0]
        if port["appProtocol"] != scheme.lower():
            problems.append(f"{value_set}: {port}")
        if protocol is not None:
            ingress = manifests.of("Ingress")[name]
            path = ingress["spec"]["rules"][0]["http"]["paths"][0]
            if (ingress["metadata"]["annotations"][
                    "nginx.ingress.kubernetes.io/backend-protocol"] != protocol
                    or path["backend"]["service"] != {
                        "name": name, "port": {"name": port["name"]}}):
                problems.append(f"Ingress of the gateway: {ingress}")
    backend = Manifests("keda").of("HTTPRoute")[name]["spec"]["rules"][0][
        "backendRefs"][0]
    if backend != {"name": name, "port": port["port"]}:
        problems.append(f"HTTPRoute: {backend}")
    everything = Manifests("everything")
    mounted = {volume["secret"]["secretName"]
               for volume in everything.pods()[name]["volumes"]
               if "secret" in volume}
    if mounted != {"public", "http"}:
        problems.append(f"the gateway has the Secrets {sorted(mounted)}")
    for pod, volumes in ((pod, spec["volumes"])
                         for pod, spec in everything.pods().items()):
        if pod != name and any(volume.get("secret", {}).get("secretName") == "http"
                               for volume in volumes):
            problems.append(f"{pod}: has the gateway's Secret")
    left = [chart.name_of(manifest) for manifest in Manifests("bare").objects
            if "gateway" in manifest["metadata"]["name"]]
    if left:
        problems.append(f"bare: {left}")
    return problems


def names_problems():
    """vLLM's names are asked for by value alone."""
    problems = []
    for value_set, wanted in (("edge", ["vllm"] * 6), ("defaults", [None] * 6)):
        names = [config["data"].get("FORETOKEN_METRICS_NAMES") for config in
                 Manifests(value_set).of("ConfigMap").values()
                 if "FORETOKEN_LISTEN" in config.get("data", {})]
        if names != wanted:
            problems.append(f"{value_set}: metrics.names: {names}")
    return problems


def check_features():
    return report(names_problems() + autoscaling_problems() + trial_problems()
                  + build_problems() + grow_problems() + fetch_problems() + priority_problems()
                  + route_problems() + gateway_problems())
