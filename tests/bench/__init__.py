"""Tests of the bench, and the faulty adapters and servers they need."""
