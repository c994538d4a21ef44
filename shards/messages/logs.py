"""One-line logs that name their process, and the request where there is one."""

import json
import logging
import sys
import time
from typing import Annotated, Literal

import msgspec

from core.protocol.settings import Group, Setting


class LogSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How every process of a service writes its log."""

    level: Annotated[
        Literal["DEBUG", "INFO", "WARNING", "ERROR"],
        Setting(Group.PROCESSES, "least severe line logged", flag="log-level"),
    ] = "INFO"
    format: Annotated[
        Literal["text", "json"],
        Setting(
            Group.PROCESSES, "one readable line, or one JSON object, per event", flag="log-format"
        ),
    ] = "text"


class _TextFormatter(logging.Formatter):
    def __init__(self, process: str) -> None:
        super().__init__()
        self._process = process

    def format(self, record: logging.LogRecord) -> str:
        clock = time.strftime("%H:%M:%S", time.localtime(record.created))
        request = getattr(record, "request_id", None)
        subject = f" [{request}]" if request else ""
        text = record.getMessage()
        if record.exc_info:
            text = f"{text}\n{self.formatException(record.exc_info)}"
        level = record.levelname.lower()
        return f"{clock}.{int(record.msecs):03d} {level:7} <{self._process}>{subject} {text}"


class _JsonFormatter(logging.Formatter):
    def __init__(self, process: str) -> None:
        super().__init__()
        self._process = process

    def format(self, record: logging.LogRecord) -> str:
        entry = {
            "time": round(record.created, 3),
            "level": record.levelname.lower(),
            "process": self._process,
            "logger": record.name,
            "message": record.getMessage(),
        }
        if request := getattr(record, "request_id", None):
            entry["request_id"] = request
        if record.exc_info:
            entry["traceback"] = self.formatException(record.exc_info)
        return json.dumps(entry, ensure_ascii=False)


def configure(process: str, settings: LogSettings) -> None:
    """Send this process's log to stderr, each line under the process's name.

    Libraries speak up from WARNING on, or from the chosen level when that is DEBUG.
    """
    handler = logging.StreamHandler(sys.stderr)
    formatter = _JsonFormatter if settings.format == "json" else _TextFormatter
    handler.setFormatter(formatter(process))
    root = logging.getLogger()
    for old in list(root.handlers):
        root.removeHandler(old)
    root.addHandler(handler)
    root.setLevel("DEBUG" if settings.level == "DEBUG" else "WARNING")
    for room in ("core", "shards", "gateway"):
        logging.getLogger(room).setLevel(settings.level)
    logging.getLogger("asyncio").setLevel("WARNING")
    logging.getLogger("uvicorn").setLevel("WARNING")
