"""Questions to a Prometheus that scrapes the services, for tests/deploy/live.

    live.py faster FILE [LIMIT] the alerts of FILE with every minute made a second,
                                and LIMIT instead of 10 seconds to the first token
    live.py panels URL          every query of the dashboards gives numbers
    live.py silent URL SECONDS  no alert fires
    live.py fires URL ALERT...  waits until each of these has fired
    live.py every URL ALERT...  every alert of the rules has fired, except these
    live.py true URL QUERY      waits until the query gives a sample

Exits 1 with what is not so.
"""

import json
import math
import pathlib
import re
import sys
import time
import urllib.error
import urllib.parse
import urllib.request

import chart
from chart import CHART
from tools import ROOT, report

# A loaded machine may take this long until something shows.
PATIENCE_SECONDS = 90
# Not through a proxy of the environment.
OPENER = urllib.request.build_opener(urllib.request.ProxyHandler({}))


def get(url, path, **parameters):
    query = urllib.parse.urlencode(parameters)
    try:
        with OPENER.open(f"{url}/api/v1/{path}?{query}",
                         timeout=30) as answer:
            return json.load(answer)["data"]
    except urllib.error.HTTPError as error:
        return {"error": error.read().decode()[:300]}


def faster(text, limit):
    """The alerts with a minute made a second: [5m] is [5s], `for: 2m` is 2s.
    Yesterday is 40 seconds ago. Recorded rules are left out."""
    text, recorded = re.subn(r"(?ms)^  # Shares and rates.*", "", text)
    # Four samples at least.
    text = re.sub(r"\[(\d+)m\]", lambda m: f"[{max(4, int(m[1]))}s]", text)
    text, before = re.subn(r"\[1h\] offset 1d", "[15s] offset 40s", text)
    text, slow = re.subn(r"(?m)(_seconds_bucket.* > )10$", rf"\g<1>{limit}", text)
    text = re.sub(r"(?m)^(\s*for: \d+)m$", r"\1s", text)
    if (recorded, before, slow) != (1, 2, 1) or re.search(r"(for: |\[)\d+[mh]", text):
        sys.exit("the rules are not read as they are written")
    return text.replace("name: foretoken\n", "name: foretoken-faster\n")


# As dashboards and autoscalers made for vLLM ask.
OF_VLLM = [
    "sum by (model_name) (vllm:num_requests_running)",
    "vllm:num_requests_waiting{engine=\"0\"}",
    "max by (model_name) (vllm:kv_cache_usage_perc)",
    "vllm:gpu_cache_usage_perc",
    "sum(rate(vllm:prompt_tokens_total[30s]))",
    "sum(rate(vllm:generation_tokens_total[30s]))",
    "rate(vllm:num_preemptions_total[30s])",
    "sum(rate(vllm:spec_decode_num_accepted_tokens_total[30s]))"
    " / sum(rate(vllm:spec_decode_num_draft_tokens_total[30s]))",
    "rate(vllm:spec_decode_num_drafts_total[30s])",
    "sum by (position) (rate("
    "vllm:spec_decode_num_accepted_tokens_per_pos_total[30s]))",
] + [f"histogram_quantile(0.95, sum by (le) (rate(vllm:{name}_bucket[30s])))"
     for name in ("time_to_first_token_seconds", "time_per_output_token_seconds",
                  "inter_token_latency_seconds", "e2e_request_latency_seconds",
                  "iteration_tokens_total")]


def queries():
    """[(dashboard and panel, query)] with the dashboards' variables filled in, and
    what autoscalers and dashboards made for vLLM ask."""
    found = [("vLLM's names", query) for query in OF_VLLM]
    for path in sorted((CHART / "dashboards").glob("*.json")):
        for panel in json.loads(path.read_text())["panels"]:
            for target in panel.get("targets", []):
                query = target["expr"].replace("$__rate_interval", "30s")
                found.append((f"{path.stem}: {panel['title']}",
                              query.replace("$namespace", "live")))
    # The last --namespace counts.
    scaled = chart.template(
        "-f", ROOT / "tests/deploy/values/keda.yaml", "--namespace", "live",
        "-s", "templates/autoscaling.yaml")
    for query in re.findall(r"(?m)^ +query: (.*)$", scaled):
        found.append(("autoscaling", json.loads(query)))
    return found


