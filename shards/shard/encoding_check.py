"""Compares `fastokens` with a model's tokenizer where its threads do no harm."""

import os
import signal
from typing import Any

from core.vllm_adapter.encoding import agrees

_CHECK_TIMEOUT_S = 60


def agrees_in_a_fork(tokenizer: Any, encoder: Any) -> bool:
    """Whether an encoder gives a tokenizer's IDs, as a child of this process finds.

    The threads `fastokens` starts must not run where shards are forked. A child that fails, dies
    or takes more than a minute says no.

    Args:
        tokenizer: The model's.
        encoder: What may encode in its place.
    """
    pid = os.fork()
    if pid == 0:
        code = 2
        try:
            signal.alarm(_CHECK_TIMEOUT_S)
            code = 0 if agrees(tokenizer, encoder) else 1
        finally:
            os._exit(code)
    _, status = os.waitpid(pid, 0)
    return os.waitstatus_to_exitcode(status) == 0
