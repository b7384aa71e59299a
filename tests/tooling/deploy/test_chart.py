"""The Helm chart: valid for Kubernetes, with valid settings and minimal rights."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client.metrics import MetricWrapperBase

from chatserver.cli.worker import WORKERS
from chatserver.config import load_settings
from chatserver.telemetry import metrics
from tests.support.deployments import (
    CHART,
    EXAMPLE_VALUES,
    EXAMPLES,
    KUBERNETES,
    VALUE_SETS,
    given_settings,
    render_chart,
    resources_of,
    run_tool,
)

# The documented fields of two kinds that operators add to Kubernetes.
CUSTOM: dict[str, dict[str, Any]] = {
    "ScaledObject": {
        "scaleTargetRef": {"name"},
        "minReplicaCount": None,
        "maxReplicaCount": None,
        "pollingInterval": None,
        "cooldownPeriod": None,
        "fallback": {"failureThreshold", "replicas"},
        "triggers": {"type", "metricType", "metadata"},
    },
    "ServiceMonitor": {
        "selector": {"matchLabels"},
        "podTargetLabels": None,
        "endpoints": {"port", "path", "interval"},
    },
}


@functools.cache
def rendered(values: str) -> tuple[dict[str, Any], ...]:
    return tuple(resources_of(render_chart(values)))


def of_kind(values: str, *kinds: str) -> list[dict[str, Any]]:
    return [each for each in rendered(values) if each["kind"] in kinds]


def pods(values: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield name and specification of the pods of each Deployment and Job."""
    for each in of_kind(values, "Deployment", "Job"):
        yield each["metadata"]["name"], each["spec"]["template"]["spec"]


def environment_of(values: str, pod: dict[str, Any]) -> dict[str, str]:
    """Return the variables of a pod's container, including values from the Secret."""
    (container,) = pod["containers"]
    environment = {"CHAT_AUTH_SECRET": "a" * 64, "CHAT_REDIS_URL": "rediss://chat:b@redis:6379/0"}
    for source in container["envFrom"]:
        if "configMapRef" in source:
            (settings,) = of_kind(values, "ConfigMap")
            assert source["configMapRef"]["name"] == settings["metadata"]["name"]
            environment |= settings["data"]
    for each in container.get("env", ()):
        environment[each["name"]] = each.get("value", "10.0.0.7")  # the pod's address
    return environment


def test_chart_is_valid_for_helm_and_kubernetes(tmp_path: Path) -> None:
    """No template fails, no field is unknown, and no resource is defined twice."""
    # Only the examples are validated, because it is slow; together they cover all templates.
    files = [tmp_path / f"{values}.yaml" for values in EXAMPLE_VALUES]
    for values, file in zip(EXAMPLE_VALUES, files, strict=True):
        file.write_text(yaml.safe_dump_all(rendered(values)), encoding="utf-8")

    lints = [
        run_tool("helm", "lint", "--strict", CHART, *values)
        for values in ([], *(["--values", EXAMPLES / f"{each}.yaml"] for each in EXAMPLE_VALUES))
    ]
    check = run_tool("kubernetes-validate", "--kubernetes-version", KUBERNETES, "--strict", *files)

    assert [lint.stdout for lint in lints if lint.returncode] == []
    assert check.returncode == 0, check.stderr + check.stdout
    output = (check.stderr + check.stdout).splitlines()
    custom = [each for values in EXAMPLE_VALUES for each in of_kind(values, *CUSTOM)]
    assert len([line for line in output if "find schema" in line]) == len(custom)
    for values in VALUE_SETS:
        names = [(each["kind"], each["metadata"]["name"]) for each in rendered(values)]
        assert len(set(names)) == len(names)


def test_custom_resources_have_the_fields_that_their_operators_know() -> None:
    """A misspelled field would be ignored silently."""
    custom = of_kind("eks", *CUSTOM)

    assert {each["kind"] for each in custom} == CUSTOM.keys()
    for each in custom:
        known = CUSTOM[each["kind"]]
        assert each["spec"].keys() == known.keys()
        for name, value in each["spec"].items():
            for part in value if isinstance(value, list) else [value]:
                assert known[name] is None or set(part) == known[name]


