"""Plain JavaScript in `tapegrad bench`: how a worker in another language joins.

tapegrad bench run operators --frameworks numpy,examples/javascript.py --filter exp --sizes small

The command runs in this file's folder and speaks JSON lines (docs/workers.md).
"""

#: Name on the command line -> what the worker is told as its `name`.
ADAPTERS = {"javascript": "loops"}
#: One thread, so that garbage is collected within the time of whoever made it.
COMMAND = ["node", "--single-threaded", "--expose-gc", "javascript_worker.mjs"]
