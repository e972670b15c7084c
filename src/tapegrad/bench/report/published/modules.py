"""Seconds of modules, forward and backward: tensorgrad's comparison with PyTorch.

Copied as printed, from BENCHMARK.md of akv17/tensorgrad (2023-09-28). It names no hardware.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

from tapegrad.bench.report.published.quoted import Quoted, seconds_of

SOURCE = "published (tensorgrad 2023, hardware not named)"
OVERALL = "overall"
NOTE = (
    "published torch and tensorgrad: BENCHMARK.md of akv17/tensorgrad, 2023-09-28, on hardware "
    "that it does not name, rounded to 10 µs. Beside ours for orientation: no ratio is made of "
    "theirs and ours. Their overall is the median of the rows, ours is the geometric mean of the "
    "ratios. Their backward pass includes a sum over the output."
)
#: PyTorch's inputs needed no gradient there, tensorgrad's did.
UNEQUAL = "published: only tensorgrad computes the gradient of the input."
#: What else is known of a module's figures.
KNOWN = {
    "nn.Linear": "published: where the label says 64x1024, both ran 32x1024.",
    "nn.MultiheadAttention": (
        "published: PyTorch took the first dimension of the input for the sequence, tensorgrad "
        "for the batch, so the two attend over different lengths."
    ),
}
CUDA_NOTE = (
    "published: the CUDA times are those of launching the work, since nothing waited for its end, "
    "and they are compared with PyTorch on the CPU."
)

#: Inputs, PyTorch on the CPU, tensorgrad, “tensorgrad is slower by”.
_ROWS: dict[tuple[str, str, str], tuple[tuple[str, str, str, str], ...]] = {
    ("nn.Linear", "cpu", "forward"): (
        ("input=32x64, features=128", "1e-05", "7e-05", "7.957"),
        ("input=64x1024, features=2048", "0.00094", "0.00333", "3.53146"),
        ("input=128x2048, features=4096", "0.00826", "0.02759", "3.34093"),
        ("overall", "0.00094", "0.00333", "3.53146"),
    ),
    ("nn.Linear", "cpu", "backward"): (
        ("input=32x64, features=128", "6e-05", "0.00013", "2.31789"),
        ("input=64x1024, features=2048", "0.00297", "0.02247", "7.56456"),
        ("input=128x2048, features=4096", "0.02283", "0.19425", "8.50893"),
        ("overall", "0.00297", "0.02247", "7.56456"),
    ),
    ("nn.Linear", "cuda", "forward"): (
        ("input=32x64, features=128", "1e-05", "0.00023", "19.7145"),
        ("input=64x1024, features=2048", "0.00063", "0.00025", "0.40021"),
        ("input=128x2048, features=4096", "0.00679", "0.00026", "0.03803"),
        ("overall", "0.00063", "0.00025", "0.40021"),
    ),
    ("nn.Linear", "cuda", "backward"): (
        ("input=32x64, features=128", "7e-05", "0.00057", "8.50881"),
        ("input=64x1024, features=2048", "0.00253", "0.00062", "0.24498"),
        ("input=128x2048, features=4096", "0.0223", "0.00061", "0.02735"),
        ("overall", "0.00253", "0.00061", "0.24498"),
    ),
    ("nn.Conv2d", "cpu", "forward"): (
        ("input=4x3x32x32 kernel=3 channels=16", "5e-05", "0.00027", "5.28848"),
        ("input=8x32x64x64 kernel=3 channels=64", "0.00424", "0.02066", "4.87644"),
        ("input=8x64x128x128 kernel=3 channels=128", "0.06646", "0.17148", "2.58034"),
        ("overall", "0.00424", "0.02066", "4.87644"),
    ),
    ("nn.Conv2d", "cpu", "backward"): (
        ("input=4x3x32x32 kernel=3 channels=16", "0.00014", "0.0014", "9.82634"),
        ("input=8x32x64x64 kernel=3 channels=64", "0.00706", "0.09186", "13.0172"),
        ("input=8x64x128x128 kernel=3 channels=128", "0.06874", "0.71355", "10.3801"),
        ("overall", "0.00706", "0.09186", "10.3801"),
    ),
    ("nn.Conv2d", "cuda", "forward"): (
        ("input=4x3x32x32 kernel=3 channels=16", "6e-05", "0.00064", "10.2036"),
        ("input=8x32x64x64 kernel=3 channels=64", "0.00285", "0.00066", "0.23203"),
        ("input=8x64x128x128 kernel=3 channels=128", "0.06073", "0.00498", "0.08204"),
        ("overall", "0.00285", "0.00066", "0.23203"),
    ),
    ("nn.Conv2d", "cuda", "backward"): (
        ("input=4x3x32x32 kernel=3 channels=16", "0.00016", "0.00156", "9.50008"),
        ("input=8x32x64x64 kernel=3 channels=64", "0.00656", "0.00316", "0.48117"),
        ("input=8x64x128x128 kernel=3 channels=128", "0.08608", "0.02187", "0.25411"),
        ("overall", "0.00656", "0.00316", "0.48117"),
    ),
    ("nn.MultiheadAttention", "cpu", "forward"): (
        ("input=16x32x64 d_model=64 n_heads=4", "0.0002", "0.00175", "8.84703"),
        ("input=32x64x128 d_model=128 n_heads=8", "0.00229", "0.01677", "7.32494"),
        ("input=32x128x256 d_model=256 n_heads=8", "0.0148", "0.07684", "5.19165"),
        ("overall", "0.00229", "0.01677", "7.32494"),
    ),
    ("nn.MultiheadAttention", "cpu", "backward"): (
        ("input=16x32x64 d_model=64 n_heads=4", "0.0004", "0.00745", "18.7644"),
        ("input=32x64x128 d_model=128 n_heads=8", "0.00386", "0.2466", "63.8829"),
        ("input=32x128x256 d_model=256 n_heads=8", "0.01779", "1.57431", "88.5085"),
        ("overall", "0.00386", "0.2466", "63.8829"),
    ),
    ("nn.MultiheadAttention", "cuda", "forward"): (
        ("input=16x32x64 d_model=64 n_heads=4", "0.00023", "0.00191", "8.25529"),
        ("input=32x64x128 d_model=128 n_heads=8", "0.0012", "0.00196", "1.62443"),
        ("input=32x128x256 d_model=256 n_heads=8", "0.01626", "0.00193", "0.11856"),
        ("overall", "0.0012", "0.00193", "1.62443"),
    ),
    ("nn.MultiheadAttention", "cuda", "backward"): (
        ("input=16x32x64 d_model=64 n_heads=4", "0.00038", "0.0026", "6.88775"),
        ("input=32x64x128 d_model=128 n_heads=8", "0.00485", "0.0026", "0.53555"),
        ("input=32x128x256 d_model=256 n_heads=8", "0.01729", "0.00274", "0.15873"),
        ("overall", "0.00485", "0.0026", "0.53555"),
    ),
    ("nn.Softmax", "cpu", "forward"): (
        ("input=128x64 dim=-1", "0", "5e-05", "9.71885"),
        ("input=512x256 dim=-1", "2e-05", "0.00028", "17.1162"),
        ("input=1024x512 dim=-1", "7e-05", "0.00142", "21.2956"),
        ("overall", "2e-05", "0.00028", "17.1162"),
    ),
    ("nn.Softmax", "cpu", "backward"): (
        ("input=128x64 dim=-1", "3e-05", "0.00073", "21.8265"),
        ("input=512x256 dim=-1", "7e-05", "0.09498", "1431.73"),
        ("input=1024x512 dim=-1", "0.00015", "0.66259", "4488.73"),
        ("overall", "7e-05", "0.09498", "1431.73"),
    ),
    ("nn.Softmax", "cuda", "forward"): (
        ("input=128x64 dim=-1", "0.00771", "0.0001", "0.01325"),
        ("input=512x256 dim=-1", "3e-05", "0.0001", "3.88199"),
        ("input=1024x512 dim=-1", "9e-05", "0.0001", "1.09995"),
        ("overall", "9e-05", "0.0001", "1.09995"),
    ),
    ("nn.Softmax", "cuda", "backward"): (
        ("input=128x64 dim=-1", "4e-05", "0.00052", "14.7455"),
        ("input=512x256 dim=-1", "7e-05", "0.00056", "7.69522"),
        ("input=1024x512 dim=-1", "0.00036", "0.0006", "1.64598"),
        ("overall", "7e-05", "0.00056", "7.69522"),
    ),
}


def quoted(title: str, device: str, names: Collection[str]) -> Iterator[Quoted]:
    """Yield the published rows of a module: PyTorch's time and tensorgrad's, then the overall.

    Theirs is of all their rows: beside fewer of ours it would be of something else.
    """
    for (module, on, phase), rows in _ROWS.items():
        if (module, on) != (title, device):
            continue
        whole = all(name in names for name, *_ in rows if name != OVERALL)
        for name, torch, tensorgrad, slower_by in rows:
            if name in names or (name == OVERALL and whole):
                theirs = f"{torch} s", f"{tensorgrad} s"
                yield _quoted("torch cpu", name, phase, theirs[0])
                yield _quoted(f"tensorgrad {device}", name, phase, theirs[1], slower_by)


def _quoted(framework: str, name: str, phase: str, printed: str, slower_by: str = "") -> Quoted:
    return Quoted(SOURCE, framework, name, phase, printed, seconds_of(printed), slower_by)


def notes(title: str, device: str, phase: str) -> tuple[str, ...]:
    """Say what is wrong with the figures of a module."""
    known = [KNOWN[title]] if title in KNOWN else []
    unequal = [UNEQUAL] if phase == "backward" and title != "nn.Softmax" else []
    launched = [CUDA_NOTE] if device == "cuda" else []
    return (*known, *unequal, *launched)
