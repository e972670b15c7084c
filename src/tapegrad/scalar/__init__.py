"""Scalar graphs: compiling and running them, and transforms of functions of scalars."""
