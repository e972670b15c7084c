"""Times of CNN models and layers: a comparison of PyTorch with Flux.

Copied as printed, from avik-pal/DeepLearningBenchmarks (2018-10-26). The tables of ResNets and of
layers on the CPU were left empty there.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

from tapegrad.bench.report.published.quoted import Quoted, seconds_of

HARDWARE = {"cuda": "Titan 1080Ti 12 GB", "cpu": "Intel Xeon Silver 4114 at 2.20 GHz"}
PHASES = ("forward", "backward", "total", "inference")
#: Follows a time that is not what its column says.
STALE = "‡"
NOTE = (
    "published Pytorch and Flux: avik-pal/DeepLearningBenchmarks, 2018-10-26; - where they give "
    "none. Beside ours for orientation: they take no part in the choice of winners. PyTorch's are "
    "the least of 101 iterations for models and the mean for layers, Flux's the least; its "
    "backward passes are differences of two least times on the GPU, and on the CPU it computed in "
    "float64."
)
STALE_NOTE = (
    f"{STALE} PyTorch's published inference was never measured: its loop appended the forward time "
    "of the training loop before it."
)

#: Tables that the authors prepared and left empty.
EMPTY = {
    ("models", "cpu"): ("published: their rows of ResNets on the CPU are empty.",),
    ("layers", "cpu"): ("published: their table of layers on the CPU is empty.",),
}

#: Model or layer, framework, forward, backward, total, inference.
_ROWS: dict[tuple[str, str], tuple[tuple[str, ...], ...]] = {
    ("models", "cuda"): (
        ("VGG16", "Pytorch 0.4.1", "0.0245 s", "0.0606 s", "0.0852 s", "0.0234 s"),
        ("VGG16", "Flux 0.6.8+", "0.0287 s", "0.0760 s", "0.1047 s", "0.0288 s"),
        ("VGG16 BN", "Pytorch 0.4.1", "0.0271 s", "0.0672 s", "0.0943 s", "0.0273 s"),
        ("VGG16 BN", "Flux 0.6.8+", "0.0333 s", "0.0818 s", "0.1151 s", "0.0327 s"),
        ("VGG19", "Pytorch 0.4.1", "0.0281 s", "0.0741 s", "0.1021 s", "0.0280 s"),
        ("VGG19", "Flux 0.6.8+", "0.0355 s", "0.0923 s", "0.1278 s", "0.0356 s"),
        ("VGG19 BN", "Pytorch 0.4.1", "0.0321 s", "0.0812 s", "0.1134 s", "0.0325 s"),
        ("VGG19 BN", "Flux 0.6.8+", "0.0377 s", "0.0965 s", "0.1342 s", "0.0371 s"),
        ("Resnet18", "Pytorch 0.4.1", "0.0064 s", "0.0125 s", "0.0190 s", "0.0050 s"),
        ("Resnet18", "Flux 0.6.8+", "0.0079 s", "0.0218 s", "0.0297 s", "0.0079 s"),
        ("Resnet34", "Pytorch 0.4.1", "0.0092 s", "0.0216 s", "0.0307 s", "0.0092 s"),
        ("Resnet34", "Flux 0.6.8+", "0.0137 s", "0.0313 s", "0.0450 s", "0.0151 s"),
        ("Resnet50", "Pytorch 0.4.1", "0.0155 s", "0.0351 s", "0.0506 s", "0.0152 s"),
        ("Resnet50", "Flux 0.6.8+", "0.0205 s", "0.1795 s", "0.2000 s", "-"),
        ("Resnet101", "Pytorch 0.4.1", "0.0297 s", "0.0379 s", "0.0676 s", "0.0298 s"),
        ("Resnet101", "Flux 0.6.8+", "0.0215 s", "0.0616 s", "0.0831 s", "0.0208 s"),
        ("Resnet152", "Pytorch 0.4.1", "0.0431 s", "0.05337 s", "0.0965 s", "0.0429 s"),
        ("Resnet152", "Flux 0.6.8+", "0.0308 s", "0.0807 s", "0.1115 s", "0.0298 s"),
    ),
    ("models", "cpu"): (
        ("VGG16", "Pytorch 0.4.1", "6.6024 s", "9.4336 s", "16.036 s", "6.4216 s"),
        ("VGG16", "Flux 0.6.8+", "10.458 s", "10.245 s", "20.703 s", "10.111 s"),
        ("VGG16 BN", "Pytorch 0.4.1", "7.0793 s", "9.0536 s", "16.132 s", "6.7909 s"),
        ("VGG16 BN", "Flux 0.6.8+", "29.633 s", "18.649 s", "49.282 s", "24.047 s"),
        ("VGG19", "Pytorch 0.4.1", "8.3075 s", "10.899 s", "19.207 s", "8.0593 s"),
        ("VGG19", "Flux 0.6.8+", "12.226 s", "12.457 s", "24.683 s", "12.029 s"),
        ("VGG19 BN", "Pytorch 0.4.1", "8.7794 s", "12.739 s", "21.519 s", "8.4044 s"),
        ("VGG19 BN", "Flux 0.6.8+", "28.518 s", "21.464 s", "49.982 s", "22.649 s"),
    ),
    ("layers", "cuda"): (
        ("Conv3x3/1", "Pytorch 0.4.1", "0.2312 ms", "0.5359 ms", "0.7736 ms"),
        ("Conv3x3/1", "Flux 0.6.8+", "0.1984 ms", "0.7640 ms", "0.9624 ms"),
        ("Conv5x5/1", "Pytorch 0.4.1", "0.2667 ms", "0.5345 ms", "0.8299 ms"),
        ("Conv5x5/1", "Flux 0.6.8+", "0.2065 ms", "0.8075 ms", "1.014 ms"),
        ("Conv3x3/2", "Pytorch 0.4.1", "0.1170 ms", "0.2203 ms", "0.3376 ms"),
        ("Conv3x3/2", "Flux 0.6.8+", "0.0927 ms", "0.5988 ms", "0.6915 ms"),
        ("Conv5x5/2", "Pytorch 0.4.1", "0.1233 ms", "0.2162 ms", "0.3407 ms"),
        ("Conv5x5/2", "Flux 0.6.8+", "0.0941 ms", "0.6515 ms", "0.7456 ms"),
        ("Dense", "Pytorch 0.4.1", "0.0887 ms", "0.1523 ms", "0.2411 ms"),
        ("Dense", "Flux 0.6.8+", "0.0432 ms", "0.2044 ms", "0.2476 ms"),
        ("BatchNorm", "Pytorch 0.4.1", "0.1096 ms", "0.1999 ms", "0.3095 ms"),
        ("BatchNorm", "Flux 0.6.8+", "0.2211 ms", "0.2849 ms", "0.5060 ms"),
    ),
}


def quoted(kind: str, device: str, names: Collection[str]) -> Iterator[Quoted]:
    """Yield the published figures of those models or layers that are among the names."""
    ours = {_plain(name): name for name in names}
    for published, framework, *times in _ROWS.get((kind, device), ()):
        name = ours.get(_plain(published))
        if name is None:
            continue
        for phase, printed in zip(PHASES, times, strict=False):
            stale = phase == "inference" and framework.startswith("Pytorch")
            yield Quoted(
                source=f"published ({HARDWARE[device]}, 2018)",
                framework=framework,
                name=name,
                phase=phase,
                printed=f"{printed} {STALE}" if stale else printed,
                seconds=None if stale else seconds_of(printed),
            )


def notes(kind: str, device: str) -> tuple[str, ...]:
    """Say what is wrong with the figures of a table, and what it lacks."""
    stale = (STALE_NOTE,) if kind == "models" else ()
    return (*stale, *EMPTY.get((kind, device), ()))


def _plain(name: str) -> str:
    """Return a name without what it may be spelled with, as ResNet-50 and Resnet50."""
    return name.lower().replace("-", "")
