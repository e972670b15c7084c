# A worker of `tapegrad bench` for Flux: a line in, a line out (docs/workers.md).
#
# UNTESTED: written where there is no Julia, after the worker in JavaScript, which is tested. Should
# it be wrong, its cells say `wrong`, `failed` or `crashed`; no time of a wrong answer is shown.
#
# 1. Layout. The driver's arrays are row-major: an image batch is (N, C, H, W) with W running
#    fastest. Julia's arrays are column-major: the first index runs fastest. The same bytes, read
#    with the shape reversed, are therefore a Julia array (W, H, C, N), which is what Flux wants.
#    Nothing is moved, neither in reading nor in writing, and every shape here is the reverse of
#    the driver's: dimension -1 is 1, a matrix (m, k) is (k, m), and a product `a @ b` is `b * a`,
#    since the transpose of AB is that of B times that of A.
# 2. Kernels. Weights (O, I, kh, kw) become (kw, kh, I, O), NNlib's own order. NNlib's `conv` turns
#    the kernel round, as mathematics does; `flipped=true` does not, as PyTorch does not.
# 3. Gradients. `Zygote.pullback` runs forward and returns the backward pass, which may be called
#    any number of times as long as no mutable struct is involved. So operators are functions of
#    arrays, and batch norm is Flux's own formula rather than its (mutable) layer. Zygote computes
#    the gradients of all inputs, also of those that a case does not ask for.
# 4. The GPU. Arrays become CuArrays, and a clock is read only after `CUDA.synchronize`.

const ANSWERS = stdout
redirect_stdout(stderr)  # what packages print must not mix with the answers

const MISSING = try
    @eval using Flux, JSON3
    @eval using Flux: NNlib, Zygote
    nothing
catch error
    "julia -e 'using Pkg; Pkg.add([\"Flux\", \"JSON3\"])' ($(sprint(showerror, error)))"
end
if MISSING !== nothing  # there is no JSON package to read the greeting with, nor any need to
    readline()
    text = replace(first(MISSING, 500), "\\" => "\\\\", "\"" => "\\\"", r"\s+" => " ")
    println(ANSWERS, "{\"complaint\": \"not installed\", \"message\": \"run: $text\"}")
    flush(ANSWERS)
    exit()
end

using LinearAlgebra: BLAS, mul!
using Statistics: mean, median

struct Unsupported <: Exception
    reason::String
end
Base.showerror(io::IO, error::Unsupported) = print(io, error.reason)

# --- .npy files ----------------------------------------------------------------------------------

const TYPES = Dict("<f4" => Float32, "<f8" => Float64, "<i8" => Int64)
const NAMES = Dict(type => name for (name, type) in TYPES)
const MAGIC = UInt8[0x93, 'N', 'U', 'M', 'P', 'Y']

"""Read a row-major array as a column-major one of the reversed shape."""
function load(path)
    open(path) do io
        read(io, 6) == MAGIC || error("$path is no .npy file")
        version = read(io, UInt8), read(io, UInt8)
        count = version[1] > 1 ? ltoh(read(io, UInt32)) : ltoh(read(io, UInt16))
        header = String(read(io, count))
        occursin("'fortran_order': False", header) || error("$path is not row-major")
        type = TYPES[match(r"'descr': '([^']*)'", header)[1]]
        sides = match(r"'shape': \(([^)]*)\)", header)[1]
        shape = [parse(Int, each.match) for each in eachmatch(r"\d+", sides)]
        return read!(io, Array{type}(undef, reverse(shape)...))
    end
end

"""Write a column-major array as a row-major one of the reversed shape."""
function save(path, array::Array)
    sides = join(reverse(size(array)), ", ") * (ndims(array) == 1 ? "," : "")
    name = NAMES[eltype(array)]
    literal = "{'descr': '$name', 'fortran_order': False, 'shape': ($sides), }"
    count = cld(10 + length(literal) + 1, 64) * 64 - 10
    open(path, "w") do io
        write(io, MAGIC, 0x01, 0x00, htol(UInt16(count)), rpad(literal, count - 1), "\n", array)
    end
    return path
end

# --- operators: inputs in order and attributes by name, shapes reversed --------------------------

"""Tell which of Julia's dimensions a row-major `dim` is, in an array of reversed shape."""
dimension(x, dim) = dim < 0 ? -dim : ndims(x) - dim

