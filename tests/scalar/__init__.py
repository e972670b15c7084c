"""Tests of the scalar engine, and the references they compare with."""
