"""Make the demo model: a small byte-level BPE tokenizer, a chat template and a model shape.

The folder holds no weights. It is enough for a server that only renders and derenders, and for
the scripted engine. The same corpus gives the same bytes, so the committed folder can be checked.

Run with `python -m loadtest.model.make [OUT_DIR]`.
"""

import argparse
import json
from pathlib import Path
from typing import Any

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers

from loadtest.model.folder import CORPUS, MODEL_DIR

END_OF_TEXT = "<|endoftext|>"
END_OF_TURN = "<|im_end|>"
SPECIAL = (END_OF_TEXT, "<|im_start|>", END_OF_TURN)
"""Tokens that `skip_special_tokens` leaves out."""
MARKERS = (
    "<think>",
    "</think>",
    "<tool_call>",
    "</tool_call>",
    "<tool_response>",
    "</tool_response>",
)
"""Tokens of their own that stay in the text, because the parsers read them."""

BPE_ENTRIES = 2048
"""Upper bound; the corpus runs out of pairs before it."""
CONTEXT_LENGTH = 32768
VOCAB_MULTIPLE = 64

CHAT_TEMPLATE = """\
{#- ChatML with hermes tool calls. `enable_thinking=false` closes the reasoning in the prompt. -#}
{%- set first_is_system = messages and messages[0].role == 'system' -%}
{%- if tools or first_is_system -%}
    {{- '<|im_start|>system\\n' -}}
    {%- if first_is_system -%}
        {{- messages[0].content -}}
    {%- endif -%}
    {%- if tools -%}
        {{- '\\n\\n' if first_is_system else '' -}}
        {{- '# Tools\\n\\nYou may call functions. They are listed between the markers, ' -}}
        {{- 'one JSON object on each line.\\n<tools>\\n' -}}
        {%- for tool in tools -%}
            {{- tool | tojson -}}{{- '\\n' -}}
        {%- endfor -%}
        {{- '</tools>\\n\\nTo call a function, answer with\\n<tool_call>\\n' -}}
        {{- '{"name": "the name", "arguments": {"key": "value"}}\\n</tool_call>' -}}
    {%- endif -%}
    {{- '<|im_end|>\\n' -}}
{%- endif -%}
{%- for message in messages -%}
    {%- if message.role == 'tool' -%}
        {{- '<|im_start|>user\\n<tool_response>\\n' -}}
        {{- message.content -}}
        {{- '\\n</tool_response><|im_end|>\\n' -}}
    {%- elif not (loop.first and first_is_system) -%}
        {{- '<|im_start|>' -}}{{- message.role -}}{{- '\\n' -}}
        {{- message.content or '' -}}
        {%- for call in message.tool_calls or [] -%}
            {%- set arguments = call.function.arguments -%}
            {{- '\\n' if message.content or not loop.first else '' -}}
            {{- '<tool_call>\\n{"name": ' -}}{{- call.function.name | tojson -}}
            {{- ', "arguments": ' -}}
            {{- arguments if arguments is string else arguments | tojson -}}
            {{- '}\\n</tool_call>' -}}
        {%- endfor -%}
        {{- '<|im_end|>\\n' -}}
    {%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}
    {{- '<|im_start|>assistant\\n' -}}
    {%- if enable_thinking is defined and not enable_thinking -%}
        {{- '<think>\\n\\n</think>\\n\\n' -}}
    {%- endif -%}
{%- endif -%}
"""


def train_tokenizer(corpus: str) -> Tokenizer:
    """Train the tokenizer on `corpus` and add the chat tokens after the learned entries."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=BPE_ENTRIES,
        min_frequency=1,
        show_progress=False,
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
    )
    tokenizer.train_from_iterator(corpus.splitlines(keepends=True), trainer)
    tokenizer.add_special_tokens([AddedToken(text, special=True) for text in SPECIAL])
    tokenizer.add_tokens([AddedToken(text, special=False, normalized=False) for text in MARKERS])
    return tokenizer


def tokenizer_config() -> dict[str, Any]:
    """Return the settings that Hugging Face loaders read beside `tokenizer.json`."""
    return {
        "backend": "tokenizers",
        "clean_up_tokenization_spaces": False,
        "eos_token": END_OF_TURN,
        "model_max_length": CONTEXT_LENGTH,
        "pad_token": END_OF_TEXT,
        "tokenizer_class": "PreTrainedTokenizerFast",
    }


def model_config(tokenizer: Tokenizer) -> dict[str, Any]:
    """Return the shape of a model that could have this vocabulary; no such weights exist."""
    vocab_size = tokenizer.get_vocab_size()
    return {
        "architectures": ["Qwen3ForCausalLM"],
        "bos_token_id": None,
        "eos_token_id": tokenizer.token_to_id(END_OF_TURN),
        "head_dim": 64,
        "hidden_act": "silu",
        "hidden_size": 128,
        "intermediate_size": 512,
        "max_position_embeddings": CONTEXT_LENGTH,
        "model_type": "qwen3",
        "num_attention_heads": 2,
        "num_hidden_layers": 2,
        "num_key_value_heads": 1,
        "rms_norm_eps": 1e-6,
        "rope_theta": 10000.0,
        "tie_word_embeddings": True,
        "torch_dtype": "float32",
        "transformers_version": "5.0.0",
        "vocab_size": -(-vocab_size // VOCAB_MULTIPLE) * VOCAB_MULTIPLE,
    }


def _write_json(path: Path, data: dict[str, Any]) -> None:
    path.write_text(json.dumps(data, indent=2) + "\n", encoding="utf-8")


def make(out_dir: Path) -> None:
    """Write the model folder to `out_dir`, which is created when missing."""
    out_dir.mkdir(parents=True, exist_ok=True)
    tokenizer = train_tokenizer(CORPUS.read_text(encoding="utf-8"))
    text = tokenizer.to_str(pretty=True) + "\n"
    (out_dir / "tokenizer.json").write_text(text, encoding="utf-8")
    _write_json(out_dir / "tokenizer_config.json", tokenizer_config())
    _write_json(out_dir / "config.json", model_config(tokenizer))
    (out_dir / "chat_template.jinja").write_text(CHAT_TEMPLATE, encoding="utf-8")


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description="Make the demo model folder.")
    parser.add_argument("out_dir", type=Path, nargs="?", default=MODEL_DIR)
    out_dir: Path = parser.parse_args().out_dir
    make(out_dir)
    print(f"demo model written to {out_dir}")


if __name__ == "__main__":
    main()
