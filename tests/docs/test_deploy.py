"""The files in `deploy/`: they parse, name what exists, and their times fit together."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped]

from gateway.cli.flags import FLAGS
from gateway.cli.resolving import resolve
from tests.serving import DEMO_MODEL, ROOT

DEPLOY = ROOT / "deploy"
VARIABLES = {flag.variable for flag in FLAGS}
Yaml = Any


def _compose() -> Yaml:
    return yaml.safe_load((DEPLOY / "compose.yaml").read_text("utf-8"))["services"]["derender"]


def _kubernetes() -> dict[str, Yaml]:
    documents = yaml.safe_load_all((DEPLOY / "kubernetes.yaml").read_text("utf-8"))
    return {document["kind"]: document for document in documents}


def _pod() -> Yaml:
    return _kubernetes()["Deployment"]["spec"]["template"]["spec"]


def _values(environment: Yaml) -> dict[str, str]:
    """The environment as a container sees it, with the model's folder of this checkout."""
    given = environment
    if isinstance(environment, list):
        given = {each["name"]: each.get("value", "") for each in environment}
    values = {name: re.sub(r"\$\{\w+:[?-](.*)\}", r"\1", value) for name, value in given.items()}
    return values | {"DERENDER_MODEL": str(DEMO_MODEL), "DERENDER_ENGINE_URL": "http://engine:8000"}


@pytest.mark.parametrize(
    "environment",
    [_compose()["environment"], _pod()["containers"][0]["env"]],
    ids=["compose", "kubernetes"],
)
def test_the_environment_starts_a_service(
    environment: Yaml, monkeypatch: pytest.MonkeyPatch
) -> None:
    for variable in VARIABLES:
        monkeypatch.delenv(variable, raising=False)
    values = _values(environment)
    assert set(values) <= VARIABLES
    for name, value in values.items():
        monkeypatch.setenv(name, value)
    settings = resolve({})
    assert settings.engines is not None
    assert (settings.counts.shards, settings.http.shutdown_timeout_s) == (2, 300.0)


def test_the_image_sets_what_exists() -> None:
    text = (DEPLOY / "Dockerfile").read_text("utf-8")
    assert set(re.findall(r"DERENDER_\w+", text)) <= VARIABLES
    copied = " ".join(re.findall(r"^COPY (.+) \S+$", text, re.MULTILINE)).split()
    shown = re.findall(r"^!(.+)$", (DEPLOY / "Dockerfile.dockerignore").read_text("utf-8"), re.M)
    assert sorted(copied) == sorted(shown)
    assert all(Path(ROOT, name).exists() for name in copied)


def test_the_image_holds_only_what_is_served() -> None:
    text = (DEPLOY / "Dockerfile").read_text("utf-8")
    folders = {name for name in re.findall(r"^COPY (\S+) \1$", text, re.MULTILINE)}
    assert folders == {"core", "gateway", "shards"}
    assert re.findall(r"requirements\S*\.txt", text) == ["requirements-serve.txt"] * 2


def test_there_is_time_to_end() -> None:
    assert _compose()["stop_grace_period"] == "310s"
    pod = _pod()
    (command, pause) = pod["containers"][0]["lifecycle"]["preStop"]["exec"]["command"]
    assert command == "sleep"
    assert pod["terminationGracePeriodSeconds"] >= int(pause) + 300 + 5


def test_the_parts_of_the_manifest_fit() -> None:
    found = _kubernetes()
    assert set(found) == {"Deployment", "Service"}
    labels = found["Deployment"]["spec"]["template"]["metadata"]["labels"]
    assert found["Deployment"]["spec"]["selector"]["matchLabels"] == labels
    assert found["Service"]["spec"]["selector"] == labels
    container = _pod()["containers"][0]
    assert container["readinessProbe"]["httpGet"]["path"] == "/health"
    (port,) = container["ports"]
    assert (port["name"], port["containerPort"]) == ("http", 8100)
    assert {mount["name"] for mount in container["volumeMounts"]} == {
        volume["name"] for volume in _pod()["volumes"]
    }
