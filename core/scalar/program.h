// core/scalar/program.h -- a compiled graph: code, where its values live, what it was made from.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "graph.h"
#include "kernels.h"

namespace tapegrad {

/// What compile() saw and made, for explain().
struct ProgramStats {
    std::uint32_t live_nodes = 0;
    std::uint32_t instructions = 0;
    std::vector<std::pair<std::string, double>> passes;  ///< name and seconds
};

/// Immutable once made; any number of threads may run it.
class Program {
   public:
    /// Outputs, then row by row the derivatives of each with respect to `wrt`. `inputs` are the
    /// graph inputs in the order the program takes them. Does not change the graph.
    static std::shared_ptr<const Program> compile(const Graph& graph,
                                                  std::span<const NodeId> outputs,
                                                  std::span<const NodeId> wrt, bool with_gradient,
                                                  std::span<const NodeId> inputs);

    const Code& code() const { return code_; }
    const ProgramStats& stats() const { return stats_; }
    /// Slots with those that bodies of loops need behind them.
    std::uint32_t total_slots() const { return total_slots_; }
    std::size_t code_bytes() const {
        return narrow_.size() * sizeof(std::uint16_t) + words_.size() * sizeof(std::uint32_t);
    }
    /// The runs of the stream, for explain().
    std::vector<Run> runs() const;
    std::uint32_t values() const { return values_; }            ///< how many outputs are values
    std::uint32_t derivatives() const { return derivatives_; }  ///< per value

   private:
    Program() = default;
    void encode(const struct Lowered& lowered, const struct Schedule& schedule,
                const struct Slots& slots);
    void begin_run(const struct Instruction& first, bool independent, std::uint32_t count);
    void view();

    std::vector<std::uint16_t> narrow_;  ///< the stream, if 16 bits do
    std::vector<std::uint32_t> words_;   ///< else
    std::vector<SlotValue> constants_;
    std::vector<std::uint32_t> inputs_, outputs_;
    std::vector<LoopCode> loops_;
    std::vector<std::shared_ptr<const Program>> bodies_;
    std::uint32_t slots_ = 0, total_slots_ = 0;
    std::uint32_t values_ = 0, derivatives_ = 0;
    Code code_{};
    ProgramStats stats_;
};

}  // namespace tapegrad
