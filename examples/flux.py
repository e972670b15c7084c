"""Flux in `tapegrad bench`, by a worker in Julia. UNTESTED: written where there is no Julia.

julia -e 'using Pkg; Pkg.add(["Flux", "JSON3"])'
tapegrad bench run operators --frameworks torch,examples/flux.py --filter 'conv2d*' --sizes small

On a GPU, add CUDA and cuDNN, and `--device cuda`.
"""

ADAPTERS = {"flux": "Flux"}
COMMAND = ["julia", "--startup-file=no", "flux_worker.jl"]
