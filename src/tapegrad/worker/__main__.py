"""The worker process: a line in, a line out.

What the framework prints must not mix with the answers, so standard output is moved away before
anything else is imported.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import traceback
from typing import Any

#: Blocks of memory that are in the way of others, and the largest of them in bytes.
IN_THE_WAY = 64
LARGEST = 16_384


def main() -> None:
    """Answer messages until `bye` or the end of the input.

    Where arrays lie in memory can make a call 4 % faster or slower, and depends on all that was
    allocated before, to the length of a file's name. So each process starts with other blocks of
    memory in the way: what is chance then differs between the processes of a contender, and the
    intervals know of it.
    """
    in_the_way = [bytes(random.randrange(LARGEST)) for _ in range(random.randrange(IN_THE_WAY))]
    answers = os.fdopen(os.dup(1), "w", buffering=1, encoding="utf-8")
    os.dup2(2, 1)
    for each in (signal.SIGINT, signal.SIGTERM):
        signal.signal(each, signal.SIG_IGN)  # the driver handles them, and ends its workers
    from tapegrad.worker import offspring
    from tapegrad.worker.adapter import Unsupported
    from tapegrad.worker.session import Session

    offspring.adopt()
    session = Session()
    for line in sys.stdin:
        try:
            message = json.loads(line)
            if message["do"] == "bye":
                return
            answer = session.answer(message)
        except Unsupported as reason:
            answer = _complaint("unsupported", str(reason))
        except MemoryError as error:
            answer = _complaint("oom", str(error) or "out of memory")
        except Exception as error:
            answer = _complaint(_kind(error), f"{type(error).__name__}: {error}")
            traceback.print_exc()
        answers.write(json.dumps(answer) + "\n")
    del in_the_way


def _complaint(kind: str, message: str) -> dict[str, Any]:
    return {"complaint": kind, "message": message[:2000]}


def _kind(error: Exception) -> str:
    """Tell running out of memory, which every framework words in its own way, from other errors."""
    text = f"{type(error).__name__}: {error}".lower()
    signs = (
        "out of memory",
        "can't allocate memory",
        "cannot allocate memory",
        "resource_exhausted",
    )
    return "oom" if any(sign in text for sign in signs) else "failed"


if __name__ == "__main__":
    main()
