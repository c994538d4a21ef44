"""What the demo shows in a terminal: its progress, labelled parts of answers, commands to paste."""

import json
import shlex
import sys
import threading
import time
from types import TracebackType
from typing import Any, Self

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


class Progress:
    """Shows that a slow step goes on: a running count in a terminal, else a line now and then.

    Attributes:
        elapsed_s: How long the step took, once it is over.
    """

    def __init__(self, text: str) -> None:
        """Name the step."""
        self.elapsed_s = 0.0
        self._text = text
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._show, daemon=True)

    def __enter__(self) -> Self:
        """Begin to show."""
        self._begun = time.monotonic()
        step(f"{self._text} ...")
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Show no more."""
        self.elapsed_s = time.monotonic() - self._begun
        self._over.set()
        self._thread.join()

    def _show(self) -> None:
        interval_s, line = (1.0, "\r{} s") if sys.stdout.isatty() else (5.0, "demo: {} s ...\n")
        while not self._over.wait(interval_s):
            print(line.format(round(time.monotonic() - self._begun)), end="", flush=True)
        if sys.stdout.isatty():
            print("\r", end="", flush=True)


def print_answer(title: str, answer: dict[str, Any]) -> None:
    """Print a whole answer, from its tokens to its parts."""
    heading(title)
    choice = answer["choices"][0]
    token_ids = choice["token_ids"]
    printer = _Parts()
    printer.add("tokens", f"{token_ids}")
    printer.add("reasoning", choice["message"]["reasoning"].strip())
    printer.add("content", choice["message"]["content"].strip())
    printer.end()
    _print_end(choice["finish_reason"], answer["usage"])


def print_tries() -> None:
    """Print the title of what can be pasted."""
    heading("try it from another terminal")


def print_python(title: str, python: str, code: str) -> None:
    """Print a command line that runs `code`."""
    _print_try(title, f"{python} - <<'EOF'\n{code}\nEOF")


def print_curl(title: str, curl: str, url: str, body: dict[str, Any]) -> None:
    """Print a command line that posts `body`."""
    data = shlex.quote(json.dumps(body, ensure_ascii=False, separators=(",", ":")))
    _print_try(title, f"{curl} {url} -H 'Content-Type: application/json' -d {data}")


def _print_try(title: str, command: str) -> None:
    """Print a command under a comment, which may be pasted with it."""
    print(f"{_styled(f'# {title}', DIM)}\n{command}\n", flush=True)


class StreamPrinter:
    """Prints the chunks of a streamed answer as they arrive."""

    def __init__(self, title: str) -> None:
        """Print the title."""
        heading(title)
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
