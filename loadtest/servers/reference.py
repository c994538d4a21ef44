"""Start vLLM's own render server on a machine without a GPU, as the reference.

The wheel on the package index picks no platform without a GPU and then refuses to build any
config ("Failed to infer device type", vLLM 0.33). Its CPU platform is part of the same wheel, so
it is put in place before anything asks for a platform; all the rest is vLLM's own command line.

Run with `python -m loadtest.servers.reference MODEL_DIR [--port N] [flags of vllm launch render]`.
"""

import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from subprocess import Popen

from loadtest.servers.launching import free_port, serving

START_TIMEOUT_S = 180.0
QUIET = {
    "DO_NOT_TRACK": "1",
    "HF_HUB_OFFLINE": "1",
    "TOKENIZERS_PARALLELISM": "false",
    "VLLM_NO_USAGE_STATS": "1",
}
"""The environment that keeps the server from calling out."""


@contextmanager
def start(
    model_dir: Path, flags: Sequence[str] = (), *, log_path: Path | None = None
) -> Iterator[tuple[Popen[bytes], str]]:
    """Run the render server for the block and yield its process and base URL once it is healthy.

    Args:
        model_dir: Folder with the tokenizer files and `config.json`.
        flags: More flags of `vllm launch render`, but for host and port.
        log_path: File that gets the server's output; dropped when missing.

    Raises:
        ServerStartError: The server ended or was not healthy within `START_TIMEOUT_S`.
    """
    port = free_port()
    command = [sys.executable, "-m", "loadtest.servers.reference", str(model_dir)]
    command += ["--host", "127.0.0.1", "--port", str(port), *flags]
    with serving(
        "reference server",
        command,
        port=port,
        log_path=log_path or Path(os.devnull),
        timeout_s=START_TIMEOUT_S,
        extra_env=QUIET,
    ) as served:
        yield served


def main() -> None:
    """Hand the command line to `vllm launch render`."""
    # Those who only start the server need no vLLM, and vLLM's modules come after its platform.
    from core.vllm_adapter.patches import install_cpu_platform

    install_cpu_platform()
    from vllm.entrypoints.cli.main import main as vllm_main

    sys.argv = ["vllm", "launch", "render", *sys.argv[1:]]
    vllm_main()


if __name__ == "__main__":
    main()
