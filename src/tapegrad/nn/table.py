"""A module as text: PyTorch's tree of layers, with the number of parameters of each beside it."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from tapegrad.nn.module import Module


class _Line(NamedTuple):
    text: str
    parameters: int = 0


def layer_table(module: Module) -> str:
    """Describe a module; one with modules inside gets a column of parameter counts."""
    lines = _tree(module)
    if len(lines) == 1 or not lines[0].parameters:
        return "\n".join(line.text for line in lines)
    width = max(len(line.text) for line in lines)
    digits = len(f"{lines[0].parameters:,}")
    rows = [
        f"{text:{width}}  {parameters:>{digits},}" if parameters else text
        for text, parameters in lines
    ]
    rows[0] += " parameters" + _frozen(module)
    return "\n".join(rows)


def _frozen(module: Module) -> str:
    frozen = sum(each.numel() for each in module.parameters() if not each.requires_grad)
    return f" ({frozen:,} of them frozen)" if frozen else ""


def _tree(module: Module) -> list[_Line]:
    parameters = sum(each.numel() for each in module.parameters())
    name, extra = type(module).__name__, module.extra_repr()
    inner = [_Line(f"  {line}") for line in extra.splitlines()] if "\n" in extra else []
    children = list(_children(module))
    if not inner and not children:
        return [_Line(f"{name}({extra})", parameters)]
    if extra and not inner:
        inner = [_Line(f"  {extra}")]
    for key, lines in children:
        first, *rest = lines
        inner.append(_Line(f"  ({key}): {first.text}", first.parameters))
        inner += (_Line(f"  {line.text}", line.parameters) for line in rest)
    return [_Line(f"{name}(", parameters), *inner, _Line(")")]


def _children(module: Module) -> list[tuple[str, list[_Line]]]:
    """Return names and lines of the modules inside; equal neighbours in a list share a line."""
    trees = [(name, _tree(child)) for name, child in module.named_children()]
    if not module.repeats_are_folded:
        return trees
    folded: list[tuple[str, list[_Line]]] = []
    start = 0
    while start < len(trees):
        end = start
        while end < len(trees) and trees[end][1] == trees[start][1]:
            end += 1
        folded.append(_fold(trees[start:end]))
        start = end
    return folded


def _fold(trees: list[tuple[str, list[_Line]]]) -> tuple[str, list[_Line]]:
    name, lines = trees[0]
    if len(trees) == 1:
        return name, lines
    text, parameters = lines[0]
    first = _Line(f"{len(trees)} x {text}", len(trees) * parameters)
    return f"{name}-{trees[-1][0]}", [first, *lines[1:]]
