"""Custom shapes: the operators of the suite `operators` at sizes of the user's own.

A user gives the shapes of some inputs; everything else is told by the suite's own cases. Each
operator has them in four size classes, and what they have in common says what follows from what:

- a side or attribute that is the same in all of them stays what it is (a seed has two words);
- one that equals a side of a given input in all of them follows it (the weight of `layer_norm`
  is as long as the last side of x, and there are as many labels as classes);
- any other has to be given too.
"""

from __future__ import annotations

import fnmatch
import math
import re
import tomllib
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import msgspec

from tapegrad.bench.demands import flaw
from tapegrad.bench.errors import BenchError, MalformedFileError, UnknownNameError
from tapegrad.bench.suite import Suite
from tapegrad.bench.suites import operators
from tapegrad.bench.terms import terms
from tapegrad.worker.case import DTYPES, SIZES, Array, Case

Shape = tuple[int, ...]
Shapes = Mapping[str, Shape]
#: A side of an input in each of an operator's size classes.
Sides = tuple[int, ...]

_SHAPE = re.compile(r"\(\)|\d+(x\d+)*")
#: No array has more elements; larger numbers are typing errors.
_MOST = 2**60
#: Of four size classes, how many must agree on an attribute for it to be the usual one.
_USUAL = 3


@dataclass(frozen=True)
class Template:
    """One variant of an operator: its cases in all size classes."""

    examples: tuple[Case, ...]

    @property
    def op(self) -> str:
        """Name of the operator."""
        return self.examples[0].op

    @property
    def inputs(self) -> tuple[Array, ...]:
        """Inputs of the smallest case."""
        return self.examples[0].inputs

    @property
    def attrs(self) -> Mapping[str, Any]:
        """Attributes of the smallest case."""
        return self.examples[0].attrs

    def shapes_of(self, name: str) -> list[Shape]:
        """Return the shapes of an input, class by class."""
        return [_shapes(case)[name] for case in self.examples]


@dataclass(frozen=True)
class Request:
    """What a user asks of one operator."""

    shapes: Shapes
    #: As the command line has them, text, or as a file has them.
    attrs: Mapping[str, Any]
    dtype: str = "float32"
    #: Where it is to be listed; the class nearest in size without it.
    size: str = ""


def customised(
    suite: Suite, shapes: Sequence[str], attrs: Sequence[str], file: str, patterns: Sequence[str]
) -> Suite:
    """Return the suite with cases of the user's own in place of its cases, if any are asked for.

    `shapes` and `attrs` are what `--shape` and `--attr` hold, `patterns` choose operators for them.
    """
    if not (shapes or attrs or file):
        return suite
    if suite.name != operators.SUITE.name:
        raise BenchError(
            f"--shape, --attr and --cases go with the suite {operators.SUITE.name}, not with "
            f"{suite.name}: its cases say how each operator is used."
        )
    if file and (shapes or attrs):
        raise BenchError("--cases holds shapes and attributes; leave out --shape and --attr.")
    found = read_cases(file) if file else _from_options(shapes, attrs, patterns or ["*"])
    by_label = {(case.label, case.dtype): case for case in found}  # others could not be told apart
    return replace(suite, cases=tuple(by_label.values()))


def _from_options(
    shapes: Sequence[str], attrs: Sequence[str], patterns: Sequence[str]
) -> list[Case]:
    """Make the cases: every pattern must get one, and every shape must be of use to some pattern.

    A label is a pattern too; what picks cases by their labels needs only some of the shapes.
    """
    given = _pairs("--attr", attrs)
    asked: dict[str, Shapes | None] = {text: read_shapes(text) for text in shapes}
    asked = asked or {"": None}
    tried = {
        (pattern, text): _fitting(_chosen(pattern), wanted, given)
        for pattern in patterns
        for text, wanted in asked.items()
    }
    for pattern in patterns:
        _expect_some([tried[pattern, text] for text in asked])
    if not any(" " in pattern for pattern in patterns):
        for text in asked:
            _expect_some([tried[pattern, text] for pattern in patterns])
    return [case for found, _ in tried.values() for case in found]


def _chosen(pattern: str) -> list[Template]:
    """Return all variants of the operators that a pattern names with its first word."""
    word = (pattern.split() or [""])[0]
    chosen = [template for template in templates() if fnmatch.fnmatch(template.op, word)]
    if not chosen:
        raise _unknown_operator(word)
    return chosen


