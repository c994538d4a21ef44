import json
from pathlib import Path

from tokenizers import Tokenizer

from loadtest.model.folder import MODEL_DIR
from loadtest.model.make import MARKERS, SPECIAL, make

FILES = {"tokenizer.json", "tokenizer_config.json", "config.json", "chat_template.jinja"}


def test_script_reproduces_the_committed_folder(tmp_path: Path) -> None:
    make(tmp_path)
    assert {path.name for path in MODEL_DIR.iterdir()} == FILES
    for name in sorted(FILES):
        assert (tmp_path / name).read_bytes() == (MODEL_DIR / name).read_bytes(), name


def test_folder_is_small() -> None:
    assert sum(path.stat().st_size for path in MODEL_DIR.iterdir()) < 300_000


def test_chat_tokens_are_single_ids_and_only_special_ones_are_skipped() -> None:
    tokenizer = Tokenizer.from_file(str(MODEL_DIR / "tokenizer.json"))
    for text in (*SPECIAL, *MARKERS):
        ids = tokenizer.encode(text, add_special_tokens=False).ids
        assert len(ids) == 1
        assert tokenizer.decode(ids, skip_special_tokens=True) == ("" if text in SPECIAL else text)


def test_config_covers_the_vocabulary_and_names_the_end_token() -> None:
    tokenizer = Tokenizer.from_file(str(MODEL_DIR / "tokenizer.json"))
    config = json.loads((MODEL_DIR / "config.json").read_text(encoding="utf-8"))
    assert config["eos_token_id"] == tokenizer.token_to_id("<|im_end|>")
    assert config["vocab_size"] >= tokenizer.get_vocab_size()
    assert config["vocab_size"] % 64 == 0


def test_any_text_survives_the_round_trip() -> None:
    tokenizer = Tokenizer.from_file(str(MODEL_DIR / "tokenizer.json"))
    for text in ("Grüße, 世界 👩🏽‍🚀", "\x00\x7f\t\r\n", '{"a": [1, -2.5e3]}', "  two  spaces "):
        assert tokenizer.decode(tokenizer.encode(text).ids, skip_special_tokens=False) == text
