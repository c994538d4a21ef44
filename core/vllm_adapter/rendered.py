"""vLLM's generate request without a walk in Python over every token of the prompt.

vLLM checks the sign of each token ID it has rendered, one by one: a fifth of a long render. The
least of them tells as much.
"""

from typing import Any

from pydantic import field_validator
from vllm.entrypoints.scale_out.render import serving
from vllm.entrypoints.scale_out.token_in_token_out.protocol import GenerateRequest


class RenderedRequest(GenerateRequest):  # type: ignore[misc]
    """The request that render answers with."""

    @field_validator("token_ids")
    @classmethod
    def validate_token_ids(cls, ids: list[int]) -> Any:
        """Refuse negative IDs, in the place of vLLM's own check of the same name."""
        if ids and min(ids) < 0:
            raise ValueError("token_ids must be at least 0")
        return ids


def install() -> None:
    """Have vLLM's renderer answer with it; again has no effect."""
    serving.GenerateRequest = RenderedRequest
