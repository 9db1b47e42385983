"""Every object of the chart against the schemas of Kubernetes, strictly: an
unknown field is an error.

Kinds of extensions (Prometheus operator, KEDA, Gateway API) have no schema in
Kubernetes. Their CustomResourceDefinitions are taken from .cache/deploy/crds/*.yaml
where somebody put them there, e.g. from a cluster:

    kubectl get crd servicemonitors.monitoring.coreos.com -o yaml
"""

import copy
import functools

import chart
from tools import BROUGHT, SKIPPED, package, report

# The oldest version that Chart.yaml admits, and a later one; versions_here adds
# the newest whose schema is here.
VERSIONS = ["1.27", "1.33"]


def _validator():
    """The module kubernetes_validate.utils; its files are read once."""
    package("kubernetes_validate")
    from kubernetes_validate import utils
    utils.schema_contents = functools.lru_cache(None)(utils.schema_contents)
    return utils


def is_extension(manifest):
    group = manifest["apiVersion"].partition("/")[0]
    return "." in group and not group.endswith(".k8s.io") or group.startswith(
        "gateway.")


def versions_here(utils):
    return VERSIONS + [utils.major_minor(utils.latest_version())]


def problems_of(utils, manifest, version):
    try:
        utils.validate(manifest, version, strict=True)
    except utils.SchemaNotFoundError as error:
        return [error.message]
    except utils.ValidationError as error:
        where = "/".join(str(part) for part in error.absolute_path)
        return [f"{version}: {chart.name_of(manifest)}: {where}: "
                f"{error.message[:300]}"]
    return []


def check_schemas():
    utils = _validator()
    versions = versions_here(utils)
    problems, seen = [], 0
    for value_set in chart.SETS:
        for version in versions:
            text = chart.rendered(value_set, kube_version=version + ".0")
            for manifest in chart.objects(text):
                if is_extension(manifest):
                    continue
                seen += 1
                problems += [f"{value_set.name}: {problem}" for problem in
                             problems_of(utils, manifest, version)]
    wrong = chart.objects(chart.rendered(chart.SETS[0]))[0]
    wrong["spek"] = {}
    if not problems_of(utils, wrong, versions[0]):
        problems.append("not seen: an unknown field")
    if len(chart.SETS) < 8:
        problems.append(f"{len(chart.SETS)} value sets, want 8 or more")
    print(f"{seen} objects of {len(chart.SETS)} value sets, validated for "
          f"{', '.join(versions)}")
    return report(problems)


def closed(schema):
    """A CRD's schema in which fields that it does not name are errors."""
    schema = copy.deepcopy(schema)

    def close(part):
        if isinstance(part, dict):
            if ("properties" in part and "additionalProperties" not in part
                    and not part.get("x-kubernetes-preserve-unknown-fields")):
                part["additionalProperties"] = False
            for inner in part.values():
                close(inner)
        elif isinstance(part, list):
            for inner in part:
                close(inner)

    close(schema)
    for field in ("apiVersion", "kind", "metadata"):
        schema.setdefault("properties", {}).setdefault(field, {})
    schema["properties"]["metadata"] = {"type": "object"}
    return schema


def extension_schemas():
    """{(apiVersion, kind): schema} of the CustomResourceDefinitions here."""
    found = {}
    for path in sorted((BROUGHT / "crds").glob("*.yaml")):
        for crd in chart.objects(path.read_text()):
            for version in crd["spec"]["versions"]:
                key = (f"{crd['spec']['group']}/{version['name']}",
                       crd["spec"]["names"]["kind"])
                found[key] = closed(version["schema"]["openAPIV3Schema"])
    return found


def check_extensions():
    jsonschema = package("jsonschema")
    schemas = extension_schemas()
    problems, missing, seen = [], set(), 0
    for value_set in chart.SETS:
        for manifest in chart.objects(chart.rendered(value_set)):
            if not is_extension(manifest):
                continue
            key = (manifest["apiVersion"], manifest["kind"])
            if key not in schemas:
                missing.add(f"{key[1]} ({key[0]})")
                continue
            seen += 1
            for error in jsonschema.Draft202012Validator(
                    schemas[key]).iter_errors(manifest):
                where = "/".join(str(part) for part in error.absolute_path)
                problems.append(f"{value_set.name}: {chart.name_of(manifest)}: "
                                f"{where}: {error.message[:300]}")
    print(f"{seen} objects of extensions validated")
    if report(problems):
        return 1
    if missing:
        print("skipped: no schema here of", ", ".join(sorted(missing)))
        return SKIPPED
    return 0
