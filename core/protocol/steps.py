"""Work in steps, so that whoever runs it can serve others in between."""

from collections.abc import Generator

Steps = Generator[bool, None, bytes]
"""Yields False after each piece of work, True where it waits for another call."""


def run(steps: Steps) -> bytes:
    """Take every step; the answer."""
    while True:
        try:
            next(steps)
        except StopIteration as done:
            answer: bytes = done.value
            return answer
