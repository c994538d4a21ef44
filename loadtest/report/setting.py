"""What figures depend on besides the code: the machine, the versions, the command."""

import importlib.metadata
import os
import platform
from pathlib import Path

import msgspec


def _cpu_model() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return "unknown"


def _own_version() -> str:
    try:
        return importlib.metadata.version("derender-gateway")
    except importlib.metadata.PackageNotFoundError:
        return "from source"


class RunSetting(msgspec.Struct, frozen=True, kw_only=True):
    """What the figures were taken with."""

    command: str
    model: str
    shards: int
    rounds: int
    max_model_len: int
    cpu: str = msgspec.field(default_factory=_cpu_model)
    cores: int = msgspec.field(default_factory=lambda: len(os.sched_getaffinity(0)))
    python: str = platform.python_version()
    vllm: str = msgspec.field(default_factory=lambda: importlib.metadata.version("vllm"))
    ours: str = msgspec.field(default_factory=_own_version)
