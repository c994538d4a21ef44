"""Settings of the tests of live streams against replay."""

import tests.profiles  # noqa: F401 - loads the profile