def _expect_some(tried: Sequence[tuple[list[Case], list[BenchError]]]) -> None:
    """Refuse what no operator takes, in the words of the first."""
    if not any(cases for cases, _ in tried):
        complaints = [complaint for _, complaints in tried for complaint in complaints]
        raise BenchError(str(complaints[0]))


def _fitting(
    chosen: Sequence[Template], shapes: Shapes | None, attrs: Mapping[str, Any]
) -> tuple[list[Case], list[BenchError]]:
    """Fit the variants that take what is given; without shapes, at all of their own."""
    found: list[Case] = []
    complaints: list[BenchError] = []
    for template in _nearest(chosen, attrs):
        try:
            found += [fit(template, each) for each in _requests(template, shapes, attrs)]
        except BenchError as complaint:
            complaints.append(complaint)
    return found, complaints


def _requests(
    template: Template, shapes: Shapes | None, attrs: Mapping[str, Any]
) -> Iterator[Request]:
    if shapes is not None:
        yield Request(shapes, attrs)
    else:
        for case in template.examples:
            yield Request(_shapes(case), attrs, size=case.size)


def _nearest(chosen: Sequence[Template], attrs: Mapping[str, Any]) -> Iterator[Template]:
    """Yield the variants of each operator that have most of the given attributes themselves."""
    variants: dict[str, dict[int, list[Template]]] = defaultdict(lambda: defaultdict(list))
    for template in chosen:
        same = sum(_text(template.attrs.get(name)) == _text(attrs[name]) for name in attrs)
        variants[template.op][same].append(template)
    for by_likeness in variants.values():
        yield from by_likeness[max(by_likeness)]


@cache
def templates() -> tuple[Template, ...]:
    """Return all variants of all operators, in the suite's order."""
    by_class: dict[str, dict[str, list[Case]]] = defaultdict(lambda: defaultdict(list))
    for case in operators.SUITE.cases:
        by_class[case.op][case.size].append(case)
    return tuple(
        Template(examples)
        for classes in by_class.values()
        for examples in zip(*(classes[size] for size in SIZES), strict=True)
    )


def fit(template: Template, request: Request) -> Case:
    """Return an operator's case with the shapes and attributes that a user asks for.

    Example:
        >>> (layer_norm,) = (each for each in templates() if each.op == "layer_norm")
        >>> fit(layer_norm, Request({"x": (8, 500)}, {})).label
        'layer_norm 8x500 500 500 eps=1e-05'

    """
    names = [array.name for array in template.inputs]
    _expect_known(f"input of {template.op}", request.shapes, names)
    _expect_known(f"attribute of {template.op}", request.attrs, template.attrs)
    if request.dtype not in DTYPES:
        raise UnknownNameError("dtype", request.dtype, DTYPES)
    shapes = _all_shapes(template, request.shapes)
    sides = dict(_sides(template, shapes))
    attrs = {
        name: read_attribute(template, name, request.attrs[name])
        if name in request.attrs
        else _attribute(template, name, sides)
        for name in template.attrs
    }
    _expect_possible(template, shapes, attrs)
    inputs = tuple(
        replace(array, shape=shapes[array.name], high=_high(template, index, sides, shapes, attrs))
        for index, array in enumerate(template.inputs)
    )
    return replace(
        template.examples[0],
        inputs=inputs,
        attrs=attrs,
        dtype=request.dtype,
        size=request.size or _size_class(template, inputs),
        reduction=terms(template.op, shapes, attrs),
    )


def _all_shapes(template: Template, given: Shapes) -> dict[str, Shape]:
    """Add the shapes that follow from those that are given."""
    sides = dict(_sides(template, given))
    found: dict[str, Shape | None] = {
        array.name: given[array.name]
        if array.name in given
        else _like_another(template, array.name, given)
        for array in template.inputs
    }
    for name, shape in found.items():
        if shape is None:
            found[name] = _following(template, name, sides)
    missing = [name for name, shape in found.items() if shape is None]
    if missing:
        example = _shapes(template.examples[0])
        pairs = ",".join(f"{name}={_text(shape)}" for name, shape in example.items())
        raise BenchError(
            f"{template.op}: the shape of {' and '.join(missing)} does not follow from what is "
            f"given; give more, as in {pairs}."
        )
    return {name: shape for name, shape in found.items() if shape is not None}


def _like_another(template: Template, name: str, given: Shapes) -> Shape | None:
    """Return the given shape that is this input's in all size classes."""
    own = template.shapes_of(name)
    return next((given[other] for other in given if template.shapes_of(other) == own), None)


