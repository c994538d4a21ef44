"""How the scripted engine answers."""

from dataclasses import dataclass
from pathlib import Path

from loadtest.engine.script import AUTO, SCRIPT_NAMES
from loadtest.model.folder import MODEL_DIR


@dataclass(frozen=True)
class ScriptedSettings:
    """How the engine answers."""

    model_dir: Path = MODEL_DIR
    """Folder with `tokenizer.json` and `config.json`."""
    served_model_name: str | None = None
    """The only model name taken; any name when missing."""
    script: str = AUTO
    """The name of the script said to every prompt, or `auto`."""
    tokens_per_chunk: int = 1
    """Tokens of one event, but for the first and last ones of a choice."""
    tokens_per_second: float = 0.0
    """Pace of each choice; 0 is as fast as possible."""
    tokens_only: bool = False
    """Refuse stop strings, and fill the context when the request does not say `max_tokens`."""
    recordings: Path | None = None
    """Recorded traffic, replayed to requests whose ID names a recording."""

    def __post_init__(self) -> None:
        """Refuse values that mean nothing."""
        if self.script not in SCRIPT_NAMES:
            raise ValueError(f"script must be one of {', '.join(SCRIPT_NAMES)}")
        if self.tokens_per_chunk < 1:
            raise ValueError("tokens_per_chunk must be at least 1")
        if self.tokens_per_second < 0:
            raise ValueError("tokens_per_second must not be negative")

    @property
    def model_name(self) -> str:
        """The model name in answers to requests that have none."""
        return self.served_model_name or self.model_dir.name
