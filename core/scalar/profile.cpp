// core/scalar/profile.cpp -- where the time of an evaluation goes, run by run.
#include "profile.h"

#include <algorithm>
#include <chrono>
#include <limits>

namespace tapegrad {
namespace {

using Clock = std::chrono::steady_clock;

template <class Body>
double seconds_of(Body body) {
    const auto start = Clock::now();
    body();
    return std::chrono::duration<double>(Clock::now() - start).count();
}

/// Every run of a program's stream as code of its own.
std::vector<Code> cut(const Program& program) {
    std::vector<Code> out;
    Code piece = program.code();
    piece.guard_count = 0;  // conditions are there at the end only
    auto* at = static_cast<const char*>(piece.begin);
    for (const Run& run : program.runs()) {
        const std::size_t words =
            run.header + std::size_t{run.count} * record_words(run, program.code());
        piece.begin = at;
        at += words * (piece.wide ? sizeof(std::uint32_t) : sizeof(std::uint16_t));
        piece.end = at;
        out.push_back(piece);
    }
    return out;
}

}  // namespace

template <class T>
Profile profile(const Runner<T>& runner, const InputRows<T>* inputs, std::size_t rows,
                std::size_t repeats) {
    const Program& program = runner.program();
    const Code& code = program.code();
    const int width = rows == 1 ? 1 : runner.width_for(rows, 1);
    typename Runner<T>::Lease workspace(runner, width);
    const auto fill = [&] {
        for (std::uint32_t i = 0; i < code.input_count; ++i)
            if (code.inputs[i] != no_slot)
                for (int lane = 0; lane < width; ++lane)
                    workspace->slot(code.inputs[i])[lane] =
                        inputs[i].data[static_cast<std::ptrdiff_t>(
                                           std::min(static_cast<std::size_t>(lane), rows - 1)) *
                                       inputs[i].stride];
    };
    const auto run = [&](const Code& piece) {
        if (width == 1)
            kernels<T>().single(piece, workspace->slots());
        else
            kernels<T>().lanes(piece, workspace->slots(), width);
    };
    Code nothing = code;
    nothing.end = nothing.begin;
    nothing.guard_count = 0;

    const std::vector<Code> pieces = cut(program);
    const std::vector<Run> runs = program.runs();
    constexpr double never = std::numeric_limits<double>::infinity();
    Profile out{{}, never, width};
    double clock = never;
    for (const Run& each : runs) out.runs.push_back({each, never});
    for (std::size_t repeat = 0; repeat < std::max<std::size_t>(repeats, 1); ++repeat) {
        fill();
        out.seconds = std::min(out.seconds, seconds_of([&] { run(code); }));
        fill();
        for (std::size_t i = 0; i < pieces.size(); ++i) {
            clock = std::min(clock, seconds_of([&] { run(nothing); }));
            out.runs[i].seconds =
                std::min(out.runs[i].seconds, seconds_of([&] { run(pieces[i]); }));
        }
    }
    for (RunTime& each : out.runs) each.seconds = std::max(each.seconds - clock, 0.0);
    return out;
}

template Profile profile(const Runner<double>&, const InputRows<double>*, std::size_t, std::size_t);
template Profile profile(const Runner<float>&, const InputRows<float>*, std::size_t, std::size_t);

}  // namespace tapegrad