dropped(reduce, x, dim) = dropdims(reduce(x; dims=dimension(x, dim)); dims=dimension(x, dim))

per_channel(vector) = reshape(vector, 1, 1, :, 1)

function conv2d(x, weight, bias; stride, padding, dilation=1, groups=1)
    y = NNlib.conv(x, weight; stride, pad=padding, dilation, flipped=true, groups)
    return y .+ per_channel(bias)
end

"""Flux's formula of normalisation, with the mean and variance of the data themselves."""
function normalised(x, dims, eps)
    centred = x .- mean(x; dims)
    return centred ./ sqrt.(mean(abs2.(centred); dims) .+ eltype(x)(eps))
end

batch_norm(x, weight, bias; eps) =
    normalised(x, (1, 2, 4), eps) .* per_channel(weight) .+ per_channel(bias)

layer_norm(x, weight, bias; eps) = normalised(x, 1, eps) .* weight .+ bias

bmm(a, b; transpose_b) =
    NNlib.batched_mul(transpose_b ? NNlib.batched_transpose(b) : b, a)

const OPERATORS = Dict{String,Function}(
    "exp" => x -> exp.(x),
    "log" => x -> log.(x),
    "sqrt" => x -> sqrt.(x),
    "tanh" => x -> tanh.(x),
    "sigmoid" => x -> NNlib.sigmoid.(x),
    "relu" => x -> NNlib.relu.(x),
    "silu" => x -> NNlib.swish.(x),
    "softplus" => x -> NNlib.softplus.(x),
    # Reversed shapes broadcast from the first dimension on, as Julia does.
    "add" => (a, b) -> a .+ b,
    "sub" => (a, b) -> a .- b,
    "mul" => (a, b) -> a .* b,
    "div" => (a, b) -> a ./ b,
    "sum" => (x; dim) -> dropped(sum, x, dim),
    "mean" => (x; dim) -> dropped(mean, x, dim),
    "softmax" => (x; dim) -> NNlib.softmax(x; dims=dimension(x, dim)),
    "log_softmax" => (x; dim) -> NNlib.logsoftmax(x; dims=dimension(x, dim)),
    "matmul" => (a, b) -> b * a,
    "bmm" => bmm,
    # The weight (out, in) is here (in, out); Dense has it the other way round, in the same bytes.
    "linear" => (x, weight, bias) -> transpose(weight) * x .+ bias,
    "conv2d" => conv2d,
    "conv2d_pointwise" => conv2d,
    "conv2d_wide" => conv2d,
    "conv2d_strided" => conv2d,
    "conv2d_dilated" => conv2d,
    "conv2d_grouped" => conv2d,
    "conv2d_depthwise" => conv2d,
    "max_pool2d" => (x; kernel, stride, padding) ->
        NNlib.maxpool(x, (kernel, kernel); stride=(stride, stride), pad=(padding, padding)),
    "avg_pool2d" => (x; kernel, stride) ->
        NNlib.meanpool(x, (kernel, kernel); stride=(stride, stride)),
    "batch_norm" => batch_norm,
    "layer_norm" => layer_norm,
    # Rows are counted from one here, from zero by the driver.
    "embedding" => (index, weight) -> NNlib.gather(weight, index .+ 1),
)

# --- one case ------------------------------------------------------------------------------------

mutable struct Work
    operator::Function
    type::DataType
    names::Vector{String}
    #: Whether each input needs a gradient.
    wanted::Vector{Bool}
    inputs::Vector{Any}
    cotangents::Vector{Any}
    pullback::Any
end

const DEVICE = Ref("cpu")

to_device(array) = DEVICE[] == "cuda" ? CUDA.CuArray(array) : array
settle() = DEVICE[] == "cuda" ? CUDA.synchronize() : nothing

"""Copy an array to the case's type, integers aside, and put it where the work is."""
own(work, array) = to_device(eltype(array) == Int64 ? copy(array) : Array{work.type}(array))

function Work(case)
    case["level"] == "operator" || throw(Unsupported("no cases of level $(case["level"])"))
    types = Dict("float32" => Float32, "float64" => Float64)
    haskey(types, case["dtype"]) || throw(Unsupported("no $(case["dtype"])"))
    haskey(OPERATORS, case["op"]) || throw(Unsupported("no $(case["op"]) in this worker's table"))
    call, attrs = OPERATORS[case["op"]], (; (Symbol(k) => v for (k, v) in case["attrs"])...)
    names = [String(each["name"]) for each in case["inputs"]]
    wanted = [Bool(each["grad"]) for each in case["inputs"]]
    operator = (inputs...) -> call(inputs...; attrs...)
    return Work(operator, types[case["dtype"]], names, wanted, [], [], nothing)
