"""The chart, rendered by Helm with the value sets of values/
and that of the first trial."""

from tools import ROOT, package, run, tool

CHART = ROOT / "helm/foretoken"
SETS = sorted([*(ROOT / "tests/deploy/values").glob("*.yaml"),
               ROOT / "helm/trial.yaml"], key=lambda path: path.name)
KUBE_VERSION = "1.29.0"


def template(*arguments, fails=False, kube_version=KUBE_VERSION):
    return run(tool("helm"), "template", "foretoken", CHART, "--namespace",
               "foretoken", "--kube-version", kube_version, *arguments,
               fails=fails)


def rendered(value_set, **options):
    return template("-f", value_set, **options)


def objects(text):
    """The manifests in `text`, without empty documents."""
    return [document for document in package("yaml").safe_load_all(text)
            if document]


def name_of(manifest):
    return f"{manifest['kind']} {manifest['metadata']['name']}"
