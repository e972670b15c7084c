// core/scalar/loops.h -- loops as nodes: how one is recorded, and the bodies of its derivatives.
//
// 1. A loop of many rounds is recorded as a loop of blocks, each a loop of rounds, as deep as it
//    takes for no level to have more than `limit` rounds. Code and compile time then hardly depend
//    on the length.
// 2. The derivative of a loop is a loop over the same rounds from the last to the first, whose body
//    is the body's own derivative. It needs the carried values of all rounds: the loop's twin gives
//    them as results. At every level these are `limit` rounds at most, and those of the levels
//    within are computed again: that is checkpointing, and follows from 1 without further rules.
//    A twin does all that its loop does, so lowering computes both at once.
// 3. What has an adjoint in a round, or moves, is what has one in the steps written out: 0 times an
//    infinite slope is NaN, so an adjoint of 0 will not do where there is none. A derivative is cut
//    into loops of rounds that are alike: often the round where the results are, or the start, and
//    the others. What changes again and again is joined: there an adjoint of 0 wins (derive.h).
// 4. Everything is nodes, so loops have derivatives of any order, forward and reverse.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "graph.h"

namespace tapegrad {

/// What a loop is made of, before it is known how its rounds are arranged.
struct Rounds {
    std::shared_ptr<const Program> body;
    std::uint32_t carried, stepped, outputs;
    std::shared_ptr<const Table> table;  ///< or none
    std::uint32_t limit;                 ///< rounds of one level
};

/// Operands of a loop, by kind.
struct LoopOperands {
    std::vector<NodeId> carried, shared, stepped;
    NodeId start = no_node;  ///< the table's first row; with a table only
};

/// Records `count` rounds, the first of which is step `first`; the results are those of a loop.
std::vector<NodeId> record_rounds(Graph& graph, const Rounds& rounds, std::uint32_t count,
                                  LoopOperands operands, std::uint32_t first = 0);

/// The body of a step function that was recorded in `graph` with placeholders as its arguments.
/// What it takes from around it, other than constants, becomes an input behind the first `carried`
/// ones, and a node in `shared`; what does not depend on arguments is computed outside.
std::shared_ptr<const Program> close_body(const Graph& graph, std::span<const NodeId> arguments,
                                          std::size_t carried, std::span<const NodeId> outputs,
                                          std::vector<NodeId>& shared);

LoopOperands split(const Loop& loop, std::span<const NodeId> operands);
std::vector<NodeId> join(const LoopOperands& operands);

/// The loop that gives the carried values at the start of each round besides what `loop` gives.
Loop storing(const Loop& loop);
/// The node of a loop's twin, or no_node if nobody recorded it.
NodeId twin_of(const Graph& graph, NodeId id);
/// Which result of the twin is result `k` of the loop.
inline std::uint32_t twin_result(const Loop& loop, std::uint32_t k) {
    return k < loop.carried ? k : k + (k - loop.carried) / loop.outputs * loop.carried;
}
/// What a round takes.
inline std::span<const NodeId> operands_of(const Loop& loop, const LoopOperands& operands,
                                           std::uint32_t round) {
    return std::span(operands.stepped).subspan(std::size_t{round} * loop.stepped, loop.stepped);
}
/// The row of the table that a round reads, or no_node without a table.
NodeId row_of(Graph& graph, const Loop& loop, const LoopOperands& operands, std::uint32_t round);
/// Result `k` of round `round`.
inline NodeId result_of(const Loop& loop, NodeId header, std::uint32_t round, std::uint32_t k) {
    return header + 1 + loop.carried + round * loop.outputs + k;
}

/// Which parts of a loop a derivative has to do with, as marks: each is a Mask (derive.h), `absent`
/// for what has no adjoint, or stands still. Reverse mode takes those of `shared` and `stepped` as
/// what to give adjoints of, and gives their masks.
struct LoopPattern {
    std::vector<char> carried, shared, stepped;
    std::vector<char> outputs;  ///< of a round; what reverse mode takes, and forward mode gives
};

/// Neighbouring rounds of a derivative.
struct LoopPart {
    Loop loop;            ///< the derivative's
    std::uint32_t first;  ///< round of what it is the derivative of, the least of its rounds
    LoopPattern taken, given;
};

/// Reverse mode: carries adjoints of the carried values and sums of those of `shared`; shared: as
/// before; per round: carried values, operands, adjoints of `outputs`. A round gives adjoints of
/// `stepped`. `outputs` has the marks of all rounds. The last rounds are the first part.
std::vector<LoopPart> pulling(const Loop& loop, const LoopPattern& pattern,
                              std::span<const char> outputs);
/// Forward mode: carries values and their tangents; shared and operands of rounds are followed by
/// the tangents of those in the pattern. A round gives the tangents of its results. `stepped` has
/// the marks of all rounds.
std::vector<LoopPart> pushing(const Loop& loop, const LoopPattern& pattern,
                              std::span<const char> stepped);

}  // namespace tapegrad
