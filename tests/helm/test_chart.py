"""The chart, as Helm renders it: every object known to Kubernetes, none with more rights than it needs."""

from __future__ import annotations

import os
import re
from collections import Counter
from functools import cache

import jsonschema
import kubernetes_validate
import pytest
import yaml
from charts import CASES, CHART, ROOT, Object, chart, helm, objects, objects_of, pods_of, rendered, values_of
from charts import without_secrets as masked
from custom_resources import SCHEMAS
from prometheus_client import generate_latest
from referencing import Registry, Resource

from collector.cli.serve import DRAIN_SECONDS
from collector.metrics import Metrics
from collector.watch.gauges import WatchMetrics

VERSIONS = ("1.27.0", kubernetes_validate.latest_version())
"""Of Kubernetes: the oldest that Chart.yaml names, and the newest that is known here."""
GOLDEN = ROOT / "tests" / "helm" / "golden"
NEED = {"database": {"existingSecret": "db"}, "tokens": {"existingSecret": "t"}}


def test_there_are_enough_sets_of_values() -> None:
    assert len(CASES) >= 12


@pytest.mark.parametrize("case", CASES)
def test_every_object_is_as_kubernetes_wants_it(case: str) -> None:
    for one in objects(case):
        own = SCHEMAS.get((one["apiVersion"], one["kind"]))
        if own is not None:
            jsonschema.validate(one, own)
            continue
        for version in VERSIONS:
            kubernetes_schema(one["kind"], one["apiVersion"], version).validate(one)


@cache
def kubernetes_schema(kind: str, api_version: str, version: str) -> jsonschema.Draft202012Validator:
    """Strict, from the files of kubernetes-validate: its own function reads them all again for each object."""
    read, folder = kubernetes_validate.utils.schema_contents, f"kubernetes-json-schema/v{version}-local-strict"
    group = re.sub(r"^([^./]*)(?:\.[^/]*)?/", r"\1-", api_version)
    schema = read(f"{folder}/{kind.lower()}-{group}.json", version)
    known = Resource.from_contents(schema) @ (definitions(folder, version) @ Registry())
    return jsonschema.Draft202012Validator(schema, registry=known)


@cache
def definitions(folder: str, version: str) -> Resource:
    """What the schemas of that version refer to."""
    return Resource.from_contents(kubernetes_validate.utils.schema_contents(f"{folder}/_definitions.json", version))


