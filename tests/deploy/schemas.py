"""Every object of the chart against the schemas of Kubernetes, strictly: an
unknown field is an error.

Kinds of extensions have no schema in Kubernetes. Those of KEDA and of the Prometheus
operator come with tools/deps --deploy, as Python models; others, such as GRPCRoute,
and other versions are taken from CustomResourceDefinitions in .cache/deploy/crds/*.yaml
where somebody put them there, e.g. from a cluster:

    kubectl get crd grpcroutes.gateway.networking.k8s.io -o yaml
"""

import copy
import functools
import importlib
import sys

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
    """The schema of a kind in which fields that it does not name are errors."""
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


# {module of the models: (apiVersion, its kinds that the chart uses)}
MODELS = {
    "cloudcoil.models.keda.v1alpha1": ("keda.sh/v1alpha1", ["ScaledObject"]),
    "cloudcoil.models.prometheus_operator.v1": (
        "monitoring.coreos.com/v1", ["ServiceMonitor", "PrometheusRule"])}


def model_schemas():
    """{(apiVersion, kind): schema} of the models that tools/deps brought."""
    package("yaml")  # which they import, too
    if (BROUGHT / "models").is_dir():
        sys.path.append(str(BROUGHT / "models"))
    found = {}
    for module, (version, kinds) in MODELS.items():
        try:
            models = importlib.import_module(module)
        except ImportError as error:
            print(f"no models of {version}: {error} (tools/deps --deploy)")
            continue
        for kind in kinds:
            found[version, kind] = closed(
                getattr(models, kind).model_json_schema(by_alias=True))
    return found


def definition_schemas():
    """{(apiVersion, kind): schema} of the CustomResourceDefinitions here."""
    found = {}
    for path in sorted((BROUGHT / "crds").glob("*.yaml")):
        for crd in chart.objects(path.read_text()):
            for version in crd["spec"]["versions"]:
                key = (f"{crd['spec']['group']}/{version['name']}",
                       crd["spec"]["names"]["kind"])
                found[key] = closed(version["schema"]["openAPIV3Schema"])
    return found


def check_kinds(wanted, schemas):
    """The objects of all extensions whose (apiVersion, kind) is `wanted`."""
    jsonschema = package("jsonschema")
    problems, missing, seen, tried = [], set(), 0, set()

    def errors(manifest):
        return list(jsonschema.Draft202012Validator(
            schemas[key]).iter_errors(manifest))

    for value_set in chart.SETS:
        for manifest in chart.objects(chart.rendered(value_set)):
            key = (manifest["apiVersion"], manifest["kind"])
            if not is_extension(manifest) or not wanted(key):
                continue
            if key not in schemas:
                missing.add(f"{key[1]} ({key[0]})")
                continue
            seen += 1
            for error in errors(manifest):
                where = "/".join(str(part) for part in error.absolute_path)
                problems.append(f"{value_set.name}: {chart.name_of(manifest)}: "
                                f"{where}: {error.message[:300]}")
            if key not in tried:
                tried.add(key)
                manifest["spec"]["spek"] = {}
                if not errors(manifest):
                    problems.append(f"not seen: an unknown field of a {key[1]}")
    print(f"{seen} objects of extensions validated")
    if report(problems):
        return 1
    if missing or not seen:
        print("skipped: no schema here of", ", ".join(sorted(missing)))
        return SKIPPED
    return 0


def of_models(key):
    return any(key[0] == version and key[1] in kinds
               for version, kinds in MODELS.values())


def check_extensions():
    return check_kinds(of_models, model_schemas() | definition_schemas())


def check_routes():
    """GRPCRoute and whatever else no model is known for."""
    return check_kinds(lambda key: not of_models(key), definition_schemas())
