"""Helm makes the committed manifests of the chart, and valid ones of other values."""

import shutil
from collections.abc import Mapping
from typing import Any, Final

import kubernetes_validate
import pytest
import yaml

from tests.manifests import (
    CHART,
    FOLDER,
    KUBERNETES,
    MANIFESTS,
    ROOT,
    find_helm,
    manifest_files,
    render_chart,
    run_helm,
)
from tests.servers.missing import need
from tests.unit.test_manifests import OF_OPERATORS

pytestmark = pytest.mark.servers
ALL: Final = {
    "app": "mysite.celery",
    "image.digest": f"sha256:{'0' * 64}",
    "imagePullSecrets[0].name": "registry",
    "volumes[0].name": "certificates",
    "volumes[0].secret.secretName": "kafka-ca",
    "volumeMounts[0].name": "certificates",
    "volumeMounts[0].mountPath": "/etc/kafka",
    "serviceAccountName": "shop",
    "nodeSelector.disk": "ssd",
    "tolerations[0].operator": "Exists",
    "recorder.arguments[0]": r"--topics=a.DLT\,b.DLT",
    "workers[0].name": "default",
    "workers[0].queues": r"orders\,mails",
    "workers[0].concurrency": "4",
    "workers[0].replicas": "1",
    "workers[0].terminationGracePeriodSeconds": "90",
    "workers[0].resources.requests.cpu": "1",
    "networkPolicy.egress[0].ports[0].port": "9092",
    "console.environment.DEADLETTERS_CONSOLE_URL": "https://console.example.com",
    "serviceMonitor.enabled": "true",
    "prometheusRule.enabled": "true",
    "keda.enabled": "true",
}
ALERTS: Final = ROOT / "deploy" / "alerts.yml"
LEAST: Final = {
    "recorder.enabled": "false",
    "console.enabled": "false",
    "migration.enabled": "false",
    "networkPolicy.enabled": "false",
}


@pytest.fixture(scope="module", autouse=True)
def helm() -> None:
    if not find_helm() and not shutil.which("go"):
        pytest.skip("neither Helm nor Go, which builds it, is here: THE CHART IS NOT TESTED")
    need(None if find_helm() else "Helm is not here (`make helm` builds it with Go)")


def test_the_chart_is_without_a_warning():
    assert "0 chart(s) failed" in run_helm("lint", "--strict", str(CHART))


def test_the_committed_manifests_are_those_of_the_chart():
    stale = [file.name for file, text in manifest_files().items() if file.read_text() != text]
    assert stale == [], "run `make manifests`"
    assert {file.name for file in FOLDER.iterdir()} == {*MANIFESTS, "kustomization.yaml"}


@pytest.mark.parametrize("values", [ALL, LEAST], ids=["all", "least"])
def test_the_chart_makes_valid_manifests_of_other_values(values: Mapping[str, str]):
    for version in KUBERNETES:
        made: list[dict[str, Any]] = [each for each in yaml.safe_load_all(render_chart(values, (), version)) if each]
        for each in made:
            if each["kind"] not in OF_OPERATORS:
                kubernetes_validate.validate(each, version, strict=True)
    kinds = [each["kind"] for each in made]
    if values is LEAST:
        assert sorted(kinds) == ["Deployment", "Deployment", "PodDisruptionBudget", "PodDisruptionBudget"]
    else:
        (scaler,) = (each for each in made if each["kind"] == "ScaledObject")
        assert 'queue=~"orders|mails"' in scaler["spec"]["triggers"][0]["metadata"]["query"]
        (worker,) = (
            each for each in made if each["metadata"]["name"].endswith("worker-default") and "template" in each["spec"]
        )
        assert "replicas" not in worker["spec"], "the autoscaler sets it"
        pods = [each["spec"]["template"]["spec"] for each in made if "template" in each["spec"]]
        assert {pod.get("serviceAccountName") for pod in pods} == {"shop"}
        assert [pod["nodeSelector"] for pod in pods] == [{"disk": "ssd"}] * len(pods)
        commands = [pod["containers"][0]["command"] for pod in pods]
        assert "--topics=a.DLT,b.DLT" in next(words for words in commands if "record" in words)


def test_the_chart_asks_for_an_image_and_writes_numbers_and_the_alerts_of_its_release():
    command = ("template", "shop", str(CHART), "--namespace", "orders", "--kube-version", KUBERNETES[-1])
    with pytest.raises(RuntimeError, match="name your own image"):
        run_helm(*command)
    # As a values file has it: --set would make it an integer.
    number = ("--set-json", "environment.KAFKA_FETCH_MAX_BYTES=1048576")
    made = run_helm(*command, "--set", "image.repository=shop,prometheusRule.enabled=true", *number)
    assert 'value: "1048576"' in made
    for metric in ("bridge_ready", "bridge_deadletters_recorder_ready"):
        assert f'absent({metric}{{namespace="orders",job="shop-metrics"}})' in made


def list_alerts(**values: str) -> dict[str, dict[str, Any]]:
    """Return the alerts of the chart with these values of `prometheusRule`, by name."""
    chosen = {"prometheusRule.enabled": "true", **values}
    (rule,) = yaml.safe_load_all(render_chart(chosen, ("prometheus-rule",)))
    (group,) = rule["spec"]["groups"]
    return {each.pop("alert"): each for each in group["rules"]}


def test_an_alert_is_changed_or_left_out_by_its_name_and_a_wrong_name_is_refused():
    before = list_alerts()
    (written,) = yaml.safe_load(ALERTS.read_text())["groups"]
    assert [*before] == [each["alert"] for each in written["rules"]]
    queue, behind = "prometheusRule.alerts.NobodyConsumesAQueue", "prometheusRule.alerts.TheRecorderIsBehind"
    changed = list_alerts(**{f"{queue}.for": "10m", f"{queue}.labels.severity": "page", f"{behind}.enabled": "false"})
    assert before.keys() - changed.keys() == {"TheRecorderIsBehind"}
    was = before["NobodyConsumesAQueue"]
    assert changed["NobodyConsumesAQueue"] == {**was, "for": "10m", "labels": {**was["labels"], "severity": "page"}}
    assert {name for name in changed if changed[name] != before[name]} == {"NobodyConsumesAQueue"}
    with pytest.raises(RuntimeError, match='there is no alert "NobodyConsumes"'):
        list_alerts(**{"prometheusRule.alerts.NobodyConsumes.for": "10m"})


def test_without_a_recorder_no_alert_misses_it_unless_it_is_asked_for():
    alone = {"recorder.enabled": "false"}
    asked = {**alone, "prometheusRule.alerts.NobodyRecordsDeadLetters.enabled": "true"}
    assert list_alerts().keys() - list_alerts(**alone).keys() == {"NobodyRecordsDeadLetters"}
    assert list_alerts(**asked).keys() == list_alerts().keys()