def numbers(url, query):
    """How many series have a number now, and how many there are."""
    result = get(url, "query", query=query).get("result", [])
    values = [float(series["value"][1]) for series in result]
    return sum(not math.isnan(value) for value in values), len(values)


def await_empty(left):
    """Calls `left` until it returns nothing; what it returned at last."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    missing = left()
    while missing and time.monotonic() < deadline:
        time.sleep(1)
        missing = left()
    return missing


def check_panels(url):
    waiting = queries()
    total = len(waiting)
    if sum(panel == "autoscaling" for panel, _ in waiting) < 4:
        return report(["the chart's autoscalers ask too little"])

    def left():
        nonlocal waiting
        waiting = [(panel, query) for panel, query in waiting
                   if not numbers(url, query)[0]]
        return waiting

    problems = [f"{panel}: {numbers(url, query)[1]} series, none a number: "
                f"{query}" for panel, query in await_empty(left)]
    if numbers(url, "foretoken_no_such_metric")[0]:
        problems.append("not seen: a query without data")
    print(f"{total - len(problems)} of {total} queries have numbers")
    return report(problems)


def fired(url, seconds=86400):
    """All alerts that have fired in the last seconds."""
    samples = get(url, "query", query='max_over_time(ALERTS{alertstate="firing"}'
                  f"[{math.ceil(seconds)}s])")["result"]
    return {sample["metric"]["alertname"] for sample in samples}


def alert_rules(url):
    """The names of all alerts."""
    return {rule["name"] for group in get(url, "rules")["groups"]
            for rule in group["rules"] if rule["type"] == "alerting"}


def check_silent(url, seconds):
    """From the first scrape until `seconds` from now."""
    end = time.monotonic() + float(seconds)
    while time.monotonic() < end and not fired(url):
        time.sleep(1)
    wrong = [rule["name"] + ": " + rule["lastError"]
             for group in get(url, "rules")["groups"]
             for rule in group["rules"] if rule.get("lastError")]
    seen = fired(url)
    rules = alert_rules(url)
    print(f"{len(rules - seen)} of {len(rules)} alerts silent")
    # A scrape that fails would silence every rule.
    gaps = numbers(url, "min_over_time(up[1d]) < 1")[1]
    services = len(get(url, "targets")["activeTargets"])
    if gaps or not services or numbers(url, "up")[1] != services:
        wrong.append(f"{gaps} of {services} services were not scraped all the time")
    return report(wrong + [f"{alert} fires" for alert in sorted(seen)])


def check_fires(url, *wanted):
    begin = time.monotonic()
    # What was broken before this was asked for is a second ago at most.
    missing = await_empty(
        lambda: set(wanted) - fired(url, time.monotonic() - begin + 1))
    print("fired:", ", ".join(sorted(set(wanted) - missing)), flush=True)
    return report([f"{alert} does not fire" for alert in sorted(missing)])


def check_every(url, *except_for):
    seen = fired(url)
    names = alert_rules(url) - set(except_for)
    print(f"{len(names & seen)} of {len(names)} alerts have fired")
    return report([f"{name} never fired" for name in sorted(names - seen)])


def check_true(url, query):
    missing = await_empty(lambda: [] if numbers(url, query)[0] else [query])
    return report([f"never true: {query}" for query in missing])


def print_faster(path, limit="10"):
    print(faster(pathlib.Path(path).read_text(), limit))
    return 0


if __name__ == "__main__":
    sys.exit({"faster": print_faster, "panels": check_panels,
              "silent": check_silent, "fires": check_fires,
              "every": check_every, "true": check_true}[sys.argv[1]](*sys.argv[2:]))
