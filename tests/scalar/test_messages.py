"""What is wrong with a call is told in the words of that call."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tapegrad as tg

#: For calls that the types forbid.
untyped: Any = tg


def uneven(x: Any) -> Any:
    """A custom function that does not know how many numbers it returns."""
    return (x, 1.0) if x > 1 else x


MESSAGES: list[tuple[Callable[[Any], Any], type[Exception], str]] = [
    (lambda x: untyped.jacobian([x, 3.0], [x]), tg.DTypeError, "^jacobian: outputs: .*element 1"),
    (
        lambda x: untyped.jacobian([x, 3.0], [x], mode="reverse"),
        tg.DTypeError,
        "^jacobian: outputs: expected Vars, element 1 is a float",
    ),
    (lambda x: untyped.compile(x)(None), tg.ShapeError, "^program: expected an array of 1"),
    (lambda x: untyped.compile(x).batch(None), tg.ShapeError, "^batch: expected an array of 2"),
    *(
        (run, tg.OptionError, "^threads: expected a positive whole number or None for all cores")
        for threads in (0, -1, 1.5, "2", 10**20)
        for run in (
            lambda x, n=threads: untyped.compile(x).batch([[1.0]], threads=n),
            lambda x, n=threads: untyped.compile(x, wrt=[x]).minimize([1.0], threads=n),
        )
    ),
    (lambda x: untyped.hessian(x, [x, 3.0]), tg.DTypeError, "^hessian: wrt: .*element 1"),
    (lambda x: tg.gradcheck(lambda x: x[:0], [2.0]), tg.ShapeError, "^gradcheck: the function"),
    (
        lambda x: tg.compile(x * x, wrt=[x]).minimize(np.empty((1, 1, 2))),
        tg.ShapeError,
        "1 dimension, or several as rows of 2",
    ),
    (lambda x: untyped.custom(uneven, name=5), tg.DTypeError, "^custom: expected name as a string"),
    (lambda x: untyped.Graph().input(5), tg.DTypeError, "^input: expected name as a string"),
    (lambda x: untyped.Graph().inputs(2, 5), tg.DTypeError, "^inputs: expected name as a string"),
    (lambda x: untyped.Graph().inputs(1.5), tg.DTypeError, "^inputs: expected a whole number"),
    (lambda x: untyped.Graph().inputs(None), tg.DTypeError, "count, got NoneType; write inputs"),
    (lambda x: tg.Graph().inputs(2**70), tg.ShapeError, "^inputs: a graph has at most"),
    (lambda x: tg.max(x, x), tg.DTypeError, r"^max: .*got 2 arguments; write max\(\[a, b, ...\]\)"),
    (lambda x: tg.sum(x, 2, x), tg.DTypeError, r"^sum: .*got 3 arguments; write sum\(\["),
    (lambda x: tg.exp(x, x), tg.DTypeError, "^exp: expected 1 argument, got 2$"),
    (tg.pow, tg.DTypeError, "^pow: expected 2 arguments, got 1$"),
    (lambda x: tg.where(x > 0, x), tg.DTypeError, "^where: expected 3 arguments, got 2$"),
    (lambda x: tg.dot([x]), tg.DTypeError, "^dot: expected 2 arguments, got 1$"),
    (lambda x: tg.sum([x], axis=0), tg.DTypeError, "^sum: expected 1 argument, got 2$"),
    (lambda x: tg.exp(None), tg.DTypeError, r"^exp: expected Vars, .*got \(NoneType\)"),
    (lambda x: untyped.compile(x)(x), tg.DTypeError, r"^program: .*got a Var; .* tg\.compile"),
    (lambda x: untyped.compile(x).batch(x), tg.DTypeError, "^batch: .*got a Var"),
    (lambda x: untyped.Graph().constant("1"), tg.DTypeError, "^constant: expected a number"),
    (
        lambda x: untyped.Graph(branches="freeze").input(value="1"),
        tg.DTypeError,
        "^input: value: expected a number, got str",
    ),
    (
        lambda x: tg.compile(tg.custom(uneven, vectorized=False)(x)).batch([[0.0], [2.0]]),
        tg.ShapeError,
        "custom 'uneven': expected the same for every row, got a tuple of 2 and a number",
    ),
    (
        lambda x: tg.compile(
            tg.scan(lambda c, _: (c * 2, None), x, length=10**8, checkpoint=2**31)[0], wrt=[x]
        ),
        tg.GraphError,
        "leave the checkpoint of a long scan small",
    ),
]


@pytest.mark.parametrize(("call", "error", "message"), MESSAGES)
def test_messages_name_the_call_and_what_it_takes(
    call: Callable[[Any], Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        call(tg.Graph().input("x"))


def test_results_that_overlap_are_refused() -> None:
    x = tg.Graph().input("x")
    program, room = tg.compile(x * x, wrt=[x]), np.zeros(4)
    same: dict[Any, Any] = {
        None: (room[:1], room[:1].reshape(1, 1)),
        "sum": (room[0:1].reshape(()), room[:1]),
    }
    for reduce, out in same.items():
        with pytest.raises(tg.ShapeError, match="share memory"):
            program.batch([[3.0]], out=out, reduce=reduce)
    with pytest.raises(tg.ShapeError, match=r"^out: .*share memory"):
        program([3.0], out=(room[1:2].reshape(()), room[1:2]))
    apart = room[1:2].reshape(1, 1)
    assert program.batch([[3.0]], out=(room[:1], apart))[1] is apart
    assert room.tolist() == [9.0, 6.0, 0.0, 0.0]
