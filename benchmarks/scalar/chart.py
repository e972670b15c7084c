"""The picture of a run: speed against scalar C, and time per operation by size of the graph."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
from matplotlib.axes import Axes

from benchmarks.scalar.bars import AGAINST_SCALAR, BATCH_32, BATCH_64
from benchmarks.scalar.baseline import LANES, SCALAR
from benchmarks.scalar.graphs import FAMILIES
from benchmarks.scalar.results import Results, ratio
from benchmarks.scalar.studies import EVALUATION, N_OPS, SCALING, SCALING_FAMILIES, SCALING_SIZES

#: Contenders of the left panel and their colours: grey for C, one hue for each way to run.
COLOURS = {
    LANES: "#9a9a9a",
    "single": "#e8a33d",
    "minimize": "#c9772b",
    BATCH_64: "#4c84c4",
    f"{BATCH_64}, 2 threads": "#22508a",
    BATCH_32: "#63b292",
    f"{BATCH_32}, 2 threads": "#2c7a5b",
}
FAMILY_COLOURS = {"chain": "#4c84c4", "random": "#e8a33d", "cheap": "#63b292"}


def draw(results: Results, path: Path) -> None:
    """Save the picture of `results`."""
    style: dict[Any, Any] = {"font.size": 10, "axes.spines.top": False, "axes.spines.right": False}
    with plt.rc_context(style):
        figure, (left, right) = plt.subplots(
            1, 2, figsize=(14, 6), width_ratios=(1.7, 1), layout="constrained"
        )
        _speeds(left, results)
        _sizes(right, results)
        figure.savefig(path, dpi=150)
        plt.close(figure)


def _speeds(axes: Axes, results: Results) -> None:
    width = 0.86 / len(COLOURS)
    for index, (contender, colour) in enumerate(COLOURS.items()):
        offset = (index - (len(COLOURS) - 1) / 2) * width
        label: str | None = contender
        for place, family in enumerate(FAMILIES):
            value = ratio(
                results.find(EVALUATION, family, N_OPS, SCALAR),
                results.find(EVALUATION, family, N_OPS, contender),
            )
            if value is None:
                continue
            x = place + offset
            reach = [[value.median - value.low], [value.high - value.median]]
            axes.bar(x, value.median, width * 0.92, color=colour, label=label, zorder=2)
            axes.errorbar(x, value.median, yerr=reach, color="#333333", lw=0.8, zorder=3)
            axes.text(
                x,
                value.high * 1.06,
                f"{value.median:.{1 if value.median >= 2 else 2}f}",
                ha="center",
                fontsize=6.5,
                color="#333333",
            )
            _bound(axes, x, width, AGAINST_SCALAR.get(contender, {}).get(family))
            label = None
    axes.axhline(1, color="#333333", lw=1, zorder=1)
    axes.set_yscale("log")
    axes.set_yticks([1, 2, 5, 10, 20, 50, 100], ["1", "2", "5", "10", "20", "50", "100"])
    axes.minorticks_off()
    axes.grid(axis="y", color="#e6e6e6", zorder=0)
    axes.set_xticks(range(len(FAMILIES)), list(FAMILIES))
    axes.set_ylabel("times faster than the scalar interpreter in C")
    axes.set_title("Forward and backward, 10k operations", loc="left", fontweight="bold")
    if axes.get_legend_handles_labels()[0]:
        axes.set_ylim(top=axes.get_ylim()[1] * 2)  # room for the legend
        axes.legend(
            frameon=False, fontsize=8, ncols=4, loc="upper left", title="dashes: the bar to reach"
        )


def _bound(axes: Axes, x: float, width: float, bound: float | None) -> None:
    if bound is not None:
        axes.hlines(bound, x - width / 2, x + width / 2, color="#c0392b", lw=1.6, ls="--", zorder=4)


def _sizes(axes: Axes, results: Results) -> None:
    lines = ((SCALAR, "C scalar", "--", "o"), (BATCH_64, "batch float64", "-", "s"))
    for contender, label, dash, marker in lines:
        for family in SCALING_FAMILIES:
            found = [
                series
                for n_ops, _, _ in SCALING_SIZES
                if (series := results.find(SCALING, family, n_ops, contender)) is not None
            ]
            axes.plot(
                [series.n_ops for series in found],
                [1e9 * series.median / series.n_ops for series in found],
                ls=dash,
                marker=marker,
                ms=5,
                color=FAMILY_COLOURS[family],
                label=f"{family}, {label}" if found else None,
            )
    axes.set_xscale("log")
    axes.set_yscale("log")
    if axes.get_legend_handles_labels()[0]:
        bottom, top = axes.get_ylim()
        axes.set_ylim(bottom / 2, top)  # room for the legend
        axes.legend(frameon=False, fontsize=8, ncols=2, handlelength=3, loc="lower center")
    axes.set_xticks([size for size, _, _ in SCALING_SIZES], ["1k", "10k", "100k"])
    axes.yaxis.set_major_formatter("{x:g}")
    axes.minorticks_off()
    axes.grid(color="#e6e6e6")
    axes.set_xlabel("operations in the graph")
    axes.set_ylabel("ns per operation, forward and backward")
    axes.set_title("One thread, by size of the graph", loc="left", fontweight="bold")
