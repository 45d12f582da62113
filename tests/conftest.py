"""Settings for the whole suite."""

from hypothesis import settings

# No wall time is asserted anywhere, and that goes for single examples on a busy machine too.
settings.register_profile("default", deadline=None)
settings.load_profile("default")
