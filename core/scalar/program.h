// core/scalar/program.h -- a compiled graph: code, where its values live, what it was made from.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "assemble.h"
#include "graph.h"
#include "kernels.h"
#include "lifetimes.h"

namespace tapegrad {

/// What compile() saw and made, for explain().
struct ProgramStats {
    std::uint32_t live_nodes = 0;
    std::uint32_t instructions = 0;
    std::uint32_t runs = 0;
    double work = 0;  ///< instructions of an evaluation, all rounds of loops counted
    std::vector<std::pair<std::string, double>> passes;  ///< name and seconds
};

/// What a program computes, as nodes: its outputs with their derivatives.
struct Expanded {
    Graph graph;                           ///< nothing but what the targets need
    std::vector<NodeId> targets;           ///< values, row by row derivatives, then guards
    std::vector<std::uint32_t> positions;  ///< per input of the graph its place in the program
};

/// What a program was compiled from, as a graph to look at and to add to.
struct Opened {
    std::shared_ptr<Graph> graph;
    std::vector<NodeId> inputs, outputs;
    std::vector<NodeId> wrt;  ///< none where derivatives are among the outputs
};

/// A program that was made from another one.
struct Derived {
    std::shared_ptr<const Program> program;
    std::vector<char> marks;  ///< of its outputs, in the words of whoever made it
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
    /// The program of nodes that have their derivatives among them, in the order of Expanded.
    static std::shared_ptr<const Program> restore(const Graph& graph,
                                                  std::span<const NodeId> targets,
                                                  std::uint32_t values, std::uint32_t derivatives,
                                                  std::span<const NodeId> inputs,
                                                  std::vector<Guard> guards = {});

    /// The nodes it was compiled from. Derivatives are recorded anew: they have several times as
    /// many nodes as what they are derivatives of, which is all that a program keeps.
    Expanded expanded() const;
    /// What it was compiled from, without guards; all its inputs, used or not.
    Opened open() const;
    /// The conditions of the guards as outputs of a program of their own.
    std::shared_ptr<const Program> guard_program() const;
    std::span<const Guard> guards() const { return guards_; }
    /// The same program over slots that may lie in a caller's arrays: inputs and outputs have slots
    /// of their own, every instruction is a run, and inputs k with shared[k] are one number for all
    /// lanes. None for programs with loops, guards or functions from outside, and for those with
    /// more slots than 16 bits count.
    std::shared_ptr<const Program> pinned(const std::vector<char>& shared) const;
    /// Whether machine code is worth making of it: most of it is plain arithmetic.
    bool is_plain() const { return !recorded_.empty(); }
    /// Instructions that are not, and are left to kernels.
    std::uint32_t functions() const { return functions_; }
    /// The same program as machine code, or none (assemble.h).
    std::shared_ptr<const Program> assembled(const Target& target, std::size_t most_bytes) const;
    /// Of a pinned program.
    const Lifetimes& lifetimes() const { return lifetimes_; }
    /// A program that is made from this one, once per key: bodies of derivatives of loops.
    const Derived& derived(const std::string& key, const std::function<Derived()>& make) const;
    /// The same, or nullptr if it has not been made.
    const Derived* find_derived(const std::string& key) const;
    /// Names of the inputs, empty where they have none.
    const std::vector<std::string>& input_names() const { return input_names_; }
    const Code& code() const { return code_; }
    const ProgramStats& stats() const { return stats_; }
    /// Slots with those that bodies of loops need behind them.
    std::uint32_t total_slots() const { return total_slots_; }
    /// The most slots that a round of an innermost loop works in, 0 without loops.
    std::uint32_t round_slots() const;
    std::size_t code_bytes() const {
        if (executable_) return executable_.bytes();
        return narrow_.size() * sizeof(std::uint16_t) + words_.size() * sizeof(std::uint32_t);
    }
    /// The runs of the stream, for explain().
    std::vector<Run> runs() const;
    std::uint32_t values() const { return values_; }            ///< how many outputs are values
    std::uint32_t derivatives() const { return derivatives_; }  ///< per value
    /// A function from outside that it calls, or nullptr.
    const Custom* calls() const;

   private:
    Program() = default;
    static std::shared_ptr<Program> make(const Graph& graph, std::span<const NodeId> outputs,
                                         std::span<const NodeId> wrt, bool with_gradient,
                                         std::span<const NodeId> inputs, std::vector<Guard> guards,
                                         const std::vector<char>* pinned = nullptr);
    void keep_order(const struct Lowered& lowered, const struct Schedule& schedule);
    void encode_loops(const struct Lowered& lowered);
    Opened open(std::span<const NodeId> roots, std::span<const NodeId> wrt) const;
    void encode(const struct Lowered& lowered, const struct Schedule& schedule,
                const struct Slots& slots, const std::vector<char>* pinned);
    void begin_run(std::uint16_t kernel, const struct Instruction& first, bool independent,
                   std::uint32_t traits, std::uint32_t count);
    void view();

    std::vector<std::uint16_t> narrow_;    ///< the stream, if 16 bits do
    std::vector<std::uint32_t> words_;     ///< else
    std::vector<std::uint32_t> recorded_;  ///< per instruction its place before runs were made
    std::uint32_t functions_ = 0;
    Executable executable_;  ///< of an assembled program, instead of a stream
    std::vector<std::unique_ptr<Piece>> pieces_;
    std::vector<SlotValue> constants_;
    std::vector<std::uint32_t> inputs_, outputs_;
    std::vector<LoopCode> loops_;
    std::vector<std::shared_ptr<const Program>> bodies_;
    std::vector<std::shared_ptr<const Table>> tables_;
    std::vector<CustomCode> custom_codes_;
    std::vector<std::shared_ptr<const Custom>> customs_;
    std::vector<GuardSlot> guard_slots_;
    std::vector<Guard> guards_;  ///< conditions are nodes of `source_`
    std::uint32_t slots_ = 0, total_slots_ = 0;
    Lifetimes lifetimes_;
    std::uint32_t values_ = 0, derivatives_ = 0;
    Code code_{};
    ProgramStats stats_;
    Graph source_;               ///< what `roots_` and `wrt_` need, compact
    std::vector<NodeId> roots_;  ///< outputs; of a restored program its derivatives, too
    std::vector<NodeId> wrt_;    ///< what the derivatives are by; empty if they are roots
    std::vector<std::uint32_t> source_positions_;
    std::vector<std::string> input_names_;
    mutable std::map<std::string, Derived> derived_;
};

}  // namespace tapegrad
