"""The documentation's examples run as written, against the shared service."""

import re
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from gateway.flags import FLAGS
from tests.serving import Service

ROOT = Path(__file__).parent.parent.parent
_PYTHON = re.compile(r"```python\n(# example: (\w+)\n.*?)```", re.DOTALL)
_CURL = re.compile(r"^curl .*?^\}'$", re.DOTALL | re.MULTILINE)
EXAMPLES = {
    name: code for code, name in _PYTHON.findall((ROOT / "docs/client.md").read_text("utf-8"))
}


@pytest.mark.parametrize("name", EXAMPLES)
def test_client_examples(name: str, service: Service) -> None:
    code = EXAMPLES[name].replace("http://localhost:8100", service.url)
    run = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, cwd=ROOT
    )
    assert run.returncode == 0, run.stderr
    assert "assistant" in run.stdout


def test_the_readme_curl_line(service: Service) -> None:
    found = _CURL.search((ROOT / "README.md").read_text("utf-8"))
    assert found is not None
    command = found[0].replace("http://localhost:8100", service.url)
    run = subprocess.run(["sh", "-c", command], capture_output=True, text=True, timeout=60)
    assert '"object":"chat.completion"' in run.stdout, run.stdout


def test_every_flag_is_documented() -> None:
    text = (ROOT / "docs/operations.md").read_text("utf-8")
    missing = [flag.name for flag in FLAGS if f"`--{flag.name}`" not in text]
    assert not missing


def test_every_metric_is_documented(service: Service) -> None:
    text = (ROOT / "docs/operations.md").read_text("utf-8")
    shown = httpx.get(f"{service.url}/metrics").text
    names = set(re.findall(r"^# TYPE derender_(\w+)", shown, re.MULTILINE))
    missing = [
        name
        for name in names
        if not name.endswith("_created") and name.removesuffix("_total") not in text
    ]
    assert not missing