def _following(template: Template, name: str, sides: Mapping[Sides, int]) -> Shape | None:
    shapes = template.shapes_of(name)
    if len({len(shape) for shape in shapes}) != 1:
        return None
    found = [_followed(values, sides) for values in zip(*shapes, strict=True)]
    return tuple(side for side in found if side is not None) if None not in found else None


def _followed(values: Sides, sides: Mapping[Sides, int]) -> int | None:
    """Return what a number is that has these values in the size classes, if that is known."""
    return values[0] if len(set(values)) == 1 else sides.get(values)


def _sides(template: Template, given: Shapes) -> Iterator[tuple[Sides, int]]:
    """Yield sides in all size classes, each with what it is now; of two the later counts.

    Of inputs that is the last: a bias is as long as its weight, not as what the weight takes. Of
    the sides of one input it is the first.
    """
    for name in (array.name for array in template.inputs if array.name in given):
        shapes = template.shapes_of(name)
        if all(len(shape) == len(given[name]) for shape in shapes):
            yield from reversed([*zip(zip(*shapes, strict=True), given[name], strict=True)])


def _attribute(template: Template, name: str, sides: Mapping[Sides, int]) -> Any:
    values = [case.attrs[name] for case in template.examples]
    if isinstance(values[0], int) and (found := _followed(tuple(values), sides)) is not None:
        return found
    usual, count = Counter(values).most_common(1)[0]
    if count < _USUAL:
        raise BenchError(
            f"{template.op}: its attribute {name} does not follow from the shapes; give it, as in "
            f"{name}={_text(usual)}."
        )
    return usual


def _high(
    template: Template,
    index: int,
    sides: Mapping[Sides, int],
    shapes: Shapes,
    attrs: Mapping[str, Any],
) -> int:
    """Return the bound of an input of integers: often they count what another input holds.

    Along a dimension that is an attribute they count that side of the first input.
    """
    array = template.inputs[index]
    if array.kind == "integers" and "dim" in attrs:
        return shapes[template.inputs[0].name][int(attrs["dim"])]
    values = tuple(case.inputs[index].high for case in template.examples)
    found = _followed(values, sides)
    if found is None:
        ranks = ", ".join(f"{each.name}: {len(each.shape)}" for each in template.inputs)
        raise BenchError(
            f"{template.op}: how far the integers of {array.name} reach is known only for inputs "
            f"of as many dimensions as in the suite ({ranks})."
        )
    return found


def _expect_possible(template: Template, shapes: Shapes, attrs: Mapping[str, Any]) -> None:
    """Refuse shapes that do not go together, before workers find out one after the other."""
    reason = flaw(template.op, shapes, attrs)
    if reason is not None:
        asked = " ".join(f"{name}={_text(value)}" for name, value in {**shapes, **attrs}.items())
        raise BenchError(
            f"{template.op}: {asked} do not go together: {reason}. One that does is "
            f"{template.examples[0].label}."
        )


def _size_class(template: Template, inputs: Iterable[Array]) -> str:
    """Return the class whose case is nearest in bytes; what is skewed is in the eye of the user."""
    wanted = sum(array.nbytes("float32") for array in inputs)
    plain = [case for case in template.examples if case.size != "skewed"]
    return min(plain, key=lambda case: abs(math.log(wanted / case.nbytes))).size


def read_shapes(text: str) -> dict[str, Shape]:
    """Read what `--shape` holds, as x=64x1024,weight=2048x1024."""
    pairs = _pairs("--shape", text.split(","))
    return {name: _read_shape(f"--shape {text}", name, shape) for name, shape in pairs.items()}


def read_attribute(template: Template, name: str, value: Any) -> Any:
    """Return an attribute as the operator takes it: of the type that it has in the suite."""
    example = template.attrs[name]
    read: Any
    match example:
        case bool():
            read = {"true": True, "false": False}.get(str(value).lower())
        case int():
            read = _number(value, int)
        case float():
            read = _number(value, float)
        case tuple() | list():
            words = value.split("x") if isinstance(value, str) else value
            sides = [_number(word, int) for word in words] if isinstance(words, list) else [None]
            read = None if None in sides else tuple(sides)
        case _:
            read = value if isinstance(value, str) else None
    if read is None:
        raise BenchError(
            f"{template.op}: attribute {name} must be something like {_text(example)}, "
            f"not {value!r}."
        )
    return read


