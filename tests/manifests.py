"""The writer of the manifests in `deploy/kubernetes`, which Helm makes of the chart: `make manifests`."""

import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[1]
CHART: Final = ROOT / "deploy" / "helm" / "celery-kafka-bridge"
FOLDER: Final = ROOT / "deploy" / "kubernetes"
#: The Kubernetes whose schemas the tests hold the manifests against.
KUBERNETES: Final = ("1.35", "1.36", "1.37")
#: By file: the values that differ from those of the chart, and the templates; none: all of them.
MANIFESTS: Final[Mapping[str, tuple[Mapping[str, str], tuple[str, ...]]]] = {
    "celery-kafka-bridge.yaml": ({}, ()),
    "monitoring.yaml": (
        {"serviceMonitor.enabled": "true", "prometheusRule.enabled": "true"},
        ("monitoring", "prometheus-rule"),
    ),
    "autoscaling.yaml": ({"keda.enabled": "true"}, ("autoscaling",)),
}
HEAD: Final = "# Written by `make manifests` from deploy/helm: change the chart, or patch this with kustomize.\n"


def find_helm() -> str | None:
    """Return the Helm that `make helm` has built, or this machine's."""
    built = ROOT / "build" / "helm" / "helm"
    return str(built) if built.exists() else shutil.which("helm")


def run_helm(*arguments: str) -> str:
    """Return what Helm prints; it must end with 0."""
    done = subprocess.run([find_helm() or "helm", *arguments], capture_output=True, text=True, timeout=60, check=False)
    if done.returncode:
        raise RuntimeError(f"helm {' '.join(arguments)}: {done.stdout}{done.stderr}")
    return done.stdout


def render_chart(values: Mapping[str, str], templates: tuple[str, ...] = (), kubernetes: str = KUBERNETES[-1]) -> str:
    """Return the manifests that the chart makes with these values."""
    chosen = {"image.repository": CHART.name, **values}
    settings = [word for name, value in chosen.items() for word in ("--set", f"{name}={value}")]
    shown = [word for template in templates for word in ("--show-only", f"templates/{template}.yaml")]
    return run_helm("template", CHART.name, str(CHART), "--kube-version", kubernetes, *settings, *shown)


def manifest_files() -> dict[Path, str]:
    """Return each file of `deploy/kubernetes` that Helm makes, with its text."""
    texts = {FOLDER / name: render_chart(values, templates) for name, (values, templates) in MANIFESTS.items()}
    # An overlay sets the namespace of objects, and not that within an expression.
    return {file: HEAD + text.replace('namespace="default",', "") for file, text in texts.items()}


if __name__ == "__main__":
    for file, text in manifest_files().items():
        file.parent.mkdir(exist_ok=True)
        file.write_text(text)
