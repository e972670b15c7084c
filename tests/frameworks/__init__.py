"""Tests of the frameworks that are no part of `make test`: their environments are large."""
