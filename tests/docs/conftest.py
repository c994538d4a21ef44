"""The front door that the documentation's examples run against."""

from tests.e2e.conftest import engine, front

__all__ = ["engine", "front"]