@pytest.mark.parametrize("case", CASES)
def test_names_and_labels(case: str) -> None:
    found = objects(case)
    names = [(one["kind"], one["metadata"]["name"]) for one in found]
    assert Counter(names).most_common(1)[0][1] == 1, "two objects of one name"
    for one in found:
        metadata = one["metadata"]
        assert re.fullmatch(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?", metadata["name"])
        if not metadata["name"].endswith("-extra"):
            assert metadata["namespace"] == "gpu"
            assert {"app.kubernetes.io/name", "app.kubernetes.io/instance", "helm.sh/chart"} <= set(metadata["labels"])


@pytest.mark.parametrize("case", CASES)
def test_nothing_has_more_rights_than_it_needs(case: str) -> None:
    found = objects(case)
    kinds = {one["kind"] for one in found}
    assert kinds.isdisjoint({"Role", "ClusterRole", "RoleBinding", "ClusterRoleBinding"})
    for name, pod in pods_of(found):
        spec = pod["spec"]
        assert spec["automountServiceAccountToken"] is False, name
        assert not any(spec.get(key) for key in ("hostNetwork", "hostPID", "hostIPC")), name
        assert spec["securityContext"]["runAsNonRoot"] is True
        assert spec["securityContext"]["runAsUser"] > 0
        assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        assert not any("hostPath" in volume for volume in spec.get("volumes", ())), name
        for container in spec["containers"]:
            rights = container["securityContext"]
            assert rights["readOnlyRootFilesystem"] is True
            assert rights["allowPrivilegeEscalation"] is False
            assert rights["capabilities"] == {"drop": ["ALL"]}
            assert not rights.get("privileged")
            for kind in ("requests", "limits"):
                assert {"cpu", "memory"} <= set(container["resources"][kind]), name
            assert re.search(r"(:\d[\w.-]*|@sha256:[0-9a-f]{64})$", container["image"]), container["image"]


@pytest.mark.parametrize("case", CASES)
def test_selectors_find_the_pods_that_are_meant(case: str) -> None:
    found = objects(case)
    labels = {name: pod["metadata"]["labels"] for name, pod in pods_of(found)}
    for one in found:
        spec, component = one.get("spec", {}), one["metadata"].get("labels", {}).get("app.kubernetes.io/component")
        selector = spec.get("selector") if one["kind"] == "Service" else (
            spec.get("podSelector") or (spec.get("selector") if isinstance(spec.get("selector"), dict) else None)
            or {}).get("matchLabels")  # fmt: skip
        if selector and one["kind"] != "ServiceMonitor":
            chosen = [name for name, own in labels.items() if selector.items() <= own.items()]
            assert [labels[name]["app.kubernetes.io/component"] for name in chosen] == [component], one["metadata"]
    monitors = [one["spec"]["selector"]["matchLabels"] for one in found if one["kind"] == "ServiceMonitor"]
    services = [one["metadata"]["labels"] for one in found if one["kind"] == "Service"]
    assert all(any(wanted.items() <= own.items() for own in services) for wanted in monitors)


@pytest.mark.parametrize("case", CASES)
def test_a_pod_is_drained_and_its_migration_is_let_be(case: str) -> None:
    for one in objects(case):
        if one["kind"] == "Deployment":
            pod = one["spec"]["template"]["spec"]
            (container,) = pod["containers"]
            pause = int(container["lifecycle"]["preStop"]["exec"]["command"][1])
            assert pod["terminationGracePeriodSeconds"] >= pause + DRAIN_SECONDS + 5
            for probe in ("startupProbe", "livenessProbe"):
                assert container[probe].get("httpGet", {}).get("path", "/healthz") == "/healthz", "a store may be away"
            assert one["spec"]["strategy"]["rollingUpdate"]["maxUnavailable"] == 0
        if one["kind"] == "Job":
            (container,) = one["spec"]["template"]["spec"]["containers"]
            assert not [key for key in container if key.endswith("Probe")]
            assert one["spec"]["activeDeadlineSeconds"] >= 600


def test_a_migration_comes_before_the_rest_and_beside_a_store_that_comes_with_it() -> None:
    (before,) = [one for one in objects("external") if one["kind"] == "Job"]
    assert before["metadata"]["annotations"]["helm.sh/hook"] == "pre-install,pre-upgrade"
    needed = [one for one in objects("external") if "helm.sh/hook" in one["metadata"].get("annotations", {})
              and one["metadata"]["name"] == "rel-stallscope-migration" and one["kind"] != "Job"]  # fmt: skip
    assert {one["kind"] for one in needed} == {"ServiceAccount", "NetworkPolicy"}, (
        "a hook comes before all that is none"
    )
    assert all(int(one["metadata"]["annotations"]["helm.sh/hook-weight"]) < 0 for one in needed)
    (beside,) = [one for one in objects("trial") if one["kind"] == "Job"]
    assert "annotations" not in beside["metadata"]
    again = chart().render(values_of("trial"), name="rel", namespace="gpu", revision=2, is_upgrade=True)
    (next_one,) = [one for one in objects_of(again) if one["kind"] == "Job"]
    assert next_one["metadata"]["name"] != beside["metadata"]["name"], "a Job cannot be changed"
    assert not [one for one in objects("own-migration") if one["kind"] == "Job"]


@pytest.mark.parametrize(
    ("case", "kind", "names"),
    [
        ("external", "HorizontalPodAutoscaler", {"rel-stallscope-collector"}),
        ("no-autoscaling", "HorizontalPodAutoscaler", set()),
        ("external", "PodDisruptionBudget", {"rel-stallscope-collector", "rel-stallscope-dashboard"}),
        ("no-autoscaling", "PodDisruptionBudget", set()),
        ("external", "StatefulSet", set()),
        ("trial", "StatefulSet", {"rel-stallscope-clickhouse"}),
        ("trial", "Secret", {"rel-stallscope-clickhouse"}),
        ("trial-with-secrets", "Secret", set()),
        ("external", "Ingress", set()),
        ("ingress-collector-only", "Ingress", {"rel-stallscope-collector"}),
        ("everything", "Ingress", {"rel-stallscope-collector", "rel-stallscope-dashboard"}),
        ("gateway", "HTTPRoute", {"rel-stallscope-collector", "rel-stallscope-dashboard"}),
        ("gateway", "GRPCRoute", {"rel-stallscope-collector"}),
        ("open-network", "NetworkPolicy", set()),
        ("open-network", "ServiceAccount", {"rel-stallscope-migration"}),
        ("several-tenants", "ServiceMonitor", {"rel-stallscope-collector", "rel-stallscope-dashboard"}),
        ("everything", "PrometheusRule", {"rel-stallscope"}),
    ],
)
def test_what_is_asked_for_is_there_and_nothing_else(case: str, kind: str, names: set[str]) -> None:
    assert {one["metadata"]["name"] for one in objects(case) if one["kind"] == kind} == names


def test_workers_reach_what_they_send_to_and_nothing_else_from_outside() -> None:
    (ingress,) = [one for one in objects("ingress-collector-only") if one["kind"] == "Ingress"]
    assert [path["path"] for path in ingress["spec"]["rules"][0]["http"]["paths"]] == ["/v1"]


def test_whoever_is_let_in_the_test_is_too() -> None:
    found = objects("everything")
    tests = {pod["metadata"]["labels"]["app.kubernetes.io/component"]: pod["metadata"]["labels"]
             for name, pod in pods_of(found) if name.endswith("-test")}  # fmt: skip
    assert set(tests) == {"collector-test", "dashboard-test"}
    for role in ("collector", "dashboard"):
        (policy,) = [one for one in found if one["kind"] == "NetworkPolicy" and one["metadata"]["name"].endswith(role)]
        *_, last = policy["spec"]["ingress"][0]["from"]
        assert last["podSelector"]["matchLabels"].items() <= tests[f"{role}-test"].items()


def test_rules_and_dashboard_are_those_that_are_tested() -> None:
    (rules,) = [one for one in objects("everything") if one["kind"] == "PrometheusRule"]
    text = (ROOT / "helm" / "alerts" / "stallscope.rules.yaml").read_text(encoding="utf-8")
    assert rules["spec"] == yaml.safe_load(text), "the file that promtool checks"
    board = (CHART / "dashboards" / "stallscope.json").read_text(encoding="utf-8")
    metrics = Metrics()
    WatchMetrics().register(metrics.registry)
    served = set(re.findall(r"^# TYPE (\w+)", generate_latest(metrics.registry).decode(), re.MULTILINE))
    assert {name.removesuffix("_bucket") for name in re.findall(r"\bstallscope_[a-z_]+", board)} <= served


def test_a_made_up_password_is_in_its_address() -> None:
    first, second = (
        next(one for one in objects_of(chart().render(values_of("trial"), name="rel")) if one["kind"] == "Secret")
        for _ in range(2)
    )
    assert first["data"]["password"] != second["data"]["password"]
    assert first["metadata"]["annotations"]["helm.sh/resource-policy"] == "keep"


def test_helm_finds_nothing_to_say() -> None:
    report = helm.lint(str(CHART), values_of("external"), strict=True)
    assert [one for one in report["messages"] if one["error"] != "icon is recommended"] == []
    assert report["errors"] == []


@pytest.mark.parametrize(("case", "words"), [
    ("external", ["http://rel-stallscope-collector.gpu:4318", "port-forward", "key ingest in stallscope-tokens"]),
    ("trial", ["WARNING: insecure", "WARNING: this ClickHouse"]),
    ("everything", ["https://stallscope.example.com", "https://otlp.example.com"]),
    ("ingress-collector-only", ["WARNING: an Ingress has no TLS"]),
    ("own-migration", ["WARNING: migration.enabled is off"]),
    ("mutual-tls", ["NOTE: with mutual TLS"]),
])  # fmt: skip
def test_the_notes_say_how_to_go_on(case: str, words: list[str]) -> None:
    notes = rendered(case)["stallscope/templates/NOTES.txt"]
    assert [word for word in words if word not in notes] == []


@pytest.mark.parametrize("case", ["external", "trial", "everything"])
def test_the_rendering_is_the_one_that_was_reviewed(case: str) -> None:
    """After a change: UPDATE_GOLDEN=1, and read the difference."""
    text = "".join(
        f"# {name}\n{masked(re.sub('checksum/config: .*', 'checksum/config: SUM', body)).strip()}\n"
        for name, body in sorted(rendered(case).items())
        if body.strip() and not (name.endswith("monitoring.yaml"))
    )
    path = GOLDEN / f"{case}.yaml"
    if os.environ.get("UPDATE_GOLDEN"):
        path.write_text(text, encoding="utf-8")
    assert path.read_text(encoding="utf-8") == text


BAD: list[tuple[Object, str]] = [
    ({"replicas": 3}, "replicas"),
    ({"image": {"tag": "no spaces"}}, "tag"),
    ({"image": {"digest": "md5:1"}}, "digest"),
    ({"image": {"pullPolicy": "Sometimes"}}, "pullPolicy"),
    ({"image": {"repository": ""}}, "repository"),
    ({"tokens": {"existingSecret": "Not A Name"}}, "existingSecret"),
    ({"tokens": {"keys": {"ingest": ""}}}, "ingest"),
    ({"tokens": {"keys": {"read": "a/b"}}}, "read"),
    ({"tokens": {"secret": "acme:abc"}}, "secret"),
    ({"insecure": "yes"}, "insecure"),
    ({"listen": "127.0.0.1"}, "listen"),
    ({"database": {"url": "clickhouse://u:p@h"}}, "url"),
    ({"config": {"retentionDays": 0}}, "retentionDays"),
    ({"config": {"retentionDays": "30"}}, "retentionDays"),
    ({"config": {"retention": 30}}, "retention"),
    ({"config": {"ingestRate": -1}}, "ingestRate"),
    ({"config": {"querySeconds": 0}}, "querySeconds"),
    ({"config": {"readTokens": "acme:abc"}}, "readTokens"),
    ({"alerts": {"keys": {"smsUrl": "sms"}}}, "smsUrl"),
    ({"collector": {"autoscaling": {"minReplicas": 0}}}, "minReplicas"),
    ({"collector": {"podDisruptionBudget": {"maxUnavailable": 0}}}, "maxUnavailable"),
    ({"collector": {"podDisruptionBudget": {"maxUnavailable": "many"}}}, "maxUnavailable"),
    ({"collector": {"service": {"type": "ExternalName"}}}, "type"),
    ({"collector": {"service": {"httpPort": 70000}}}, "httpPort"),
    ({"collector": {"resources": {"requests": {"cpu": "much", "memory": "1Gi"}}}}, "cpu"),
    ({"collector": {"resources": {"limits": {"gpu": "1"}}}}, "gpu"),
    ({"collector": {"podLabels": {"a": "b c"}}}, "podLabels"),
    ({"collector": {"extraEnv": [{"value": "x"}]}}, "extraEnv"),
    ({"dashboard": {"replicas": -1}}, "replicas"),
    ({"dashboard": {"autoscaling": {"enabled": True}}}, "autoscaling"),
    ({"migration": {"activeDeadlineSeconds": 1}}, "activeDeadlineSeconds"),
    ({"clickhouse": {"image": {"tag": ""}}}, "tag"),
    ({"clickhouse": {"persistence": {"size": "big"}}}, "size"),
    ({"ingress": {"collector": {"host": "https://otlp.example.com"}}}, "host"),
    ({"gateway": {"dashboard": {"hostnames": ["A B"]}}}, "hostnames"),
    ({"networkPolicy": {"databasePorts": []}}, "databasePorts"),
    ({"serviceMonitor": {"interval": "often"}}, "interval"),
]

CONTRADICTIONS: list[tuple[Object, str]] = [
    ({"database": {"existingSecret": ""}}, "database.existingSecret: name the Secret"),
    ({"clickhouse": {"enabled": True}}, "use one store, not both"),
    ({"tokens": {"existingSecret": ""}}, "tokens.existingSecret: name the Secret"),
    ({"image": {"tag": "latest"}}, "latest is another image every day"),
    ({"clickhouse": {"image": {"tag": "latest"}}}, "latest is another image every day"),
    ({"insecure": True}, "with tokens there is nothing to leave open"),
    ({"tls": {"collector": {"clientCa": {"existingSecret": "ca"}}}}, "mutual TLS needs tls.collector.existingSecret"),
    ({"collector": {"autoscaling": {"minReplicas": 9, "maxReplicas": 3}}}, "minReplicas is more than maxReplicas"),
    ({"collector": {"drainSeconds": 60}}, "collector.terminationGracePeriodSeconds: open requests"),
    ({"dashboard": {"terminationGracePeriodSeconds": 19}}, "20 at least"),
    ({"ingress": {"enabled": True}}, "ingress.enabled: name ingress.collector.host"),
    ({"gateway": {"enabled": True}}, "gateway.parentRefs: name the Gateway"),
    ({"gateway": {"enabled": True, "parentRefs": [{"name": "g"}]}}, "gateway.enabled: name hostnames"),
    ({"alerts": {"keys": {"slackUrl": "slack"}}}, "alerts.keys: name the Secret"),
]


@pytest.mark.parametrize(("wrong", "named"), BAD, ids=lambda one: one if isinstance(one, str) else "")
def test_a_value_that_cannot_be_is_refused_by_name(wrong: Object, named: str) -> None:
    with pytest.raises(helm.HelmValuesError) as refused:
        chart().render(_over(NEED, wrong), name="rel")
    assert named in str(refused.value)


@pytest.mark.parametrize(("wrong", "said"), CONTRADICTIONS, ids=lambda one: one if isinstance(one, str) else "")
def test_a_contradiction_is_refused_in_words(wrong: Object, said: str) -> None:
    with pytest.raises(helm.HelmError) as refused:
        chart().render(_over(NEED, wrong), name="rel")
    assert said in str(refused.value)


def _over(below: Object, above: Object) -> Object:
    both = {**below, **above}
    return {
        key: _over(below[key], above[key]) if isinstance(below.get(key), dict) and key in above else both[key]
        for key in both
    }
