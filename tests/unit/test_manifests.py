"""The manifests in `deploy/kubernetes` are valid, restricted, and ask for pages, commands and metrics that there are.

tests/contract/test_helm_chart.py makes them again from the chart.
"""

import re
from collections.abc import Iterator
from itertools import product
from typing import Any, Final

import kubernetes_validate
import pytest
import yaml

from bridge.settings.setting_defaults import EnvironmentSettings
from tests.dashboards import METRICS, find_metrics
from tests.doc_blocks import parse_bridge
from tests.manifests import FOLDER, KUBERNETES, MANIFESTS

MANIFEST: Final[list[dict[str, Any]]] = [
    each for name in MANIFESTS for each in yaml.safe_load_all((FOLDER / name).read_text()) if each
]
#: The kinds of operators, of which Kubernetes has no schema.
OF_OPERATORS: Final = {"PrometheusRule", "ScaledObject", "ServiceMonitor"}
WORKLOADS: Final = [each for each in MANIFEST if each["kind"] in ("Deployment", "Job")]
DEPLOYMENTS: Final = [each for each in WORKLOADS if each["kind"] == "Deployment"]
SECRETS: Final = {"CELERY_BROKER_URL", "DEADLETTERS_DATABASE_URL"}


def find_one(kind: str) -> Any:
    (found,) = (each for each in MANIFEST if each["kind"] == kind)
    return found


def containers() -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    """Yield each container with the pod that has it."""
    for workload in WORKLOADS:
        pod = workload["spec"]["template"]["spec"]
        for container in pod["containers"]:
            yield pod, container


@pytest.mark.parametrize("version", KUBERNETES)
def test_every_manifest_is_valid_to_the_letter(version: str):
    for each in MANIFEST:
        if each["kind"] not in OF_OPERATORS:
            assert kubernetes_validate.validate(each, version, strict=True) == version


def test_every_process_is_deployed():
    names = {each["metadata"]["labels"]["app.kubernetes.io/component"] for each in WORKLOADS}
    assert names == {"bridge", "console", "migration", "recorder", "worker-default"}
    kinds = {each["kind"] for each in MANIFEST}
    assert kinds == OF_OPERATORS | {"Deployment", "Job", "NetworkPolicy", "PodDisruptionBudget", "Service"}


def test_every_container_has_no_privilege_and_a_root_file_system_that_it_cannot_write():
    for pod, container in containers():
        assert pod["securityContext"]["runAsNonRoot"]
        assert pod["securityContext"]["runAsUser"] == 10001
        assert not pod["automountServiceAccountToken"]
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }
        assert {"name": "tmp", "mountPath": "/tmp"} in container["volumeMounts"]
        assert "memory" in container["resources"]["limits"]


def test_a_service_of_the_namespace_sets_no_variable_of_a_container():
    """Kubernetes would set KAFKA_PORT and DEADLETTERS_…, and the latter stops what opens the dead-letter store."""
    assert [pod for pod, _ in containers() if pod["enableServiceLinks"] is not False] == []


def test_every_variable_is_one_that_is_read_and_every_secret_a_reference():
    for _, container in containers():
        variables = {each["name"]: each for each in container["env"]}
        assert {name for name in variables if name not in EnvironmentSettings.model_fields} <= {
            "KAFKA_BOOTSTRAP_SERVERS",
            "CELERY_BROKER_URL",
            "WORKER_LOG_FORMAT",
        }
        assert {name for name, each in variables.items() if "valueFrom" in each} == SECRETS & variables.keys()
    databases = [
        each["metadata"]["name"].rpartition("-")[2]
        for each in WORKLOADS
        if any(
            one["name"] == "DEADLETTERS_DATABASE_URL"
            for one in each["spec"]["template"]["spec"]["containers"][0]["env"]
        )
    ]
    assert sorted(databases) == ["console", "migration", "recorder"]


def test_every_command_of_the_bridge_is_one():
    commands = [container["command"] for _, container in containers()]
    for words in commands:
        if words[0] == "bridge":
            parse_bridge(words[1:])
            # Workers have WORKER_LOG_FORMAT; a Job's lines are the command's answer.
            assert words[-2:] == ["--log-format", "json"] or words[-1] == "migrate"
    assert len([words for words in commands if words[0] == "bridge"]) == 4


