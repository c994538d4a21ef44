"""CPU time of the bare parser step: vLLM's parser and the decoding of its tokens, nothing around.

Run with `python -m loadtest.bench.parser_step MODEL_DIR`: it loads the model and says `ready`. For
each line `SECONDS RATE` on standard input it parses a generation, so many tokens a second (0: as
fast as it can), and prints CPU seconds per token. A step that is taken rarely finds the processor's
caches filled by others and costs several times as much, here as in a shard; hence the rate.
"""

import argparse
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import msgspec

from core.protocol.options import ModelOptions
from core.vllm_adapter import patches
from loadtest.bench.workload import CHAT_REQUEST, Workload

PROMPT_TOKENS = 64
TOKENS = 1024


class ParserStep:
    """The same generation, parsed again and again."""

    def __init__(self, model_dir: Path) -> None:
        """Load the model and make the request's context."""
        patches.install()
        # What imports vLLM comes after the patches.
        from core.text.decoding import open_stream
        from core.vllm_adapter.loading import load_model

        options = ModelOptions(
            model=str(model_dir),
            tool_call_parser="hermes",
            reasoning_parser="qwen3",
            enable_auto_tool_choice=True,
        )
        self._model = load_model(options, lambda step: None)
        workload = Workload(model_dir)
        self._prompt = workload.prompt(PROMPT_TOKENS)
        self._output = workload.output(TOKENS)
        self._open_text = open_stream
        self._context = self._model.chat_context(msgspec.json.encode(CHAT_REQUEST))

    def measure(self, seconds: float, rate: float) -> float:
        """Mean CPU seconds per token.

        Args:
            seconds: How long to go on.
            rate: Tokens per second; 0 for as many as can be.
        """
        spent, taken = 0.0, 0
        due = begun = time.monotonic()
        while time.monotonic() - begun < seconds:
            for step in self._generation():
                if rate:
                    due += 1 / rate
                    time.sleep(max(0.0, due - time.monotonic()))
                before = time.thread_time()
                step()
                spent += time.thread_time() - before
                taken += 1
                if time.monotonic() - begun >= seconds:
                    break
        return spent / taken

    def _generation(self) -> Iterator[Callable[[], object]]:
        """The steps of one generation."""
        rules = self._context.rules
        parser = self._context.open_stream(self._prompt)
        text = self._open_text(self._model.tokens, self._prompt, rules.skip_special_tokens, True)
        for token_id in self._output:
            yield lambda: parser.step(text.feed([token_id]), [token_id], None)  # noqa: B023


def main(argv: Sequence[str] | None = None) -> int:
    """Measure once for each line of standard input."""
    parser = argparse.ArgumentParser(
        prog="python -m loadtest.bench.parser_step", description=__doc__
    )
    parser.add_argument("model_dir", type=Path)
    step = ParserStep(parser.parse_args(argv).model_dir)
    step.measure(1.0, 0.0)
    print("ready", flush=True)
    for line in sys.stdin:
        seconds, rate = map(float, line.split())
        print(step.measure(seconds, rate), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
