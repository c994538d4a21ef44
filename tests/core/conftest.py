"""Settings of the tests of `core`."""

import tests.profiles

assert tests.profiles.settings
