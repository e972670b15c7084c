"""What tests of several packages share."""

pytest_plugins = ["tests.oracles.torch"]
