"""to_dot draws graphs that Graphviz can read."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

import tapegrad as tg

SVG = "{http://www.w3.org/2000/svg}"

#: For calls that the types forbid.
untyped: Any = tg


def parts(picture: tg.Picture) -> tuple[dict[str, str], set[tuple[str, str]]]:
    """Labels of nodes, and arrows."""
    nodes = dict(re.findall(r'^  (\w+) \[label="((?:[^"\\]|\\.)*)"', str(picture), re.M))
    arrows = set(re.findall(r"^  (\w+) -> (\w+)", str(picture), re.M))
    return nodes, arrows


def test_names_with_control_characters_make_xml_all_the_same(monkeypatch: Any) -> None:
    monkeypatch.setattr(shutil, "which", lambda _: None)
    x = tg.Graph().input("a\x00b\x1b<&>\x7f\ufffe\n\u00e9")
    drawn = tg.to_dot(tg.exp(x)).svg()
    assert drawn is not None
    texts = [each.text for each in ElementTree.fromstring(drawn).iter(f"{SVG}text")]
    assert "a\\x00b\\x1b<&>\x7f\\ufffe\n\u00e9" in texts


def test_nodes_and_arrows_are_those_of_the_graph() -> None:
    g = tg.Graph()
    x, y = g.input("x"), g.input("y")
    tg.sin(y)  # not needed, not drawn
    nodes, arrows = parts(tg.to_dot([tg.exp(x) - 2.5, tg.softmax([x, y])[1]]))
    assert sorted(nodes.values()) == ["2.5", "[1]", "exp", "softmax", "sub", "x", "y"]
    named = {(nodes[a], nodes[b]) for a, b in arrows}
    assert named == {
        ("x", "exp"),
        ("exp", "sub"),
        ("2.5", "sub"),
        ("x", "softmax"),
        ("y", "softmax"),
        ("softmax", "[1]"),
    }


def test_large_graphs_are_drawn_up_to_the_limit() -> None:
    x = tg.Graph().inputs(1000)
    picture = tg.to_dot(tg.sum(tg.exp(x)), limit=50)
    nodes, arrows = parts(picture)
    assert picture.left_out == 2001 - 50
    assert len([name for name in nodes if name.startswith("n")]) == 50
    assert "951 more" in nodes.values()
    assert {name for arrow in arrows for name in arrow} == set(nodes)


def test_names_cannot_break_the_drawing() -> None:
    name = 'a"];\n\\ -> ü'
    nodes, _ = parts(tg.to_dot(tg.Graph().input(name)))
    (label,) = nodes.values()
    assert label.encode("latin-1").decode("unicode_escape") == name


@pytest.mark.skipif(shutil.which("dot") is None, reason="Graphviz is not installed")
def test_notebooks_show_a_picture_where_graphviz_is_installed() -> None:
    g = tg.Graph()
    x = g.input('x"\\<b>&')
    bundle: dict[str, str] = tg.to_dot(tg.log(x) + tg.softmax([x, 1.0])[0])._repr_mimebundle_()
    assert "<svg" in bundle["image/svg+xml"]
    assert "softmax" in bundle["image/svg+xml"]
    assert bundle["text/plain"].startswith("digraph")


@pytest.mark.parametrize("script", [None, "#!/bin/sh\nexit 3\n"])
def test_notebooks_show_small_graphs_without_graphviz(
    script: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if script:
        (tmp_path / "dot").write_text(script)
        (tmp_path / "dot").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    x = tg.Graph().inputs(50, name="<x>")
    small = tg.to_dot(tg.exp(x[0]) * x[1])
    drawn = ElementTree.fromstring(small._repr_mimebundle_()["image/svg+xml"])
    texts = {each.text: float(each.attrib["y"]) for each in drawn.iter(f"{SVG}text")}
    assert texts["mul"] < texts["exp"] < texts["<x>[0]"] == texts["<x>[1]"]
    assert len(list(drawn.iter(f"{SVG}line"))) == 3
    large = tg.to_dot(tg.sum(tg.exp(x)))
    assert large.svg() is None
    assert large._repr_mimebundle_() == {"text/plain": str(large)}


def test_graphs_draw_themselves() -> None:
    g = tg.Graph()
    x, y = g.input("x"), g.input("y")
    end = tg.exp(x) - 1
    tg.scan(lambda c, _: (c * y, None), x, length=3)  # its steps are no part of the picture
    assert [each.index for each in g.ends()] == [end.index, len(g) - 1]
    nodes, _ = parts(g.to_dot())
    assert sorted(nodes.values()) == ["1.0", "[0]", "exp", "loop", "sub", "x", "y"]
    assert str(g.to_dot(end)) == str(tg.to_dot(end))
    assert str(tg.Graph().to_dot()).split() == ["digraph", "tapegrad", "{", "}"]
    assert untyped.Graph._repr_mimebundle_(g)["text/plain"] == repr(g)
    assert "<svg" in untyped.Graph._repr_mimebundle_(g)["image/svg+xml"]
    assert set(untyped.Graph()._repr_mimebundle_()) == {"text/plain"}


@pytest.mark.parametrize(
    "call",
    [
        lambda x: tg.to_dot(x, limit=0),
        lambda x: untyped.to_dot(x, limit=1.5),
        lambda x: tg.to_dot([]),
        lambda x: untyped.to_dot([x, 1.0]),
        lambda x: tg.to_dot([x, tg.Graph().input()]),
        lambda x: untyped.to_dot(None),
    ],
)
def test_wrong_arguments_are_told(call: Any) -> None:
    with pytest.raises(tg.TapegradError, match="expected"):
        call(tg.Graph().input())
