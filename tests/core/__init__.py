"""Tests of the native core as it was built."""
