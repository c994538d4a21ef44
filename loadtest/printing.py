"""What the demo shows in a terminal: labelled parts of an answer, dim reasoning, a curl line."""

import json
import shlex
import sys
from typing import Any

DIM, BOLD, PLAIN = "\033[2m", "\033[1m", "\033[0m"
PARTS = ("reasoning", "content", "tool call")


def _styled(text: str, style: str) -> str:
    """Return `text` in a style where the output is a terminal."""
    return f"{style}{text}{PLAIN}" if sys.stdout.isatty() else text


def step(text: str) -> None:
    """Print what the demo does next."""
    print(f"demo: {text}", flush=True)


def heading(text: str) -> None:
    """Print the title of a round trip."""
    print(f"\n{_styled(f'== {text} ==', BOLD)}", flush=True)


def print_answer(token_ids: list[int], response: dict[str, Any]) -> None:
    """Print a whole answer, from its tokens to its parts."""
    heading("one-shot: What is 2+2?")
    choice = response["choices"][0]
    print(f"{len(token_ids)} token IDs: {token_ids}")
    printer = _Parts()
    printer.add("reasoning", choice["message"]["reasoning"].strip())
    printer.add("content", choice["message"]["content"].strip())
    printer.end()
    _print_end(choice["finish_reason"], response["usage"])


def print_curl(url: str, body: dict[str, Any]) -> None:
    """Print a command line that posts `body`."""
    heading("try it")
    data = shlex.quote(json.dumps(body, separators=(",", ":")))
    print(f"curl -s {url} -H 'Content-Type: application/json' -d {data}\n", flush=True)


class StreamPrinter:
    """Prints the chunks of a streamed answer as they arrive."""

    def __init__(self) -> None:
        """Print the title."""
        heading("streamed: What is the weather in Paris? (with a tool)")
        self._parts = _Parts()
        self._finish_reason: str | None = None
        self._usage: dict[str, Any] | None = None

    def chunk(self, chunk: dict[str, Any]) -> None:
        """Print what a chunk adds."""
        self._usage = chunk.get("usage") or self._usage
        for choice in chunk["choices"]:
            self._delta(choice["delta"])
            self._finish_reason = choice["finish_reason"] or self._finish_reason

    def finish(self) -> list[str]:
        """End the answer and return the names of the parts that it lacks."""
        self._parts.end()
        if self._finish_reason is None or self._usage is None:
            return ["its finish reason or usage"]
        _print_end(self._finish_reason, self._usage)
        return [part for part in PARTS if part not in self._parts.seen]

    def _delta(self, delta: dict[str, Any]) -> None:
        self._parts.add("reasoning", delta.get("reasoning") or "")
        self._parts.add("content", delta.get("content") or "")
        for call in delta.get("tool_calls") or ():
            function = call["function"]
            name = function.get("name")
            text = f"{name} " if name else ""
            self._parts.add("tool call", text + (function.get("arguments") or ""))


class _Parts:
    """Prints text under a label for each part, on a new line when the part changes."""

    def __init__(self) -> None:
        self.seen: list[str] = []
        self._current: str | None = None
        self._held = ""

    def add(self, part: str, text: str) -> None:
        """Print `text`, but for the blank lines that a part opens or ends with."""
        if part != self._current:
            text = text.lstrip()
            if not text:
                return
            self._open(part)
        text = self._held + text
        shown = text.rstrip("\n")
        self._held = text[len(shown) :]
        shown = shown.replace("\n", f"\n{'':>9} | ")
        print(_styled(shown, DIM) if part == "reasoning" else shown, end="", flush=True)

    def end(self) -> None:
        """End the line of the part that is open."""
        if self._current is not None:
            print(flush=True)
        self._current = None

    def _open(self, part: str) -> None:
        self.end()
        self._current = part
        self._held = ""
        self.seen.append(part)
        print(f"{part:>9} | ", end="")


def _print_end(finish_reason: str, usage: dict[str, Any]) -> None:
    counts = f"{usage['prompt_tokens']} prompt + {usage['completion_tokens']} completion tokens"
    print(f"{'finish':>9} | {finish_reason}, {counts}", flush=True)
