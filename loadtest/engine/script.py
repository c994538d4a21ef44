"""What the scripted engine says: the answer of each prompt, as token IDs.

The answer follows from the prompt alone, so every run of the same request gives the same tokens.
"""

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer

HEAD_TOKENS = 8192
"""Prompt tokens read from the start, where the tools are; a longer prompt costs no more."""
TAIL_TOKENS = 16
"""Prompt tokens read from the end, where the template closes the reasoning."""

SUM = "<think>\nTwo and two make four.\n</think>\n\n2 + 2 = 4"
PLAIN = (
    "<think>\nThe question is simple, so I can answer it directly.\n"
    "I should keep the answer short and clear.\n</think>\n\n"
    "Hello! The answer is ✅, and the weather in Köln is fine: 21 °C ☀️."
)
TOOL = (
    "<think>\nThe user wants to know something that a tool can look up.\n"
    "Let me call the tool.\n</think>\n\nLet me look it up with a tool.\n"
)
NO_REASONING = "Hello! How can I help you today?"
UNICODE = (
    "<think>\n你好，世界？ Привет!\n</think>\n\n"
    "Grüße 👩🏽‍🚀 🇫🇷 👨‍👩‍👧 今天天气很好 नमस्ते สวัสดี שלום — “so” … ∑ → 5 €"
)
LONG = (
    "<think>\n"
    + "Let me think about this step by step. " * 40
    + "\n</think>\n\n"
    + "The river is wide and slow, and the old lighthouse stands at the end of the pier. " * 60
)

AUTO = "auto"
SCRIPTS = {
    "long": LONG,
    "no-reasoning": NO_REASONING,
    "plain": PLAIN,
    "sum": SUM,
    "tool": TOOL,
    "unicode": UNICODE,
}
SCRIPT_NAMES = (AUTO, *SCRIPTS)
"""What `--script` takes; `auto` lets the prompt decide."""

_TOOLS = re.compile(r"<tools>\n(.*?)\n</tools>", re.DOTALL)
_REASONING = re.compile(r"\A<think>.*?</think>\s*", re.DOTALL)
_TOOL_ANSWERED = re.compile(
    r"</tool_response>\s*<\|im_end\|>\s*<\|im_start\|>assistant\s*(?:<think>\s*</think>\s*)?\Z"
)
_REASONING_CLOSED = re.compile(r"</think>\s*\Z")
_SAMPLES: dict[str, Any] = {
    "string": "Paris",
    "integer": 3,
    "number": 0.5,
    "boolean": True,
    "array": [],
    "object": {},
}


@dataclass(frozen=True)
class ScriptModel:
    """A tokenizer with the shape of the model it belongs to."""

    tokenizer: Tokenizer
    eos_token_id: int
    vocab_size: int
    max_model_len: int


def load_model(model_dir: Path) -> ScriptModel:
    """Load `tokenizer.json` and `config.json` of a model folder."""
    config = json.loads((model_dir / "config.json").read_text(encoding="utf-8"))
    return ScriptModel(
        tokenizer=Tokenizer.from_file(str(model_dir / "tokenizer.json")),
        eos_token_id=config["eos_token_id"],
        vocab_size=config["vocab_size"],
        max_model_len=config["max_position_embeddings"],
    )


class Scripts:
    """The scripted answers of one model; each text is tokenized once."""

    def __init__(self, model: ScriptModel, name: str = AUTO) -> None:
        """Answer with the script called `name`, or as the prompt asks when it is `auto`."""
        self._model = model
        self._name = name
        self._ids: dict[str, list[int]] = {}

    def answers(self, prompt_token_ids: list[int], n: int) -> list[list[int]]:
        """Return the token IDs that `n` choices say to this prompt, the end token included."""
        text = answer_text(self._name, self._prompt_text(prompt_token_ids))
        return [self._tokens(variant(text, index)) for index in range(n)]

    def _tokens(self, text: str) -> list[int]:
        if text not in self._ids:
            encoding = self._model.tokenizer.encode(text, add_special_tokens=False)
            self._ids[text] = [*encoding.ids, self._model.eos_token_id]
        return self._ids[text]

    def _prompt_text(self, token_ids: list[int]) -> str:
        """Decode the parts of the prompt that decide the answer."""
        head = token_ids[:HEAD_TOKENS]
        tail = token_ids[max(len(head), len(token_ids) - TAIL_TOKENS) :]
        decoded: str = self._model.tokenizer.decode(head + tail, skip_special_tokens=False)
        return decoded


def answer_text(name: str, prompt: str) -> str:
    """Return the text said to `prompt` by the script called `name`."""
    tools = _TOOLS.search(prompt)
    if name == AUTO:
        # Whoever calls a tool for an answer to its call never comes to an end.
        calls = tools and not _TOOL_ANSWERED.search(prompt)
        name = "tool" if calls else "sum" if "2+2" in prompt else "plain"
    text = SCRIPTS[name]
    if name == "tool":
        text += tool_call(tools.group(1) if tools else "")
    if _REASONING_CLOSED.search(prompt):
        text = _REASONING.sub("", text)
    return text


def variant(text: str, index: int) -> str:
    """Return what choice `index` says, so that no two choices are equal."""
    if index == 0:
        return text
    opening = "<think>\n" if text.startswith("<think>\n") else ""
    return f"{opening}This is choice {index}. {text.removeprefix(opening)}"


def tool_call(listed_tools: str) -> str:
    """Return a hermes call of the first tool listed as JSON lines, with its required arguments."""
    try:
        function = json.loads(listed_tools.partition("\n")[0])["function"]
        parameters = function.get("parameters") or {}
        properties = parameters.get("properties") or {}
        required = parameters.get("required") or []
        arguments = {key: _sample(properties.get(key, {})) for key in required}
        call = {"name": function["name"], "arguments": arguments}
    except (ValueError, KeyError, TypeError, AttributeError):
        call = {"name": "get_weather", "arguments": {"city": "Paris"}}
    body = json.dumps(call, ensure_ascii=False)
    return f"<tool_call>\n{body}\n</tool_call>"


def _sample(schema: dict[str, Any]) -> Any:
    """Return a value that fits a simple JSON schema."""
    if "enum" in schema:
        return schema["enum"][0]
    return _SAMPLES.get(schema.get("type", "string"), "Paris")
