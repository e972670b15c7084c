"""Runs in PyTorch's environment: calls functions of files with PyTorch as their library.

Reads (file, function, arguments) and writes (error or None, result), pickled, until the input ends.
"""

from __future__ import annotations

import pickle
import runpy
import sys
import traceback
from functools import cache
from types import SimpleNamespace
from typing import Any

import torch
import torch.utils.data

LIBRARY = SimpleNamespace(
    nn=torch.nn, F=torch.nn.functional, optim=torch.optim, data=torch.utils.data, tt=torch
)


@cache
def names(file: str) -> dict[str, Any]:
    return runpy.run_path(file)


def main() -> None:
    requests, answers = sys.stdin.buffer, sys.stdout.buffer
    sys.stdout = sys.stderr
    torch.set_num_threads(1)
    while True:
        try:
            file, function, arguments = pickle.load(requests)
        except EOFError:
            return
        try:
            answer: tuple[str | None, Any] = None, names(file)[function](LIBRARY, *arguments)
        except Exception:
            answer = traceback.format_exc(), None
        pickle.dump(answer, answers)
        answers.flush()


if __name__ == "__main__":
    main()
