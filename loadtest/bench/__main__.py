"""Measure ours against vLLM's render server, both started here, in one interleaved run.

Run with `python -m loadtest.bench [--only NAME ...] [--rounds N] [--quick] [--model-dir DIR]
[--json FILE]`.
"""

import argparse
import os
import shlex
import signal
import sys
import tempfile
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from types import FrameType

from loadtest.bench.against_reference import oneshot, plain, stream
from loadtest.bench.footprint import process
from loadtest.bench.front_cost import front_latency, front_load
from loadtest.bench.keepalive import PostError
from loadtest.bench.own_scaling import bare, checkpoint, growth, prompt, replicas
from loadtest.bench.render_speed import render_latency, render_throughput
from loadtest.bench.run import BenchRun
from loadtest.bench.under_load import concurrent, isolation, render_isolation
from loadtest.bench.workload import Workload
from loadtest.model.folder import MODEL_DIR
from loadtest.report.page import encode, render
from loadtest.report.row import FigureRow
from loadtest.report.setting import RunSetting
from loadtest.servers.fleet import Fleet
from loadtest.servers.launching import ServerStartError

Group = Callable[[BenchRun], list[FigureRow]]

GROUPS: tuple[Group, ...] = (
    *(oneshot, plain, stream, bare, growth, prompt, checkpoint),
    *(concurrent, replicas, process, isolation),
    *(front_latency, front_load, render_latency, render_throughput, render_isolation),
)
MAX_MODEL_LEN = 200_000
ROUNDS = 200
QUICK_ROUNDS = 24


def main(argv: Sequence[str] | None = None) -> int:
    """Run the groups asked for; 1 where a server or a call failed, 130 where it was ended."""
    args = _parse_args(argv)
    signal.signal(signal.SIGTERM, _interrupt)
    # Both servers take a length beyond the model's, for prompts of 100,000 tokens.
    os.environ["VLLM_ALLOW_LONG_MAX_MODEL_LEN"] = "1"
    rounds = args.rounds or (QUICK_ROUNDS if args.quick else ROUNDS)
    setting = RunSetting(
        command=shlex.join(["python", "-m", "loadtest.bench", *(argv or sys.argv[1:])]),
        model=args.model_dir.name,
        shards=args.shards,
        rounds=rounds,
        max_model_len=MAX_MODEL_LEN,
    )
    rows: list[FigureRow] = []
    code = 0
    try:
        _run(args, rounds, rows)
    except (PostError, ServerStartError, OSError) as error:
        print(f"bench: failed: {error}", file=sys.stderr)
        code = 1
    except KeyboardInterrupt:
        code = 130
    print(render(setting, rows))
    if args.json:
        args.json.write_bytes(encode(setting, rows))
    return code


def _interrupt(signum: int, frame: FrameType | None) -> None:
    """End as on Ctrl-C, so that no server is left running."""
    raise KeyboardInterrupt


def _run(args: argparse.Namespace, rounds: int, rows: list[FigureRow]) -> None:
    """Run the groups; rows measured before a failure are kept."""
    log_dir = args.log_dir or Path(tempfile.mkdtemp(prefix="derender-bench-"))
    print(f"bench: the servers log to {log_dir}", file=sys.stderr)
    with ExitStack() as stack:
        fleet = Fleet(args.model_dir, log_dir, max_model_len=MAX_MODEL_LEN, shards=args.shards)
        run = BenchRun(Workload(args.model_dir), fleet, stack, rounds=rounds, quick=args.quick)
        for group in GROUPS:
            if not args.only or group.__name__ in args.only:
                print(f"bench: {group.__name__}", file=sys.stderr, flush=True)
                rows += group(run)


def _parse_args(argv: Sequence[str] | None) -> argparse.Namespace:
    names = [group.__name__ for group in GROUPS]
    parser = argparse.ArgumentParser(prog="python -m loadtest.bench", description=__doc__)
    parser.add_argument(
        "--only", nargs="+", choices=names, metavar="NAME", help=f"groups: {', '.join(names)}"
    )
    parser.add_argument("--rounds", type=int, help=f"samples per side; default {ROUNDS}")
    parser.add_argument("--quick", action="store_true", help="an eighth of the lengths")
    parser.add_argument("--model-dir", type=Path, default=MODEL_DIR, help="default: the demo model")
    parser.add_argument("--shards", type=int, default=1, help="of our service; default 1")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write setting and all samples")
    parser.add_argument("--log-dir", type=Path, help="folder for the servers' output")
    args = parser.parse_args(argv)
    args.model_dir = args.model_dir.resolve()
    return args


if __name__ == "__main__":
    sys.exit(main())
