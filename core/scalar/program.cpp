// core/scalar/program.cpp -- the pipeline: extract, derive, lower, schedule, slots, encode.
#include "program.h"

#include <algorithm>
#include <chrono>
#include <numeric>

#include "../errors.h"
#include "../locks.h"
#include "derive.h"
#include "loops.h"
#include "lower.h"
#include "schedule.h"
#include "slots.h"
#include "traits.h"
#include "uniform.h"

namespace tapegrad {
namespace {

/// Times the passes, one after the other.
class Stopwatch {
   public:
    explicit Stopwatch(ProgramStats& stats) : stats_(stats) {}
    void lap(const char* pass) {
        auto now = Clock::now();
        stats_.passes.emplace_back(pass, std::chrono::duration<double>(now - last_).count());
        last_ = now;
    }

   private:
    using Clock = std::chrono::steady_clock;
    ProgramStats& stats_;
    Clock::time_point last_ = Clock::now();
};

/// The part of a graph that some nodes depend on, as a graph of its own.
struct Extract {
    Graph graph;
    std::vector<NodeId> now;  ///< node of `graph` per node of the original, or no_node
};

/// Copies live nodes; instead of a loop whose twin is live, too, the twin, which does all that it
/// does.
class Copier {
   public:
    Copier(Graph& to, const Graph& source, const std::vector<char>& live)
        : to_(to), source_(source), live_(live) {}

    NodeId copy(NodeId id, std::span<const NodeId> operands) {
        const Node& node = source_.node(id);
        if (node.op() == Op::loop)
            if (const NodeId twin = twin_of(source_, id);
                twin != no_node && twin < live_.size() && live_[twin]) {
                replaced_.insert(id);
                return to_.copy(source_, twin, operands);
            }
        if (node.op() == Op::projection && replaced_.contains(node.a))
            return operands[0] + 1 + twin_result(source_.loop_of(node.a), node.b);
        return to_.copy(source_, id, operands);
    }

