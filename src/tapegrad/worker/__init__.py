"""The side of the bench that runs inside a framework's own environment.

A worker is a process that holds one adapter and answers the driver's messages. It may run under
another Python, with another NumPy, than the driver: everything in this package needs the standard
library and NumPy only (an adapter also its framework), and nothing here imports the engine.
"""
