"""Renders and validates the contents of ``deploy/`` with the standard tools.

The tools are those of ``setup.sh deploy`` in ``.tools``. ``python -m tests.support.deployments``
(``make golden``) regenerates the golden files. With ``provider`` and the output of ``terraform
providers schema -json`` as its input, it writes the arguments of the AWS provider.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

ROOT: Final = Path(__file__).parents[2]
DEPLOY: Final = ROOT / "deploy"
CHART: Final = DEPLOY / "helm" / "chatserver"
EXAMPLES: Final = DEPLOY / "helm" / "examples"
COMPOSE: Final = DEPLOY / "compose"
TERRAFORM: Final = DEPLOY / "terraform"
GOLDEN: Final = ROOT / "tests" / "tooling" / "deploy" / "golden"
PROVIDER: Final = GOLDEN.parent / "aws-provider.json"
TOOLS: Final = ROOT / ".tools"
KUBERNETES: Final = "1.35"
TOOL_TIMEOUT_S: Final = 100

EXAMPLE_VALUES: Final = ("small", "eks")
VALUE_SETS: Final = ("default", *EXAMPLE_VALUES)
SECRETS: Final = {"CHAT_AUTH_SECRET": "a" * 64, "CHAT_COLD_SECRET_KEY": "b" * 64}
COMPOSE_CASES: Final[dict[str, tuple[tuple[str, ...], dict[str, str]]]] = {
    "compose-1": (("compose.yaml",), SECRETS),
    "compose-3-https": (
        ("compose.yaml", "compose.https.yaml"),
        {**SECRETS, "SCALE": "3", "SITE": "chat.example.com"},
    ),
}
_ACCOUNT: Final = {
    "account_id": "123456789012",
    "region": "eu-central-1",
    "vpc_id": "vpc-1",
    "subnet_ids": ["subnet-1", "subnet-2"],
    "client_security_group_ids": ["sg-1"],
    "redis_password": "0123456789abcdef",
    "origins": ["https://chat.example.com"],
}
TERRAFORM_CASES: Final[dict[str, dict[str, Any]]] = {
    "terraform-default": _ACCOUNT,
    "terraform-provisioned": {
        **_ACCOUNT,
        "billing": "provisioned",
        "redis": "elasticache",
        "tenant": "acme",
        "archive_removal": "ttl",
        "encryption_key_arn": "arn:aws:kms:eu-central-1:123456789012:key/2",
        "kms_key_arn": "arn:aws:kms:eu-central-1:123456789012:key/1",
        "bedrock_models": ["arn:aws:bedrock:eu-central-1::foundation-model/m"],
        "oidc_provider_arn": "arn:aws:iam::123456789012:oidc-provider/oidc.example.com/id/A",
    },
}


def find_tool(name: str) -> Path:
    """Return the path of a tool."""
    for place in (TOOLS / "bin" / name, TOOLS / "deploy" / "bin" / name):
        if place.exists():
            return place
    found = shutil.which(name)
    assert found is not None, (
        f"there is no {name}: run `make tools` and `sh deploy/dev/setup.sh deploy`"
    )
    return Path(found)


def run_tool(name: str, *args: str | Path, stdin: str = "") -> subprocess.CompletedProcess[str]:
    """Run a tool without this machine's settings; the caller checks the exit code."""
    environment = {"PATH": os.environ["PATH"], "HOME": tempfile.gettempdir()}
    return subprocess.run(
        [find_tool(name), *args],
        input=stdin,
        capture_output=True,
        text=True,
        check=False,
        timeout=TOOL_TIMEOUT_S,
        env=environment,
        cwd=ROOT,
    )


@contextlib.contextmanager
def given_settings(monkeypatch: pytest.MonkeyPatch, variables: Mapping[str, str]) -> Iterator[None]:
    """Replace all ``CHAT_*`` environment variables with these inside the block."""
    with monkeypatch.context() as patch:
        for name in [each for each in os.environ if each.startswith("CHAT_")]:
            patch.delenv(name)
        for name, value in variables.items():
            if name.startswith("CHAT_"):
                patch.setenv(name, value)
        yield


# helm


def render_chart(values: str, *more: str) -> str:
    """Render the chart with a set of values from `VALUE_SETS`, including hooks."""
    files = [] if values == "default" else ["--values", str(EXAMPLES / f"{values}.yaml")]
    done = run_tool("helm", "template", "chat", str(CHART), "--namespace", "chat", *files, *more)
    assert done.returncode == 0, done.stderr
    return done.stdout


def resources_of(rendered: str) -> list[dict[str, Any]]:
    """Parse the resources of a rendered chart, in order."""
    return [each for each in yaml.safe_load_all(rendered) if each]


# compose

_VARIABLE: Final = re.compile(r"\$\{(\w+)(?:(:[-+?])([^{}]*))?\}")


def interpolate(text: str, variables: Mapping[str, str]) -> str:
    """Interpolate variables like Compose, in the forms ``${A}``, ``:-``, ``:+`` and ``:?``."""

    def value_of(match: re.Match[str]) -> str:
        name, operator, word = match.groups()
        value = variables.get(name, "")
        if operator == ":+":
            return word if value else ""
        if not value and operator == ":-":
            return str(word)
        assert value or operator is None, f"{name}: {word}"
        return value

    return _VARIABLE.sub(value_of, text)