end

function feed!(work, arrays, cotangents)
    work.inputs = [own(work, arrays[name]) for name in work.names]
    work.cotangents = [own(work, each) for each in cotangents]
    work.pullback = isempty(cotangents) ? nothing : recorded(work)[2]
    settle()
end

inference(work) = work.operator(work.inputs...)

"""Run forward as training does; returns the output and the backward pass."""
recorded(work) = Zygote.pullback(work.operator, work.inputs...)

function step(work)
    output, back = recorded(work)
    return output, back(work.cotangents[1])
end

function phases(work)
    found = Dict{String,Function}(
        "forward" => () -> recorded(work), "inference" => () -> inference(work))
    if any(work.wanted)
        found["backward"] = () -> work.pullback(work.cotangents[1])
        found["step"] = () -> step(work)
    end
    return found
end

"""Copy a phase's result to plain arrays by name."""
function read_arrays(work, phase, result)
    phase == "inference" && return Dict("output0" => Array(result))
    phase == "forward" && return Dict("output0" => Array(result[1]))
    if phase == "backward"
        wanted = findall(work.wanted)
        return Dict("grad:$(work.names[index])" => Array(result[index]) for index in wanted)
    end
    output, gradients = result
    return merge(Dict("output0" => Array(output)), read_arrays(work, "backward", gradients))
end

# --- timing: the method of tapegrad/worker/timing.py ---------------------------------------------

const CLOCK_STEPS, SHORTEST_SAMPLE = 1_000, 2e-4
const FEWEST, MOST, COLD_CALLS = 5, 100, 10
const FLUSHED = 1 << 24
const WINDOW, DRIFT, WARMUP_BLOCKS, LONG_CALL = 8, 0.02, 10, 2

const KEPT = Ref{Any}(nothing)

"""Time calls in seconds, waiting for the device at both ends."""
function elapsed(call, calls)
    settle()
    start = time_ns()
    for _ in 1:calls
        KEPT[] = call()
    end
    settle()
    seconds = (time_ns() - start) * 1e-9
    KEPT[] = nothing
    return seconds
end

"""Return the processor seconds of this process so far."""
function processor_seconds()
    return ccall(:clock, Clong, ()) / 1e6  # CLOCKS_PER_SEC is a million wherever POSIX is
end

"""Return the processors that were busy during an action, and what it returned."""
function busy(action)
    before, start = processor_seconds(), time_ns()
    result = action()
    return (processor_seconds() - before) / ((time_ns() - start) * 1e-9), result
end

const CLOCK_STEP = Ref(0.0)

function clock_step()
    if CLOCK_STEP[] == 0.0
        CLOCK_STEP[] = minimum(1:50) do _
            start = time_ns()
            stop = start
            while stop == start
                stop = time_ns()
            end
            (stop - start) * 1e-9
        end
    end
    return CLOCK_STEP[]
end

function inner_calls(call, seconds)
    shortest = max(CLOCK_STEPS * clock_step(), min(SHORTEST_SAMPLE, seconds / FEWEST))
    inner = 1
    while true
        taken = elapsed(call, inner)
        taken > LONG_CALL * seconds && return inner, taken
        taken = min(taken, elapsed(call, inner))
        (taken >= shortest || inner >= 1 << 30) && return inner, taken
        inner *= 2
    end
end

function stationary(window)
    half = length(window) ÷ 2
    before, after = median(window[1:half]), median(window[half+1:end])
    return abs(after - before) <= DRIFT * before
end

function warm_up(sample, seconds)
    recent, spent, count = Float64[], 0.0, 0
    while spent < WARMUP_BLOCKS * seconds
        push!(recent, sample())
        spent += recent[end]
        count += 1
        length(recent) > WINDOW && popfirst!(recent)
        length(recent) == WINDOW && stationary(recent) && return count, true
    end
    return count, length(recent) >= FEWEST && stationary(recent)
end

answer(samples, inner, warmup_calls, stationary, cores) =
    Dict{String,Any}("samples" => samples, "inner" => inner, "warmup_calls" => warmup_calls,
        "stationary" => stationary, "cores" => cores)

