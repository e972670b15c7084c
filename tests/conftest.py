"""What tests of several packages share."""

from hypothesis import settings

pytest_plugins = ["tests.oracles.torch"]

# The same examples in every run: what passes here passes elsewhere. New ones are looked for by
# `pytest --hypothesis-profile=default`, which draws others every time.
settings.register_profile("fixed", derandomize=True)
settings.load_profile("fixed")
