"""What all examples refuse."""

from __future__ import annotations

import pytest

from tests.examples.conftest import Drawn, example


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("population", ("--graphs", "0")),
        ("basket_greeks", ("--paths", "3")),
        ("robot_arm", ("--starts", "0")),
        ("hares_and_lynxes", ("--steps", "0")),
        ("fit_rows", ("--rows", "4")),
    ],
)
def test_too_few_of_anything_is_refused(
    name: str, options: tuple[str, str], drawn: Drawn, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        drawn(example(name), *options)
    assert "expected" in capsys.readouterr().err