@pytest.mark.parametrize("values", VALUE_SETS)
def test_every_process_accepts_its_settings(values: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each name is a setting, each value is valid, and the ports equal the pod's ports."""
    for name, pod in pods(values):
        with given_settings(monkeypatch, environment_of(values, pod)):
            settings = load_settings()

        (container,) = pod["containers"]
        ports = {each["name"]: each["containerPort"] for each in container.get("ports", ())}
        if container["args"] == ["tables", "apply"]:
            continue
        assert ports.pop("metrics") == settings.telemetry.metrics_port, name
        assert settings.telemetry.metrics_host == "10.0.0.7"  # the pod's, not loopback
        servers: dict[str, tuple[str, Any]] = {
            "gateway": ("ws", settings.gateway),
            "api": ("http", settings.api),
        }
        if container["args"][0] in servers:
            port_name, section = servers[container["args"][0]]
            assert ports == {port_name: section.port}
            assert section.host == "0.0.0.0"
        else:
            assert not ports


@pytest.mark.parametrize("values", VALUE_SETS)
def test_pods_have_minimal_rights(values: str) -> None:
    """Pods do not run as root, write only to /tmp, and get no token and no service variables."""
    for name, pod in pods(values):
        (container,) = pod["containers"]
        assert pod["securityContext"]["runAsNonRoot"] is True, name
        assert pod["securityContext"]["runAsUser"] > 0
        assert pod["automountServiceAccountToken"] is False
        # In a release named chat, they would set CHAT_GATEWAY_PORT and other settings.
        assert pod["enableServiceLinks"] is False
        security = container["securityContext"]
        assert security["readOnlyRootFilesystem"] is True
        assert security["allowPrivilegeEscalation"] is False
        assert security["capabilities"] == {"drop": ["ALL"]}
        assert [mount["mountPath"] for mount in container["volumeMounts"]] == ["/tmp"]
        assert container["resources"]["limits"]["memory"]


@pytest.mark.parametrize("extra_args", [(), ("--set", "workersTogether.enabled=true")])
def test_search_index_volume_is_mounted_where_it_is_used(extra_args: tuple[str, ...]) -> None:
    """APIs read the folder and one worker writes it; all processes have the setting."""
    found = resources_of(render_chart("default", "--set", "search.claim=disk", *extra_args))
    mounted = {
        each["metadata"]["name"]
        for each in found
        if each["kind"] == "Deployment"
        for pod in [each["spec"]["template"]["spec"]]
        if {"name": "search", "mountPath": "/search"} in pod["containers"][0]["volumeMounts"]
        and {"name": "search", "persistentVolumeClaim": {"claimName": "disk"}} in pod["volumes"]
    }
    (settings,) = [each["data"] for each in found if each["kind"] == "ConfigMap"]

    worker = "all" if extra_args else "search"
    assert mounted == {"chat-chatserver-api", f"chat-chatserver-worker-{worker}"}
    assert settings["CHAT_SEARCH_INDEX"] == "/search"


@pytest.mark.parametrize("values", VALUE_SETS)
def test_pods_have_time_to_drain(values: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A draining pod is not killed early, and a hung pod fails its liveness probe."""
    for name, pod in pods(values):
        (container,) = pod["containers"]
        if container["args"] == ["tables", "apply"]:
            continue
        with given_settings(monkeypatch, environment_of(values, pod)):
            drain_s = load_settings().gateway.drain_s if container["args"] == ["gateway"] else 8
        hook = container.get("lifecycle", {}).get("preStop", {}).get("exec", {})
        program, seconds = hook.get("command", ["sleep", "0"])

        assert program == "sleep"
        assert pod["terminationGracePeriodSeconds"] >= int(seconds) + drain_s + 10, name
        assert container["livenessProbe"]["httpGet"] == {"path": "/healthz", "port": "metrics"}
        # The API reports readiness only on its own port.
        port = "http" if container["args"] == ["api"] else "metrics"
        assert container["readinessProbe"]["httpGet"] == {"path": "/readyz", "port": port}


@pytest.mark.parametrize("values", VALUE_SETS)
def test_every_worker_is_deployed(values: str) -> None:
    """Each Deployment also has a disruption budget, a service account and a Service."""
    arguments = [pod["containers"][0]["args"] for _, pod in pods(values)]
    workers = set(itertools.chain(*(each[1:] for each in arguments if each[0] == "worker")))
    deployments = [each["metadata"]["name"] for each in of_kind(values, "Deployment")]
    budgets = [each["metadata"]["name"] for each in of_kind(values, "PodDisruptionBudget")]
    accounts = {each["metadata"]["name"] for each in of_kind(values, "ServiceAccount")}

    assert workers in ({"all"}, {name for name, each in WORKERS.items() if each.is_in_all})
    assert sorted(budgets) == sorted(deployments)
    assert {pod["serviceAccountName"] for _, pod in pods(values)} <= accounts
    templates = [each["spec"]["template"] for each in of_kind(values, "Deployment")]
    labels = [each["metadata"]["labels"] for each in templates]
    for service in of_kind(values, "Service"):
        found = [each for each in labels if service["spec"]["selector"].items() <= each.items()]
        assert len(found) == (len(labels) if service["spec"].get("clusterIP") == "None" else 1)


def metric_names() -> set[str]:
    """Return the names of the product's metrics."""
    declared = [each for each in vars(metrics).values() if isinstance(each, MetricWrapperBase)]
    return {family.name for each in declared for family in each.describe()}


def test_gateways_scale_by_an_existing_metric() -> None:
    """An autoscaler with an unknown metric would never scale."""
    used = [
        metric["pods"]["metric"]["name"]
        for each in of_kind("eks", "HorizontalPodAutoscaler")
        for metric in each["spec"]["metrics"]
        if metric["type"] == "Pods"
    ]

    assert used == ["chatserver_connections"]
    assert set(used) <= metric_names()


def test_workers_scale_by_an_existing_metric() -> None:
    """A ScaledObject with an unknown metric would never scale."""
    queries = [
        trigger["metadata"]["query"]
        for each in of_kind("eks", "ScaledObject")
        for trigger in each["spec"]["triggers"]
    ]

    assert queries == ['max(chatserver_backlog_age_seconds{namespace="chat"})']
    assert "chatserver_backlog_age_seconds" in metric_names()


def test_autoscaled_deployments_have_no_replica_count() -> None:
    """Otherwise each upgrade would reset the number of pods that the autoscaler chose."""
    fixed = [each for each in of_kind("eks", "Deployment") if "replicas" in each["spec"]]
    scaled = {f"chat-chatserver-{each}" for each in ("gateway", "api", "worker-persist")}

    assert scaled.isdisjoint(each["metadata"]["name"] for each in fixed)


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("settings.CHAT_REDIS_INBOX_MAX=1000000", "want string"),  # Helm would write 1e+06
        ("settings.CHAT_API_PORT=8080", "propertyName"),  # set by the chart
        ("settings.CHAT_AUTH_SECRET=x", "propertyName"),  # a secret in a ConfigMap
        ("gateway.replica=3", "additional properties"),
        ("existingSecret=", "minLength"),
        ("ingress.enabled=true", "minLength"),  # without a host
        ("topologySpread.zone=Never", "must be one of"),
    ],
)
def test_invalid_values_are_refused(setting: str, message: str) -> None:
    """The error names the value before anything is installed."""
    flag = "--set-string" if setting.endswith(("=x", "=")) else "--set"

    done = run_tool("helm", "template", "chat", CHART, flag, setting)

    assert done.returncode != 0
    assert message in done.stderr
    assert setting.partition("=")[0].split(".")[-1] in done.stderr or "host" in done.stderr