function looped_calls(call, seconds)
    first_cores, (inner, first) = busy(() -> inner_calls(call, seconds))
    first > LONG_CALL * seconds && return answer([first], 1, 0, true, first_cores)
    warmup, settled = warm_up(() -> elapsed(call, inner), seconds)
    count = clamp(round(Int, seconds / max(first, 1e-9)), FEWEST, MOST)
    cores, samples = busy(() -> [elapsed(call, inner) for _ in 1:count])
    return answer(samples ./ inner, inner, 2 * (2inner - 1) + warmup * inner, settled, cores)
end

function cold_calls(call, seconds)
    elsewhere = zeros(FLUSHED)
    call()
    samples, spent = Float64[], 0.0
    cores, _ = busy() do
        while isempty(samples) || (spent < seconds && length(samples) < COLD_CALLS)
            elsewhere .+= 1
            push!(samples, elapsed(call, 1))
            spent += samples[end]
        end
    end
    return answer(samples, 1, 0, true, cores)
end

# Control kernels: fixed work beside each block, by which a slow machine is told from slow code.
const SOURCE, TARGET = ones(1 << 18), zeros(1 << 18)
const MATRIX, PRODUCT = ones(Float32, 96, 96), zeros(Float32, 96, 96)
const KERNELS = Dict{String,Function}(
    "copy" => () -> copyto!(TARGET, SOURCE),
    "products" => () -> mul!(PRODUCT, MATRIX, MATRIX),
    "loop" => () -> foldl(xor, hash(i) for i in 1:5_000),
)

best(kernel) = minimum(_ -> (start = time_ns(); kernel(); (time_ns() - start) * 1e-9), 1:6)

# --- messages ------------------------------------------------------------------------------------

mutable struct Session
    work::Union{Work,Nothing}
    inputs::Dict{String,Any}
    cotangents::Vector{Any}
    changes::Int
    idle::Union{Int,Nothing}
end

const SESSION = Session(nothing, Dict(), [], 0, nothing)

function call_of(phase)
    SESSION.work === nothing && error("no case is prepared")
    return phases(SESSION.work)[phase]
end

load_all(paths) = Dict{String,Any}(String(name) => load(path) for (name, path) in paths)

function save_all(arrays, folder)
    mkpath(folder)
    return Dict(name => save(joinpath(folder, replace(name, ":" => "-") * ".npy"), array)
                for (name, array) in arrays)
end

"""Make inputs that differ a little from all before; integers are rolled."""
changed(inputs, index) = Dict{String,Any}(
    name => eltype(array) == Int64 ? reshape(circshift(vec(array), index), size(array)) :
            array .* eltype(array)(1 + 1e-3 * index)
    for (name, array) in inputs)

"""Return a size of this process in bytes, as Linux tells it; elsewhere it is unknown."""
function status(field)
    isfile("/proc/self/status") || return nothing
    found = match(Regex("$field:\\s*(\\d+)"), read("/proc/self/status", String))
    return found === nothing ? nothing : parse(Int, found[1]) * 1024
end

function hello(message)
    BLAS.set_num_threads(message["threads"])
    DEVICE[] = message["device"]
    if DEVICE[] == "cuda"
        @eval using CUDA, cuDNN
        @eval CUDA.math_mode!(CUDA.PEDANTIC_MATH)  # no TF32
    end
    try
        write("/proc/self/clear_refs", "5")  # sets the recorded peak back to the present size
    catch
    end
    SESSION.idle = status("VmRSS")
    return Dict(
        "version" => string(pkgversion(Flux)), "python" => "Julia $VERSION",
        "details" => Dict("threads" => Threads.nthreads(), "BLAS" => BLAS.get_num_threads(),
            "NNlib" => string(pkgversion(NNlib)), "Zygote" => string(pkgversion(Zygote))),
        "devices" => DEVICE[] == "cuda" && @eval(CUDA.functional()) ? ["cpu", "cuda"] : ["cpu"])
end

function prepare(message)
    forget(message)
    SESSION.work = Work(message["case"])
    SESSION.inputs = load_all(message["arrays"])
    feed!(SESSION.work, SESSION.inputs, [])
    inference(SESSION.work)  # what fails should fail here
    names = collect(keys(phases(SESSION.work)))
    notes = message["case"]["op"] == "batch_norm" ? ["Flux's formula, not its layer"] : String[]
    all(SESSION.work.wanted) || push!(notes, "computes all gradients, also those not asked for")
    return Dict("phases" => names, "looped" => names, "joint" => false, "precision" => nothing,
        "notes" => notes)
