"""Stand-alone benchmark of the scalar engine against an interpreter written in C."""
