"""CPU time of the bare parser step: vLLM's parser and the decoding of its tokens, nothing around.

Run with `python -m loadtest.parser_step MODEL_DIR --prompt IDS`: it loads the model, says `ready`,
and for each line on standard input parses one generation token by token and prints microseconds
per token.
"""

import argparse
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import msgspec

from core.decoding import open_stream
from core.options import ModelOptions
from core.vllm_adapter import load_model
from core.vllm_adapter.parsing import ChatContext
from loadtest.workload import CHAT_REQUEST, Workload

PROMPT_TOKENS = 64
TOKENS = 1024


class ParserStep:
    """The same generation, parsed again and again."""

    def __init__(self, model_dir: Path) -> None:
        """Load the model and make the request's context."""
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
        self._context: ChatContext = self._model.chat_context(msgspec.json.encode(CHAT_REQUEST))

    def measure(self) -> float:
        """CPU seconds per token of one generation."""
        rules = self._context.rules
        parser = self._context.open_stream()
        text = open_stream(self._model.tokens, self._prompt, rules.skip_special_tokens, True)
        begun = time.process_time()
        for token_id in self._output:
            parser.step(text.feed([token_id]), [token_id], None, self._prompt)
        return (time.process_time() - begun) / len(self._output)


def main(argv: Sequence[str] | None = None) -> int:
    """Measure once per line of standard input."""
    parser = argparse.ArgumentParser(prog="python -m loadtest.parser_step", description=__doc__)
    parser.add_argument("model_dir", type=Path)
    step = ParserStep(parser.parse_args(argv).model_dir)
    step.measure()
    print("ready", flush=True)
    for _ in sys.stdin:
        print(step.measure(), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
