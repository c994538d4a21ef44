"""Prompt IDs made on the client's side: the chat template, then the tokenizer."""

import json
from pathlib import Path
from typing import Any

from jinja2.sandbox import ImmutableSandboxedEnvironment
from tokenizers import Tokenizer


class PromptEncoder:
    """Renders chat requests to token IDs with a model folder's own template and tokenizer."""

    def __init__(self, model_dir: Path) -> None:
        """Load `chat_template.jinja` and `tokenizer.json`."""
        environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)
        environment.filters["tojson"] = _to_json
        source = (model_dir / "chat_template.jinja").read_text(encoding="utf-8")
        self._template = environment.from_string(source)
        self._tokenizer = Tokenizer.from_file(str(model_dir / "tokenizer.json"))

    def encode(self, chat_request: dict[str, Any]) -> list[int]:
        """Return the prompt IDs of a chat request, open for the assistant's turn."""
        text = self._template.render(
            messages=chat_request["messages"],
            tools=chat_request.get("tools"),
            add_generation_prompt=True,
            **chat_request.get("chat_template_kwargs", {}),
        )
        return self.token_ids(text)

    def token_ids(self, text: str) -> list[int]:
        """Return the token IDs of a text as it stands."""
        ids: list[int] = self._tokenizer.encode(text, add_special_tokens=False).ids
        return ids


def _to_json(value: Any) -> str:
    """Write JSON as model templates expect it: no HTML escapes, characters as they are."""
    return json.dumps(value, ensure_ascii=False)
