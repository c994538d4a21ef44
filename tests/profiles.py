"""Hypothesis profiles of the tests that run `core` in this process.

`HYPOTHESIS_PROFILE=long` looks at many more inputs than the default.
"""

import os

from hypothesis import HealthCheck, settings

# Loading a model falls into the first example, so single examples have no deadline.
settings.register_profile(
    "short",
    max_examples=15,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
settings.register_profile(
    "long", settings.get_profile("short"), max_examples=600, derandomize=False
)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "short"))
