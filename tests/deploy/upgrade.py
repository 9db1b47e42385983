"""`helm upgrade` from the chart's first version: what Kubernetes refuses to
change on an existing object is as in golden/, a rendering of that version."""

import chart
from tools import ROOT, report

GOLDEN = ROOT / "tests/deploy/golden/chart-0.1.0.yaml"

# The only fields of a StatefulSet's spec that Kubernetes changes.
STATEFUL_SET_MUTABLE = {
    "replicas", "ordinals", "template", "updateStrategy", "minReadySeconds",
    "persistentVolumeClaimRetentionPolicy"}


def immutable(manifest):
    """The fields of an object that no update may change."""
    kind, spec = manifest["kind"], manifest.get("spec", {})
    if kind == "StatefulSet":
        return {key: value for key, value in spec.items()
                if key not in STATEFUL_SET_MUTABLE}
    if kind in ("Deployment", "DaemonSet"):
        return {"selector": spec["selector"]}
    if kind == "Service":
        # A Service with an address of its own keeps it; one without, too.
        return {"headless": spec.get("clusterIP") == "None"}
    if kind == "PersistentVolumeClaim":
        return {key: value for key, value in spec.items() if key != "resources"}
    if kind == "Job":
        return {"template": spec["template"], "selector": spec.get("selector")}
    return {}


def pods_unselected(manifest):
    """Labels that a workload's selector wants and its pods do not have."""
    if manifest["kind"] not in ("Deployment", "StatefulSet"):
        return {}
    spec = manifest["spec"]
    labels = spec["template"]["metadata"]["labels"]
    return {key: value for key, value in
            spec["selector"]["matchLabels"].items() if labels.get(key) != value}


def upgrade_problems(old, new):
    by_name = {chart.name_of(manifest): manifest for manifest in new}
    problems = []
    for manifest in old:
        name = chart.name_of(manifest)
        if name not in by_name:
            problems.append(f"{name}: is removed by an upgrade")
            continue
        before, after = immutable(manifest), immutable(by_name[name])
        if before != after:
            problems.append(f"{name}: {before} would change to {after}")
        if manifest["apiVersion"] != by_name[name]["apiVersion"]:
            problems.append(f"{name}: changes its apiVersion")
    for name, manifest in by_name.items():
        for label in pods_unselected(manifest).items():
            problems.append(f"{name}: its pods have no label {label}")
    return problems


def check_upgrade():
    old = chart.objects(GOLDEN.read_text())
    new = chart.objects(chart.template())
    problems = upgrade_problems(old, new)
    # The checks see what is wrong.
    for kind, change in (
            ("StatefulSet", lambda spec: spec.update(serviceName="other")),
            ("StatefulSet",
             lambda spec: spec.update(podManagementPolicy="OrderedReady")),
            ("Deployment",
             lambda spec: spec["selector"]["matchLabels"].update(x="y")),
            ("Service", lambda spec: spec.update(clusterIP="None"))):
        changed = chart.objects(GOLDEN.read_text())
        for manifest in changed:
            if manifest["kind"] == kind:
                change(manifest["spec"])
        if not upgrade_problems(old, changed):
            problems.append(f"not seen: a change of a {kind}")
    print(f"{len(old)} objects of the first chart compared")
    return report(problems)
