"""Makes vLLM run without a GPU; imported before anything of vLLM builds a config.

vLLM's PyPI wheel finds no device on such a machine and then refuses every config (0.33). Its CPU
platform needs none.
"""

import vllm.platforms
from vllm.platforms.cpu import CpuPlatform

vllm.platforms._current_platform = CpuPlatform()