   private:
    Graph& to_;
    const Graph& source_;
    const std::vector<char>& live_;
    std::unordered_set<NodeId> replaced_;
};

/// `room` says how many times as many nodes will be in the graph.
Extract extract(const Graph& source, std::span<const NodeId> roots, std::size_t room = 1) {
    Extract out;
    NodeId top = 0;
    for (NodeId id : roots) top = std::max(top, id + 1);
    std::vector<char> live(top, false);
    for (NodeId id : roots) live[id] = true;
    std::size_t count = 0;
    bool plain = top == source.size() && source.is_growing();
    for (NodeId id = top; id-- > 0;)
        if (live[id]) {
            ++count;
            for (NodeId operand : source.operands(id)) live[operand] = true;
            plain &= source.op(id) != Op::loop && !source.is_placeholder(id);
        }
    if (plain && count == top) {  // all of it: a fifth of what copying node by node takes
        out.graph = source.copy(count * room);
        out.now.resize(top);
        std::iota(out.now.begin(), out.now.end(), NodeId{0});
        return out;
    }
    out.graph.reserve(count * room);
    out.now.assign(top, no_node);
    std::vector<NodeId> operands;
    Copier copier(out.graph, source, live);
    for (NodeId id = 0; id < top; ++id) {
        if (!live[id]) continue;
        operands.clear();
        for (NodeId operand : source.operands(id)) operands.push_back(out.now[operand]);
        out.now[id] = copier.copy(id, operands);
        out.graph.copy_place(out.now[id], source, id);
    }
    return out;
}

/// What the user calls the k-th input of the extracted graph.
std::string name_of_input(const Graph& source, const Extract& part, std::uint32_t k) {
    const std::string& name = part.graph.input_name(k);
    if (!name.empty()) return "'" + name + "'";
    std::uint32_t place = 0;
    for (NodeId id : source.inputs()) {
        if (id < part.now.size() && part.now[id] == part.graph.inputs()[k]) break;
        ++place;
    }
    return std::to_string(place);
}

bool fits_narrow(const Lowered& lowered, std::uint32_t slots) {
    if (slots > 0xffff) return false;
    return std::all_of(lowered.instructions.begin(), lowered.instructions.end(),
                       [](const Instruction& i) { return i.n <= 0xffff && i.m <= 0xffff; });
}

std::vector<NodeId> translate(const Extract& part, std::span<const NodeId> ids) {
    std::vector<NodeId> out;
    for (NodeId id : ids) out.push_back(part.now[id]);
    return out;
}

/// Per input of the extracted graph its place among the program's `inputs`.
std::vector<std::uint32_t> positions_of(const Graph& source, const Extract& part,
                                        std::span<const NodeId> inputs) {
    // Inputs of the extracted graph are the live ones, in the order of the original.
    std::vector<std::uint32_t> position(part.graph.inputs().size(), no_slot);
    for (std::uint32_t i = 0; i < inputs.size(); ++i)
        if (inputs[i] < part.now.size() && part.now[inputs[i]] != no_node)
            position[part.graph.node(part.now[inputs[i]]).a] = i;
    for (std::uint32_t k = 0; k < position.size(); ++k)
        if (position[k] == no_slot)
            throw CompileError("compile: the outputs, `wrt` or frozen branches need input " +
                               name_of_input(source, part, k) +
                               ", which is not among `inputs`; add it there");
    return position;
}

std::vector<NodeId> conditions(std::span<const Guard> guards) {
    std::vector<NodeId> out;
    for (const Guard& guard : guards) out.push_back(guard.condition);
    return out;
}

std::vector<NodeId> joined(std::span<const NodeId> a, std::span<const NodeId> b) {
    std::vector<NodeId> out(a.begin(), a.end());
    out.insert(out.end(), b.begin(), b.end());
    return out;
}

/// Appends the derivatives of `outputs` to them, row by row.
std::vector<NodeId> with_derivatives(Graph& graph, std::span<const NodeId> outputs,
                                     std::span<const NodeId> wrt) {
    std::vector<NodeId> targets(outputs.begin(), outputs.end());
    for (const auto& row : derive(graph, outputs, wrt))
        targets.insert(targets.end(), row.begin(), row.end());
    return targets;
}

/// Per value, whether it is one number for all lanes: constants, and shared inputs of a pinned
/// program.
std::vector<char> uniform_values(const Lowered& lowered, const std::vector<char>* shared) {
    std::vector<char> out(lowered.values, false);
    for (const SlotValue& constant : lowered.constants) out[constant.slot] = true;
    for (std::size_t k = 0; shared && k < shared->size(); ++k)
        if (lowered.inputs[k] != no_value) out[lowered.inputs[k]] = (*shared)[k];
    return out;
}

/// The kernel of an instruction of a pinned program.
std::uint16_t pinned_kernel(const Lowered& lowered, const Instruction& i,
                            const std::vector<char>& uniform) {
    std::uint32_t bits = 0;
    for (std::uint32_t k = 0; k < std::min<std::uint32_t>(i.words, uniform_operands); ++k)
        if (uniform[lowered.operands[i.operands + k]]) bits |= 1u << k;
    return with_uniform(i.kernel, i.words, bits);
}

/// The trait that term `term` has in all instructions of a run.
Trait trait_in_run(const Lowered& lowered, std::span<const std::uint32_t> run, const Terms& terms,
                   int term, const std::vector<char>& uniform) {
    const auto all = [&](auto holds) {
        return std::all_of(run.begin(), run.end(), [&](std::uint32_t i) {
            return holds(lowered.operands.data() + lowered.instructions[i].operands);
        });
    };
    const int first = terms.place(term), last = terms.place(term + 1) - 1;
    const ValueId value =
        lowered.operands[lowered.instructions[run[0]].operands + static_cast<std::uint32_t>(last)];
    if (uniform[value] && all([&](const ValueId* each) { return each[last] == value; }))
        return trait_constant;
    const auto is_square = [&](const ValueId* each) { return each[first] == each[last]; };
    return terms.is_product(term) && all(is_square) ? trait_square : trait_none;
}

std::uint32_t traits_in_run(const Lowered& lowered, std::span<const std::uint32_t> run,
                            const std::vector<char>& uniform) {
    const Terms terms = terms_of(lowered.instructions[run[0]].kernel);
    std::uint32_t traits = 0;
    for (int term = 0; run.size() > 1 && term < terms.count; ++term)
        traits += trait_weight(term) * trait_in_run(lowered, run, terms, term, uniform);
    return traits;
}

/// Instructions for each one that machine code has to leave to a kernel: with fewer of them, runs
/// of kernels are faster.
constexpr std::size_t instructions_per_function = 20;

}  // namespace

std::shared_ptr<const Program> Program::compile(const Graph& graph, std::span<const NodeId> outputs,
                                                std::span<const NodeId> wrt, bool with_gradient,
                                                std::span<const NodeId> inputs) {
    return make(graph, outputs, wrt, with_gradient, inputs,
                {graph.guards().begin(), graph.guards().end()});
}

std::shared_ptr<Program> Program::make(const Graph& graph, std::span<const NodeId> outputs,
                                       std::span<const NodeId> wrt, bool with_gradient,
                                       std::span<const NodeId> inputs, std::vector<Guard> guards,
                                       const std::vector<char>* pinned) {
    std::shared_ptr<Program> program(new Program());
    Stopwatch watch(program->stats_);

    // Gradients take two to four times the nodes; room for all would leave the cache too soon.
    Extract part =
        extract(graph, joined(joined(outputs, wrt), conditions(guards)), with_gradient ? 3 : 1);
    program->roots_ = translate(part, outputs);
    program->wrt_ = translate(part, wrt);
    for (Guard& guard : guards) guard.condition = part.now[guard.condition];
    program->guards_ = std::move(guards);
    program->source_ = part.graph.compact();
    program->source_positions_ = positions_of(graph, part, inputs);
    for (NodeId id : inputs) program->input_names_.push_back(graph.input_name(graph.node(id).a));
    watch.lap("extract");

    Expanded nodes{std::move(part.graph), program->roots_, program->source_positions_};
    if (with_gradient) {
        nodes.targets = with_derivatives(nodes.graph, program->roots_, program->wrt_);
        watch.lap("derive");
    }
    nodes.targets = joined(nodes.targets, conditions(program->guards_));
    program->values_ = static_cast<std::uint32_t>(outputs.size());
    program->derivatives_ = static_cast<std::uint32_t>(wrt.size());

    const Lowered lowered = lower(nodes.graph, nodes.targets, nodes.positions,
                                  static_cast<std::uint32_t>(inputs.size()));
    watch.lap("lower");
    const Schedule order = schedule(lowered);
    watch.lap("schedule");
    const Slots slots = allocate_slots(lowered, order, pinned);
    if (pinned) program->lifetimes_ = tapegrad::lifetimes(lowered, order);
    watch.lap("slots");
    program->encode(lowered, order, slots, pinned);
    watch.lap("encode");
    return program;
}

std::shared_ptr<const Program> Program::restore(const Graph& graph, std::span<const NodeId> targets,
                                                std::uint32_t values, std::uint32_t derivatives,
                                                std::span<const NodeId> inputs,
                                                std::vector<Guard> guards) {
    auto program = make(graph, targets, {}, false, inputs, std::move(guards));
    program->values_ = values;
    program->derivatives_ = derivatives;
    return program;
}

Opened Program::open() const { return open(roots_, wrt_); }

Opened Program::open(std::span<const NodeId> roots, std::span<const NodeId> wrt) const {
    Extract part = extract(source_, joined(roots, wrt));
    auto graph = std::make_shared<Graph>(std::move(part.graph));
    graph->show_all();
    // The source has the live inputs only, in their order; the program takes all of them.
    std::vector<NodeId> inputs(input_names_.size(), no_node);
    for (std::uint32_t k = 0; k < source_positions_.size(); ++k) {
        const NodeId id = source_.inputs()[k];
        if (id < part.now.size() && part.now[id] != no_node)
            inputs[source_positions_[k]] = part.now[id];
    }
    for (std::size_t i = 0; i < inputs.size(); ++i)
        if (inputs[i] == no_node) inputs[i] = graph->input(input_names_[i]);
    return {graph, inputs, translate(part, roots), translate(part, wrt)};
}

std::shared_ptr<const Program> Program::guard_program() const {
    const Opened guards = open(conditions(guards_), {});
    return make(*guards.graph, guards.outputs, {}, false, guards.inputs, {});
}

std::shared_ptr<const Program> Program::pinned(const std::vector<char>& shared) const {
    if (!guards_.empty() || !loops_.empty() || !customs_.empty()) return nullptr;
    const Opened nodes = open();
    const auto made =
        make(*nodes.graph, nodes.outputs, nodes.wrt, !nodes.wrt.empty(), nodes.inputs, {}, &shared);
    return made->code_.wide ? nullptr : made;
}

std::shared_ptr<const Program> Program::assembled(const Target& target,
                                                  std::size_t most_bytes) const {
    if (recorded_.empty()) return nullptr;
    auto made = assemble(code_, runs(), recorded_, target, most_bytes);
    if (!made) return nullptr;
    std::shared_ptr<Program> program(new Program());
    program->executable_ = std::move(made->code);
    program->pieces_ = std::move(made->pieces);
    program->constants_ = std::move(made->constants);
    program->inputs_ = std::move(made->inputs);
    program->outputs_ = std::move(made->outputs);
    program->slots_ = program->total_slots_ = made->slots;
    program->values_ = values_;
    program->derivatives_ = derivatives_;
    program->stats_ = stats_;
    program->view();
    program->code_.machine = reinterpret_cast<void (*)(void*)>(
        reinterpret_cast<std::uintptr_t>(program->executable_.begin()));
    program->code_.machine_bytes = target.vector_bytes();
    return program;
}

const Derived& Program::derived(const std::string& key,
                                const std::function<Derived()>& make) const {
    if (const Derived* found = find_derived(key)) return *found;
    auto made = make();
    std::lock_guard lock(lock_of(this));
    return derived_.try_emplace(key, std::move(made)).first->second;
}

const Derived* Program::find_derived(const std::string& key) const {
    std::lock_guard lock(lock_of(this));
    const auto found = derived_.find(key);
    return found == derived_.end() ? nullptr : &found->second;
}

std::uint32_t Program::round_slots() const {
    std::uint32_t most = 0;
    for (const auto& body : bodies_)
        most = std::max(most, body->bodies_.empty() ? body->slots_ : body->round_slots());
    return most;
}

const Custom* Program::calls() const {
    if (!customs_.empty()) return customs_[0].get();
    for (const auto& body : bodies_)
        if (const Custom* custom = body->calls()) return custom;
    return nullptr;
}

Expanded Program::expanded() const {
    const std::vector<NodeId> guards = conditions(guards_);
    Extract part = extract(source_, joined(joined(roots_, wrt_), guards));
    std::vector<NodeId> targets = translate(part, roots_);
    if (!wrt_.empty()) targets = with_derivatives(part.graph, targets, translate(part, wrt_));
    targets = joined(targets, translate(part, guards));
    Extract live = extract(part.graph, targets);
    Expanded out{std::move(live.graph), translate(live, targets), {}};
    // Both extracts keep the order of inputs, and the second may leave some out.
    for (std::uint32_t k = 0; k < source_positions_.size(); ++k) {
        const NodeId id = part.graph.inputs()[k];
        if (id < live.now.size() && live.now[id] != no_node)
            out.positions.push_back(source_positions_[k]);
    }
    return out;
}

void Program::encode(const Lowered& lowered, const Schedule& schedule, const Slots& slots,
                     const std::vector<char>* pinned) {
    slots_ = total_slots_ = slots.count;
    for (const SlotValue& constant : lowered.constants)
        constants_.push_back({slots.of[constant.slot], constant.value});
    for (ValueId input : lowered.inputs)
        inputs_.push_back(input == no_value ? no_slot : slots.of[input]);
    for (ValueId output : lowered.outputs) outputs_.push_back(slots.of[output]);
    for (std::size_t i = 0, first = outputs_.size() - guards_.size(); i < guards_.size(); ++i)
        guard_slots_.push_back({outputs_[first + i], guards_[i].taken, &guards_[i]});
    outputs_.resize(outputs_.size() - guards_.size());
    encode_loops(lowered);
    const bool narrow = fits_narrow(lowered, slots.count);
    const std::uint32_t max_count = pinned ? 1 : narrow ? 0xffff : 0xffffffff;
    const std::vector<char> uniform = uniform_values(lowered, pinned);
    words_.reserve(lowered.operands.size() + lowered.instructions.size() * 4);
    for (const RunSpan& span : schedule.runs) {
        const std::span run(schedule.order.data() + span.first, span.count);
        const std::uint32_t traits = narrow && !pinned ? traits_in_run(lowered, run, uniform) : 0;
        for (std::uint32_t k = 0; k < span.count; ++k) {
            const Instruction& i = lowered.instructions[run[k]];
            const std::uint16_t kernel = pinned ? pinned_kernel(lowered, i, uniform) : i.kernel;
            if (k % max_count == 0)
                begin_run(kernel, i, span.independent, traits, std::min(max_count, span.count - k));
            for (std::uint32_t r = 0; r < (has_row(i.kernel) ? 1 : i.results); ++r)
                words_.push_back(slots.of[i.first_result + r]);
            // The y of softmax_vjp are in a row: their first slot stands for all.
            const bool in_row = i.kernel == static_cast<int>(Op::softmax_vjp);
            for (std::uint32_t w = 0; w < i.words; ++w)
                if (!in_row || w == 0 || w >= i.n)
                    words_.push_back(slots.of[lowered.operands[i.operands + w]]);
        }
    }
    if (narrow) {
        narrow_.assign(words_.begin(), words_.end());
        words_ = {};
    }
    if (!pinned) keep_order(lowered, schedule);
    stats_.live_nodes = lowered.live_nodes;
    stats_.instructions = static_cast<std::uint32_t>(lowered.instructions.size());
    stats_.runs = static_cast<std::uint32_t>(schedule.runs.size());
    stats_.work += stats_.instructions;
    view();
}

/// Machine code is made later, if at all, and wants the order of the graph.
void Program::keep_order(const Lowered& lowered, const Schedule& schedule) {
    for (const Instruction& i : lowered.instructions) {
        if (is_arithmetic(i.kernel)) continue;
        if (!can_be_called(i.kernel)) return;
        ++functions_;
    }
    if (!guards_.empty() || functions_ * instructions_per_function > lowered.instructions.size())
        return;
    std::vector<std::uint32_t> place(schedule.base.size());
    for (std::uint32_t p = 0; p < place.size(); ++p) place[schedule.base[p]] = p;
    recorded_.reserve(place.size());
    for (std::uint32_t i : schedule.order) recorded_.push_back(place[i]);
}

void Program::encode_loops(const Lowered& lowered) {
    for (const Loop* loop : lowered.loops) {
        const Program& body = *loop->body;
        bodies_.push_back(loop->body);
        tables_.push_back(loop->table);
        loops_.push_back({loop->count, loop->carried, loop->shared(), loop->stepped, loop->outputs,
                          static_cast<std::uint32_t>(loop->operands()), loop->columns(),
                          loop->table ? static_cast<std::uint32_t>(loop->table->rows()) : 0,
                          loop->table ? loop->table->values.data() : nullptr, loop->backward,
                          &body.code()});
        total_slots_ = std::max(total_slots_, slots_ + body.total_slots());
        stats_.work += loop->count * body.stats().work;
    }
    customs_ = lowered.customs;
    for (const auto& custom : customs_)
        custom_codes_.push_back({custom->operands,
                                 [](const void* self, const CustomCall& call) {
                                     static_cast<const Custom*>(self)->call(call);
                                 },
                                 custom.get()});
}

void Program::begin_run(std::uint16_t kernel, const Instruction& first, bool independent,
                        std::uint32_t traits, std::uint32_t count) {
    const RunForm form = count == 1    ? run_alone
                         : traits      ? run_traits
                         : independent ? run_independent
                                       : run_dependent;
    words_.push_back(kernel + form * std::uint32_t{kernel_count});
    if (form != run_alone) words_.push_back(count);
    if (form == run_traits) words_.push_back(traits);
    if (!is_open(kernel)) return;
    words_.push_back(first.n);
    words_.push_back(first.m);
}

void Program::view() {
    auto size = [](const auto& vector) { return static_cast<std::uint32_t>(vector.size()); };
    const bool wide = narrow_.empty();
    const void* begin = wide ? static_cast<const void*>(words_.data()) : narrow_.data();
    const void* end = wide ? static_cast<const void*>(words_.data() + words_.size())
                           : narrow_.data() + narrow_.size();
    code_ = {begin,
             end,
             wide,
             loops_.data(),
             custom_codes_.data(),
             constants_.data(),
             size(constants_),
             inputs_.data(),
             size(inputs_),
             outputs_.data(),
             size(outputs_),
             slots_,
             guard_slots_.data(),
             size(guard_slots_),
             calls() != nullptr,
             nullptr,
             0};
}

std::vector<Run> Program::runs() const {
    std::vector<Run> out;
    const auto word = [&](std::size_t at) { return code_.wide ? words_[at] : narrow_[at]; };
    const std::size_t end = code_.wide ? words_.size() : narrow_.size();
    for (std::size_t at = 0; at < end;) {
        const std::size_t start = at;
        Run run{word(at) % kernel_count, static_cast<RunForm>(word(at) / kernel_count), 1, 0, 0, 0};
        ++at;
        if (run.form != run_alone) run.count = word(at++);
        if (run.form == run_traits) ++at;
        if (is_open(run.kernel)) {
            run.n = word(at);
            run.m = word(at + 1);
            at += 2;
        }
        run.header = static_cast<std::uint32_t>(at - start);
        at += std::size_t{run.count} * record_words(run, code_);
        out.push_back(run);
    }
    return out;
}

}  // namespace tapegrad