def _number(value: Any, kind: type[int] | type[float]) -> int | float | None:
    """Read a number from text, or take one that is of the kind."""
    if isinstance(value, bool) or not isinstance(value, (str, int, kind)):
        return None
    try:
        read = kind(value)
    except ValueError:
        return None
    return read if math.isfinite(read) else None


def read_cases(name: str) -> list[Case]:
    """Read a file of cases, TOML or JSON: a list `case` of tables with op, inputs, attrs, dtype."""
    file = Path(name)
    content = _content(file)
    listed = content.get("case") if isinstance(content, dict) else None
    if not isinstance(listed, list) or not listed or len(content) != 1:
        raise MalformedFileError(
            f"{file} must hold tables named [[case]] and nothing else, each with op and inputs."
        )
    cases = []
    for number, table in enumerate(listed, start=1):
        try:
            cases.append(_case_of(table))
        except BenchError as error:
            op = table.get("op", "no op") if isinstance(table, dict) else "no table"
            raise MalformedFileError(f"{file}: case {number} ({op}): {error}") from None
    replace(operators.SUITE, cases=tuple(cases)).check(str(file))
    return cases


class _Table(msgspec.Struct, forbid_unknown_fields=True):
    """One case of a file."""

    op: str
    inputs: dict[str, list[int] | str]
    attrs: dict[str, Any] = {}
    dtype: str = "float32"


def _case_of(table: Any) -> Case:
    try:
        read = msgspec.convert(table, _Table)
    except msgspec.ValidationError as error:
        raise BenchError(f"{str(error).replace('$.', '')}.") from None
    variants = [template for template in templates() if template.op == read.op]
    if not variants:
        raise _unknown_operator(read.op)
    shapes = {name: _read_shape("inputs", name, shape) for name, shape in read.inputs.items()}
    request = Request(shapes, read.attrs, read.dtype)
    complaints = []
    for template in _nearest(variants, read.attrs):
        try:
            return fit(template, request)
        except BenchError as complaint:
            complaints.append(complaint)
    raise complaints[0]


def _content(file: Path) -> Any:
    try:
        text = file.read_text(encoding="utf-8")
        return tomllib.loads(text) if file.suffix == ".toml" else msgspec.json.decode(text)
    except OSError as error:
        raise MalformedFileError(f"{file} cannot be read: {error.strerror}.") from None
    except (UnicodeError, tomllib.TOMLDecodeError, msgspec.DecodeError) as error:
        kind = "TOML" if file.suffix == ".toml" else "JSON"
        raise MalformedFileError(f"{file} is no {kind}: {error}.") from None
    except RecursionError:
        raise MalformedFileError(f"{file} is nested too deeply to be read.") from None


def _pairs(option: str, texts: Iterable[str]) -> dict[str, str]:
    """Read name=value, each name once."""
    found: dict[str, str] = {}
    for text in texts:
        name, sign, value = (part.strip() for part in text.partition("="))
        if not (name and sign and value):
            raise BenchError(f"{option}: {text!r} is not NAME=VALUE.")
        if name in found:
            raise BenchError(f"{option} gives {name} twice.")
        found[name] = value
    return found


def _read_shape(where: str, name: str, given: str | list[int]) -> Shape:
    if isinstance(given, str):
        if not _SHAPE.fullmatch(given):
            raise BenchError(f"{where}: {given!r} is no shape of {name}; write it like 64x1024.")
        words = [] if given == "()" else given.split("x")
        shape = tuple(int(word) if len(word) < len(str(_MOST)) else _MOST + 1 for word in words)
    else:
        shape = tuple(given)
    if any(side < 1 for side in shape):
        raise BenchError(f"{where}: sides of {name} must be 1 or more, not {_text(shape)}.")
    if math.prod(shape) > _MOST:
        raise BenchError(f"{where}: {name} would have more elements than any machine holds.")
    return shape


def _expect_known(kind: str, given: Iterable[str], known: Iterable[str]) -> None:
    for name in given:
        if name not in known:
            raise UnknownNameError(kind, name, known)


def _unknown_operator(name: str) -> UnknownNameError:
    names = dict.fromkeys(template.op for template in templates())
    advice = f"`tapegrad bench list {operators.SUITE.name}` shows them."
    return UnknownNameError("operator", name, names, advice)


def _shapes(case: Case) -> dict[str, Shape]:
    return {array.name: array.shape for array in case.inputs}


def _text(value: Any) -> str:
    """Write a value as labels and the command line do."""
    if isinstance(value, (tuple, list)):
        return "x".join(map(str, value)) or "()"
    return str(value).lower() if isinstance(value, bool) else str(value)
