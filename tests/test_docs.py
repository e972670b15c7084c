"""Pages written by programs are up to date; links of all pages lead where they say."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import tapegrad as tg
from tapegrad import _core, apidoc, models, nn, opsdoc

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
PAGE = DOCS / "ops.md"
PAGES = [ROOT / "README.md", *sorted(DOCS.glob("*.md"))]
LINK = re.compile(r"\[(?P<text>[^\]\[]+)\]\((?P<target>[^)\s]+)\)")
HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)
CODE = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
#: Pages that compare: whatever they say of another library has a link to its own documentation.
COMPARISONS = sorted(DOCS.glob("*-compared.md"))


def test_the_page_of_operations_is_what_the_table_says() -> None:
    assert PAGE.read_text(encoding="utf-8") == opsdoc.page(), "run `make docs`"


def test_the_reference_is_what_docstrings_say() -> None:
    assert (DOCS / "api.md").read_text(encoding="utf-8") == apidoc.page(), "run `make docs`"


def test_every_public_name_is_in_the_reference() -> None:
    page = apidoc.page()
    named = set(re.findall(r"(?:^#+ |`)([A-Za-z_]\w*)", page, re.MULTILINE))
    assert {*tg.__all__, *nn.functional.__all__} - {"errors"} <= named


def test_a_docstring_becomes_markdown() -> None:
    text = "Do.\n\nArgs:\n    x: A point\n        of two.\n    *y: Others.\n\nAfter.\n\nExample:\n"
    text += "    >>> 1\n    1\n"
    wanted = "Do.\n\n- `x`: A point of two.\n- `*y`: Others.\n\nAfter.\n\n```pycon\n>>> 1\n1\n```"
    assert apidoc.markdown(text) == wanted


@pytest.mark.parametrize(
    ("value", "called"),
    [
        (tg.exp, "f(a)"),
        (tg.Graph, "f(*, branches='raise', lines=False)"),
        (tg.Program.load, "f(path)"),
        (
            models.BasicBlock,
            "f(inplanes, planes, stride=1, downsample=None, groups=1, "
            "base_width=64, dilation=1, norm_layer=BatchNorm2d)",
        ),
        (tg.Minimum, "f"),
        (tg.ShapeError, "f"),
    ],
)
def test_a_call_has_names_and_defaults(value: Any, called: str) -> None:
    assert apidoc.call("f", value) == called


def test_every_operation_has_a_row() -> None:
    page = opsdoc.page()
    assert all(f"| `{op['name']}(" in page for op in _core.op_table())


def links(page: Path) -> Iterator[tuple[str, str]]:
    """Texts and targets of a page's links."""
    for match in LINK.finditer(CODE.sub("", page.read_text(encoding="utf-8"))):
        yield match["text"], match["target"]


def local_links() -> list[Any]:
    """Links into the checkout: page, text, file and anchor."""
    return [
        pytest.param(page, text, *target.partition("#")[::2], id=f"{page.stem}: {text} {target}")
        for page in PAGES
        for text, target in links(page)
        if "://" not in target
    ]


def anchors(page: Path) -> set[str]:
    """The headings of a page as GitHub names them in links."""
    headings = HEADING.findall(CODE.sub("", page.read_text(encoding="utf-8")))
    kept = (re.sub(r"[^\w\- ]", "", heading.lower()) for heading in headings)
    return {heading.replace(" ", "-") for heading in kept}


@pytest.mark.parametrize(("page", "text", "file", "anchor"), local_links())
def test_a_link_leads_to_a_file_and_what_it_names_there(
    page: Path, text: str, file: str, anchor: str
) -> None:
    target = (page.parent / file).resolve() if file else page
    assert target.is_file(), f"{file} is not there"
    if anchor:
        assert anchor in anchors(target)
    if text.startswith("`") and target.suffix != ".md":
        assert text.strip("`") in target.read_text(encoding="utf-8")


def test_the_walk_through_one_operation_names_what_it_links_to() -> None:
    named = [text for text, target in links(DOCS / "one-op.md") if target.startswith("../")]
    assert len(named) > 40
    assert all(text.startswith("`") for text in named)


def public_names() -> list[Any]:
    """Names of tapegrad that pages mention: page and name."""
    mentioned = {
        (page.stem, name)
        for page in PAGES
        for name in re.findall(r"(?<![\w/-])tg\.([A-Za-z_]\w*)", page.read_text(encoding="utf-8"))
    }
    return [pytest.param(name, id=f"{page}: {name}") for page, name in sorted(mentioned)]


@pytest.mark.parametrize("name", public_names())
def test_what_a_page_mentions_exists(name: str) -> None:
    assert hasattr(tg, name)


def cells() -> list[Any]:
    """What the comparisons say of other libraries: page, row, library and text."""
    found = []
    for page in COMPARISONS:
        for table in re.findall(r"(?:^\|.*\n)+", page.read_text(encoding="utf-8"), re.MULTILINE):
            head, _, *rows = [line.strip("| \n").split(" | ") for line in table.splitlines()]
            if "tapegrad" in head:
                for row in rows:
                    assert len(row) == len(head), f"{page.name}: {row[0]}"
                    for library, text in list(zip(head, row, strict=True))[1:]:
                        if library != "tapegrad":
                            name = f"{page.stem}: {row[0]}, {library}"
                            found.append(pytest.param(text, id=name))
    return found


@pytest.mark.parametrize("text", cells())
def test_a_claim_about_another_library_has_a_link(text: str) -> None:
    assert text == "?" or re.search(r"\]\(https://", text)