end

function feed(message)
    SESSION.inputs = load_all(message["arrays"])
    SESSION.cotangents = Any[load(path) for path in message["cotangents"]]
    feed!(SESSION.work, SESSION.inputs, SESSION.cotangents)
    return Dict()
end

function check(message)
    phase = message["phase"]
    found = read_arrays(SESSION.work, phase, call_of(phase)())
    return Dict("arrays" => save_all(found, message["folder"]))
end

function time_block(message)
    controls = Dict(name => best(kernel) for (name, kernel) in KERNELS)
    call, seconds = call_of(message["phase"]), message["seconds"]
    timed = get(message, "cold", false) ? cold_calls : looped_calls
    GC.gc()  # now rather than while the clock runs
    return merge(timed(call, seconds), Dict("controls" => controls, "units" => 1))
end

function repeat_calls(message)
    phase, folder = message["phase"], message["folder"]
    call = call_of(phase)
    elapsed(call, message["calls"] - 1)
    found = read_arrays(SESSION.work, phase, call())
    return Dict("arrays" => folder === nothing ? Dict() : save_all(found, folder))
end

function read_costs(message)
    phase = message["phase"]
    call, work = call_of(phase), SESSION.work
    both, reading, copying = Inf, Inf, Inf
    for _ in 1:message["count"]
        settle()
        start = time_ns()
        result = call()
        read_arrays(work, phase, result)
        both = min(both, (time_ns() - start) * 1e-9)
        start = time_ns()
        found = read_arrays(work, phase, result)
        reading = min(reading, (time_ns() - start) * 1e-9)
        start = time_ns()
        KEPT[] = map(copy, collect(values(found)))
        copying = min(copying, (time_ns() - start) * 1e-9)
    end
    return Dict("read" => both, "reading" => reading, "copying" => copying)
end

function fresh_costs(message)
    phase = message["phase"]
    call, work = call_of(phase), SESSION.work
    times = [Inf, Inf]
    for _ in 1:message["count"]
        SESSION.changes += 1
        feed!(work, changed(SESSION.inputs, SESSION.changes), SESSION.cotangents)
        for turn in 1:2
            start = time_ns()
            read_arrays(work, phase, call())
            times[turn] = min(times[turn], (time_ns() - start) * 1e-9)
        end
    end
    feed!(work, SESSION.inputs, SESSION.cotangents)
    return Dict("fresh" => times[1], "again" => times[2])
end

function cores(message)
    call = call_of(message["phase"])
    loop() = elapsed(call, message["calls"])
    return Dict("cores" => [busy(loop)[1] for _ in 1:message["count"]])
end

function memory(message)
    elapsed(call_of(message["phase"]), 3)
    peak = status("VmHWM")
    known = peak !== nothing && SESSION.idle !== nothing
    return Dict("allocator" => nothing, "resident" => known ? max(0, peak - SESSION.idle) : nothing)
end

own_tool(message) = Dict("seconds" => nothing)  # Flux has none

function forget(message)
    SESSION.work = nothing
    SESSION.inputs, SESSION.cotangents = Dict(), []
    GC.gc()
    return Dict()
end

const MESSAGES = Dict{String,Function}(
    "hello" => hello,
    "prepare" => prepare,
    "feed" => feed,
    "check" => check,
    "time" => time_block,
    "repeat" => repeat_calls,
    "read" => read_costs,
    "fresh" => fresh_costs,
    "cores" => cores,
    "memory" => memory,
    "own_tool" => own_tool,
    "forget" => forget,
)

function complaint(error)
    message = first(sprint(showerror, error), 2000)
    kind = error isa Unsupported ? "unsupported" :
           error isa OutOfMemoryError || occursin(r"out of (GPU )?memory"i, message) ? "oom" :
           "failed"
    kind == "failed" && println(stderr, message)
    return Dict("complaint" => kind, "message" => message)
end

for line in eachline(stdin)
    message = JSON3.read(line, Dict{String,Any})
    message["do"] == "bye" && break
    found = try
        haskey(MESSAGES, message["do"]) || throw(Unsupported("no message $(message["do"])"))
        Base.invokelatest(MESSAGES[message["do"]], message)
    catch error
        complaint(error)
    end
    println(ANSWERS, JSON3.write(found))
    flush(ANSWERS)
end
