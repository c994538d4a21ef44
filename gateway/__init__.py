"""HTTP: the public API in front of the shards. Never imports vllm, torch or transformers."""

from importlib.metadata import PackageNotFoundError, version

try:
    __version__ = version("derender-gateway")
except PackageNotFoundError:
    __version__ = "0.0.0+source"
