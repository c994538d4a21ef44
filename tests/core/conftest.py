"""Settings of the tests of `core`."""

import tests.profiles  # noqa: F401 - loads the profile
