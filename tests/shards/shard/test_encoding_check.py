"""The comparison of `fastokens` with a tokenizer, in a child process."""

import subprocess
import sys

from tests.serving import DEMO_MODEL

CHECK = """
import sys
from pathlib import Path
from core.vllm_adapter import patches
patches.install()
from core.protocol.options import ModelOptions
from core.vllm_adapter.encoding import fast_encoder
from core.vllm_adapter.loading import load_model
from shards.shard.encoding_check import agrees_in_a_fork

class Broken:
    def __getattr__(self, name):
        return getattr(encoder, name)
    def encode_batch(self, texts, **options):
        return encoder.encode_batch([text[:-1] for text in texts], **options)

class Deadly:
    def __getattr__(self, name):
        raise SystemExit(0)

def threads():
    return len(list(Path("/proc/self/task").iterdir()))

tokenizer = load_model(ModelOptions(model=sys.argv[1]), lambda _: None).tokens.tokenizer
encoder = fast_encoder(tokenizer)
before = threads()
said = [agrees_in_a_fork(tokenizer, given) for given in (encoder, Broken(), Deadly())]
print(said, threads() <= before)
"""


def test_it_is_told_apart_without_a_thread_here() -> None:
    # In a process of its own: a child of one where `fastokens` has run would lack its threads.
    command = [sys.executable, "-c", CHECK, str(DEMO_MODEL)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=110, check=False)
    assert done.stdout.splitlines()[-1:] == ["[True, False, False] True"], done.stderr
