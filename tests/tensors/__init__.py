"""Tests of tensors, their operations and gradients."""