def test_every_probe_asks_a_page_of_a_port_that_the_process_opens():
    defaults = EnvironmentSettings.model_fields
    for deployment in DEPLOYMENTS:
        (container,) = deployment["spec"]["template"]["spec"]["containers"]
        (port,) = container["ports"]
        if container["name"] == "worker":
            assert "inspect ping" in container["livenessProbe"]["exec"]["command"][-1]
            assert "readinessProbe" not in container
            assert port["containerPort"] == defaults["WORKER_METRICS_PORT"].default
            continue
        kinds = {"bridge": "BRIDGE_HTTP_PORT", "recorder": "DEADLETTERS_HTTP_PORT"}
        known = kinds.get(container["name"])
        assert port["containerPort"] == (defaults[known].default if known else 8093)
        asked = {kind: container[f"{kind}Probe"]["httpGet"] for kind in ("liveness", "readiness")}
        assert {each["port"] for each in asked.values()} == {port["name"]}
        assert asked["liveness"]["path"] == "/healthz"
        assert asked["readiness"]["path"] == ("/readyz" if known else "/healthz")


def test_every_process_has_time_to_end_and_a_budget_for_drained_nodes():
    budgets = {str(each["spec"]["selector"]): each for each in MANIFEST if each["kind"] == "PodDisruptionBudget"}
    for deployment in DEPLOYMENTS:
        spec = deployment["spec"]["template"]["spec"]
        # celeryconfig.py: worker_soft_shutdown_timeout is 20 s, and what has not begun goes back.
        assert spec["terminationGracePeriodSeconds"] >= 30
        budget = budgets.pop(str(deployment["spec"]["selector"]))
        assert budget["spec"]["maxUnavailable"] == 1
    assert budgets == {}


def test_prometheus_scrapes_every_process_that_has_metrics_and_may_reach_it():
    service = next(each for each in MANIFEST if each["metadata"]["name"].endswith("-metrics"))
    monitor, policy = find_one("ServiceMonitor"), find_one("NetworkPolicy")
    assert monitor["spec"]["selector"]["matchLabels"] == service["metadata"]["labels"]
    assert [each["port"] for each in monitor["spec"]["endpoints"]] == [
        each["name"] for each in service["spec"]["ports"]
    ]
    for deployment, (name, value) in product(DEPLOYMENTS, service["spec"]["selector"].items()):
        labels = deployment["spec"]["template"]["metadata"]["labels"]
        (port,) = deployment["spec"]["template"]["spec"]["containers"][0]["ports"]
        assert name not in ("metrics",) or (labels.get(name) == value) == (port["name"] == "metrics")
        assert policy["spec"]["podSelector"]["matchLabels"].items() <= labels.items()
    assert [rule["ports"][0]["port"] for rule in policy["spec"]["ingress"]] == ["metrics", "http"]
    # Prometheus' operator calls a job like the Service.
    jobs = re.findall(r"absent\(\w+(.*?)\)", str(find_one("PrometheusRule")))
    assert jobs == [f'{{job="{service["metadata"]["name"]}"}}'] * 2


def test_the_autoscaler_asks_for_metrics_that_there_are_and_scales_a_deployment_from_zero():
    scaler = find_one("ScaledObject")["spec"]
    assert scaler["scaleTargetRef"]["name"] in {each["metadata"]["name"] for each in DEPLOYMENTS}
    assert scaler["minReplicaCount"] == 0
    queries = [trigger["metadata"]["query"] for trigger in scaler["triggers"]]
    named = [metric for query in queries for metric in find_metrics(query)]
    assert named == ["bridge_backlog_seconds", "bridge_backlog_deliveries", "bridge_queue_retries"]
    assert {*named} <= METRICS.keys()
    assert {trigger["metadata"]["activationThreshold"] for trigger in scaler["triggers"]} == {"0"}
    assert all(re.search(r'queue=~"bridge"', query) for query in queries)
    # Bridges always show deliveries: none means that nobody knows, and must not read as no work.
    assert [trigger["metadata"].get("ignoreNullValues", "true") for trigger in scaler["triggers"]] == [
        *("true", "false", "true")
    ]
    assert scaler["fallback"]["replicas"] > 0