def render_compose(files: Sequence[str], variables: Mapping[str, str]) -> dict[str, Any]:
    """Return the merged Compose configuration of files and variables, with anchors resolved."""
    merged: dict[str, Any] = {}
    for file in files:
        text = (COMPOSE / file).read_text(encoding="utf-8")
        lines = [line for line in text.splitlines() if not line.lstrip().startswith("#")]
        merged = _merge(merged, yaml.safe_load(interpolate("\n".join(lines), variables)))
    return {name: value for name, value in merged.items() if not name.startswith("x-")}


def _merge(lower: Any, upper: Any) -> Any:
    if isinstance(lower, dict) and isinstance(upper, dict):
        both = {name: _merge(lower[name], upper[name]) for name in lower.keys() & upper.keys()}
        return {**lower, **upper, **both}
    if isinstance(lower, list) and isinstance(upper, list):
        return lower + upper
    return upper


# terraform

_META: Final = {"__tfmeta", "count", "depends_on", "for_each", "lifecycle", "provider"}
_UUID: Final = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_READER: Final = """
import json, sys, tfparse
parsed = tfparse.load_from_path(sys.argv[1], stop_on_hcl_error=True, vars_paths=["test.tfvars"])
json.dump(parsed, sys.stdout)
"""


def evaluate_terraform(variables: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Return each resource by its address, with its evaluated arguments.

    An attribute that AWS assigns on creation is replaced by the address of its resource.
    """
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for file in (*TERRAFORM.glob("*.tf"), *TERRAFORM.glob("*.json")):
            # The parser cannot read files outside of its folder.
            text = file.read_text(encoding="utf-8").replace("/../iam/", "/iam/")
            (folder / file.name).write_text(text, encoding="utf-8")
        shutil.copytree(DEPLOY / "iam", folder / "iam")
        lines = [f"{name} = {json.dumps(value)}" for name, value in variables.items()]
        (folder / "test.tfvars").write_text("\n".join(lines) + "\n", encoding="utf-8")
        done = run_tool("python", "-c", _READER, str(folder))
    assert done.returncode == 0, done.stderr
    parsed = json.loads(done.stdout)
    found = [
        each for kind, instances in parsed.items() if kind.startswith("aws_") for each in instances
    ]
    addresses = {each["id"]: each["__tfmeta"]["path"] for each in found}
    return {addresses[each["id"]]: _plain(each, addresses) for each in found}


def _plain(value: Any, addresses: Mapping[str, str]) -> Any:
    if isinstance(value, dict):
        if str(value.get("__attribute__", "")).startswith("var."):
            return None  # a variable without a value
        plain = {name: _plain(inner, addresses) for name, inner in value.items()}
        own_id = _UUID.fullmatch(str(value.get("id", ""))) is not None  # generated by the parser
        meta = _META | ({"id"} if own_id else set())
        return {name: inner for name, inner in plain.items() if name not in meta}
    if isinstance(value, list):
        return [_plain(inner, addresses) for inner in value]
    return addresses.get(value, value) if isinstance(value, str) else value


# golden files


def golden_files() -> dict[str, str]:
    """Return the expected content of each golden file, by name."""
    files = {f"chart-{each}.yaml": render_chart(each) for each in EXAMPLE_VALUES}
    for name, case in COMPOSE_CASES.items():
        files[f"{name}.yaml"] = dump_yaml(render_compose(*case))
    for name, variables in TERRAFORM_CASES.items():
        files[f"{name}.yaml"] = dump_yaml(evaluate_terraform(variables))
    return files


class _Plain(yaml.SafeDumper):
    def ignore_aliases(self, data: Any) -> bool:
        return True


def dump_yaml(value: Any) -> str:
    """Encode YAML without anchors and with sorted keys."""
    return yaml.dump(value, Dumper=_Plain, sort_keys=True, width=1000)


def compact_provider(schemas: Mapping[str, Any]) -> dict[str, Any]:
    """Return the content of `PROVIDER`: arguments and blocks of each resource in use."""
    text = "".join(file.read_text(encoding="utf-8") for file in TERRAFORM.glob("*.tf"))
    used = sorted(set(re.findall(r'^resource "(\w+)"', text, re.MULTILINE)))
    (provider,) = schemas["provider_schemas"].values()
    return {name: _compact(provider["resource_schemas"][name]["block"]) for name in used}


def _compact(block: Mapping[str, Any]) -> dict[str, Any]:
    kinds = ("required", "optional")
    return {
        **{
            name: next((kind for kind in kinds if about.get(kind)), "computed")
            for name, about in block.get("attributes", {}).items()
        },
        **{
            name: {"min": about.get("min_items", 0), "block": _compact(about["block"])}
            for name, about in block.get("block_types", {}).items()
        },
    }


def main() -> None:
    """Write the golden files, or the provider's arguments."""
    if sys.argv[1:] == ["provider"]:
        text = json.dumps(compact_provider(json.load(sys.stdin)), indent=1, sort_keys=True)
        PROVIDER.write_text(text + "\n", encoding="utf-8")
        return
    GOLDEN.mkdir(parents=True, exist_ok=True)
    for name, text in golden_files().items():
        (GOLDEN / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
