"""Where the demo model lies, and the text its tokenizer is made from."""

from pathlib import Path

_HERE = Path(__file__).resolve().parent

MODEL_DIR = _HERE.parent / "demo_model"
"""Tokenizer, chat template and model shape, as `loadtest.model.make` writes them."""
CORPUS = _HERE / "corpus.txt"
"""What the tokenizer is trained on, and what prompts and generations are cut from."""
