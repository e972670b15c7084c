"""Where the time of a user's PyTorch model goes: what a worker does for `tapegrad bench profile`.

1. `model` loads the user's file; a step is a forward pass and a backward pass with a given
   cotangent.
2. `trace` runs one step under a `TorchFunctionMode`, which sees every call that the model makes,
   with its arguments: operators as users know them (`conv2d`, `linear`), not the pieces that they
   are made of. One set of arguments of each kind of call is kept, to repeat it alone.
3. `events` reads what PyTorch's profiler recorded of steps that run as they always do, without
   that mode. The operators at the top of the recorded tree come in the traced order, so each is
   known by its place. A backward node carries the number that its forward operator was given.
   What recording an event takes, `overhead` measures.
4. `replay` runs one kind of call alone, read by the same profiler: like is compared with like.
5. `names` gives operators the names that the tables of all frameworks use.
"""
