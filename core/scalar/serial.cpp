// core/scalar/serial.cpp -- writes and reads the records that serial.h describes.
#include "serial.h"

#include <algorithm>
#include <bit>
#include <unordered_map>

#include "../errors.h"

namespace tapegrad {
namespace {

constexpr std::uint64_t flag_float = 1, flag_scalar = 2, flag_gradient = 4, flag_guards = 8,
                        flag_steps = 16, all_flags = 31;

/// Loops in loops: reading a body and running it recurse.
constexpr int max_depth = 16;

/// Results of rounds that all loops of a record may have together: they take no room in it, and
/// what a reader allocates has to have a bound.
constexpr std::uint64_t max_results = 1 << 22;

bool has_steps(const Loop& loop) { return loop.stepped || loop.outputs || loop.table; }

// ---- writing ----------------------------------------------------------------------------------

class Writer {
   public:
    void number(std::uint64_t value) {
        for (; value >= 128; value >>= 7) out_.push_back(static_cast<char>(value | 128));
        out_.push_back(static_cast<char>(value));
    }
    void text(std::string_view value) {
        number(value.size());
        out_.append(value);
    }
    void real(double value) {
        auto bits = std::bit_cast<std::uint64_t>(value);
        for (int i = 0; i < 8; ++i, bits >>= 8) out_.push_back(static_cast<char>(bits));
    }
    void program(const Program& program, int depth);
    std::string take() { return std::move(out_); }

    /// What programs within programs share.
    struct Shared {
        bool steps = false, guards = false;
        std::uint64_t results = 0;
        std::unordered_map<const Table*, std::uint32_t> tables;
    };
    explicit Writer(Shared& shared) : shared_(shared) {}

   private:
    void loop(const Loop& loop);
    void table(const Table* table);
    void guards(const Program& program, std::span<const NodeId> conditions);
    void operations(const Graph& graph);
    void bodies(const Graph& graph, int depth);
    void node(const Expanded& nodes, NodeId id);

    Shared& shared_;
    std::string out_;
    std::uint32_t op_number_[op_count] = {};
    std::unordered_map<const Program*, std::uint32_t> body_number_;
};

void Writer::operations(const Graph& graph) {
    bool used[op_count] = {};
    for (NodeId id = 0; id < graph.size(); ++id) used[static_cast<int>(graph.op(id))] = true;
    used[static_cast<int>(Op::projection)] = false;
    number(static_cast<std::uint64_t>(std::count(used, used + op_count, true)));
    std::uint32_t next = 0;
    for (int op = 0; op < op_count; ++op) {
        if (!used[op]) continue;
        op_number_[op] = next++;
        text(info(static_cast<Op>(op)).name);
    }
}

void Writer::bodies(const Graph& graph, int depth) {
    std::vector<const Program*> found;
    for (NodeId id = 0; id < graph.size(); ++id) {
        if (graph.op(id) != Op::loop) continue;
        const Program* body = graph.loop_of(id).body.get();
        const auto next = static_cast<std::uint32_t>(found.size());
        if (body_number_.try_emplace(body, next).second) found.push_back(body);
    }
    if (!found.empty() && depth == max_depth)
        throw FileError("save: loops are nested deeper than 16; unroll some of them");
    number(found.size());
    for (const Program* body : found) {
        Writer inner(shared_);
        inner.program(*body, depth + 1);
        out_ += inner.take();
    }
}

void Writer::node(const Expanded& nodes, NodeId id) {
    const Graph& graph = nodes.graph;
    const Op op = graph.op(id);
    if (op == Op::projection) return;
    number(op_number_[static_cast<int>(op)]);
    if (op == Op::input) return number(nodes.positions[graph.node(id).a]);
    if (op == Op::constant) return real(graph.constant_value(id));
    if (op == Op::loop) loop(graph.loop_of(id));
    if (op == Op::sumdot) number(graph.node(id).b);
    if (is_pooled(op)) number(graph.operands(id).size());
    for (NodeId operand : graph.operands(id)) number(id - operand);
}

void Writer::loop(const Loop& loop) {
    number(body_number_.at(loop.body.get()));
    number(loop.count);
    if (!shared_.steps) return;
    number(loop.carried);
    number(loop.stepped);
    number(loop.outputs);
    number(loop.backward);
    table(loop.table.get());
    shared_.results += loop.results();
    if (shared_.results > max_results)
        throw FileError(
            "save: loops have more than 4,194,304 results together; sum them up in carried values");
}

void Writer::table(const Table* table) {
    if (!table) return number(0);
    const auto next = static_cast<std::uint32_t>(shared_.tables.size());
    const auto [found, is_new] = shared_.tables.try_emplace(table, next);
    number(found->second + 1);
    if (!is_new) return;
    number(table->columns);
    number(table->rows());
    for (double value : table->values) real(value);
}

void Writer::guards(const Program& program, std::span<const NodeId> conditions) {
    number(conditions.size());
    for (std::size_t i = 0; i < conditions.size(); ++i) {
        const Guard& guard = program.guards()[i];
        number(conditions[i]);
        number(guard.taken);
        text(guard.text);
        text(guard.place);
    }
}

void Writer::program(const Program& program, int depth) {
    const Expanded nodes = program.expanded();
    const Graph& graph = nodes.graph;
    number(program.input_names().size());
    for (const std::string& name : program.input_names()) text(name);
    operations(graph);
    bodies(graph, depth);
    std::uint64_t count = 0;
    for (NodeId id = 0; id < graph.size(); ++id) count += graph.op(id) != Op::projection;
    number(count);
    for (NodeId id = 0; id < graph.size(); ++id) node(nodes, id);
    number(program.values());
    number(program.derivatives());
    const std::span<const NodeId> all = nodes.targets;
    const std::size_t results = all.size() - program.guards().size();
    for (NodeId target : all.first(results)) number(target);
    if (shared_.guards && depth == 0) guards(program, all.subspan(results));
}

/// Whether some loop, or one in its body, has more than carried and shared values.
bool any_steps(const Program& program) {
    const Graph graph = program.expanded().graph;
    for (NodeId id = 0; id < graph.size(); ++id) {
        if (graph.op(id) != Op::loop) continue;
        const Loop& loop = graph.loop_of(id);
        if (has_steps(loop) || any_steps(*loop.body)) return true;
    }
    return false;
}

// ---- reading ----------------------------------------------------------------------------------

[[noreturn]] void damaged(const std::string& what) {
    throw FileError("load: the program is damaged: " + what + "; save it again");
}

class Reader {
   public:
    explicit Reader(std::string_view record) : left_(record) {}

    /// A number below `limit`.
    std::uint64_t number(std::uint64_t limit, const char* what) {
        std::uint64_t value = 0;
        for (int shift = 0; shift < 64; shift += 7) {
            const std::uint8_t byte = take(1)[0];
            value |= std::uint64_t{byte & 127u} << shift;
            if (byte < 128) {
                if (value < limit) return value;
                break;
            }
        }
        damaged(std::string("expected ") + what + " below " + std::to_string(limit));
    }
    std::uint32_t index(std::size_t limit, const char* what) {
        return static_cast<std::uint32_t>(number(std::min<std::uint64_t>(limit, no_node), what));
    }
    /// How many items follow: each takes a byte or more.
    std::uint32_t count(const char* what) { return index(left_.size() + 1, what); }

    std::string text() {
        const std::uint32_t size = count("a length of text");
        const std::uint8_t* bytes = take(size);
        return {reinterpret_cast<const char*>(bytes), size};
    }
    double real() {
        const std::uint8_t* bytes = take(8);
        std::uint64_t bits = 0;
        for (int i = 8; i-- > 0;) bits = bits << 8 | bytes[i];
        return std::bit_cast<double>(bits);
    }
    std::size_t left() const { return left_.size(); }

   private:
    const std::uint8_t* take(std::size_t size) {
        if (size > left_.size()) damaged("it ends too early");
        const char* from = left_.data();
        left_.remove_prefix(size);
        return reinterpret_cast<const std::uint8_t*>(from);
    }

    std::string_view left_;
};

/// Text of unknown origin for a message.
std::string shown(std::string_view text) {
    std::string out(text.substr(0, 40));
    std::replace_if(out.begin(), out.end(), [](char c) { return c < ' ' || c > '~'; }, '?');
    return out;
}

Op op_named(const std::string& name) {
    for (int op = 0; op < op_count; ++op)
        if (info(static_cast<Op>(op)).name == name && static_cast<Op>(op) != Op::projection)
            return static_cast<Op>(op);
    throw FileError("load: no operation '" + shown(name) +
                    "' here; the program was saved by a newer tapegrad, install that");
}

/// Reads one program and, through others of its kind, the bodies of its loops.
class ProgramReader {
   public:
    /// What programs within programs share.
    struct Shared {
        bool steps, guards;
        std::uint64_t results = 0;
        std::vector<std::shared_ptr<const Table>> tables = {};
    };
    ProgramReader(Reader& in, int depth, Shared& shared)
        : in_(in), depth_(depth), shared_(shared) {}

    std::shared_ptr<const Program> read() {
        names_.resize(in_.count("inputs"));
        for (std::string& name : names_) name = in_.text();
        inputs_.assign(names_.size(), no_node);
        ops_.resize(in_.count("operations"));
        for (Op& op : ops_) op = op_named(in_.text());
        bodies_.resize(in_.count("loop bodies"));
        if (!bodies_.empty() && depth_ == max_depth) damaged("loops are nested deeper than 16");
        for (auto& body : bodies_) body = ProgramReader(in_, depth_ + 1, shared_).read();
        for (std::uint32_t count = in_.count("nodes"); count; --count) node();
        for (std::size_t i = 0; i < names_.size(); ++i)  // those that nothing depends on
            if (inputs_[i] == no_node) inputs_[i] = graph_.input(names_[i]);
        return targets();
    }

   private:
    void node() {
        const Op op = ops_[in_.index(ops_.size(), "an operation's number")];
        switch (op) {
            case Op::input:
                return push(input());
            case Op::constant:
                return push(graph_.constant(in_.real()));
            default:
                break;
        }
        if (is_pooled(op)) return pooled(op);
        operands(static_cast<std::uint32_t>(info(op).arity));
        push(graph_.as_it_is(op, operands_));
    }

    NodeId input() {
        const std::uint32_t place = in_.index(names_.size(), "an input's place");
        if (inputs_[place] != no_node) damaged("an input stands for two nodes");
        return inputs_[place] = graph_.input(names_[place]);
    }

    void pooled(Op op) {
        std::uint32_t plain = 0;
        Loop loop{};
        if (op == Op::custom) damaged("a function from outside cannot be in a file");
        if (op == Op::loop) loop = read_loop();
        if (op == Op::sumdot) plain = in_.index(Graph::max_arity, "plain terms");
        const std::uint32_t n = in_.count("operands");
        if (n == 0 || n > Graph::max_arity) damaged("an operation has no or too many operands");
        if (op == Op::sumdot && plain > n) damaged("a sum has fewer operands than terms");
        const bool paired = op == Op::dot || op == Op::sumdot || op == Op::softmax_vjp;
        if (paired && (n - plain) % 2) damaged("a pair has one operand");
        operands(n);
        switch (op) {
            case Op::softmax:
                return push_all(graph_.multi(op, operands_, n));
            case Op::softmax_vjp:
                check_softmax(n / 2);
                return push_all(graph_.multi(op, operands_, n / 2));
            case Op::loop:
                return push_all(graph_.loop(checked(loop), operands_));
            default:
                return push(graph_.nary(op, operands_, plain));
        }
    }

    Loop read_loop() {
        Loop loop{};
        loop.body = bodies_[in_.index(bodies_.size(), "a loop's body")];
        loop.count = in_.index(no_node, "a loop's rounds");
        loop.carried = loop.body->code().output_count;
        if (!shared_.steps) return loop;
        loop.carried = in_.index(Graph::max_arity, "carried values");
        loop.stepped = in_.index(Graph::max_arity, "operands of a round");
        loop.outputs = in_.index(Graph::max_arity, "results of a round");
        loop.backward = in_.number(2, "a direction");
        loop.table = table();
        return loop;
    }

    std::shared_ptr<const Table> table() {
        const std::uint32_t which = in_.index(shared_.tables.size() + 2, "a table's number");
        if (which == 0) return nullptr;
        if (which <= shared_.tables.size()) return shared_.tables[which - 1];
        const std::uint64_t columns = in_.count("columns"), rows = in_.count("rows");
        if (columns == 0 || rows > in_.left() / 8 / columns) damaged("a table ends too early");
        Table made{static_cast<std::uint32_t>(columns), std::vector<double>(columns * rows)};
        for (double& value : made.values) value = in_.real();
        shared_.tables.push_back(std::make_shared<const Table>(std::move(made)));
        return shared_.tables.back();
    }

    /// A loop that fits its body, its operands and its table.
    const Loop& checked(const Loop& loop) {
        const Code& code = loop.body->code();
        const std::uint64_t taken = std::uint64_t{loop.carried} + loop.stepped + loop.columns();
        const bool fits = taken <= code.input_count &&
                          std::uint64_t{loop.carried} + loop.outputs == code.output_count &&
                          !loop.body->derivatives() && loop.operands() == operands_.size() &&
                          (!loop.table || loop.table->rows() >= loop.count);
        if (!fits) damaged("a loop and its body do not fit");
        shared_.results += loop.results();
        if (shared_.results > max_results) damaged("loops have too many results");
        return loop;
    }

    /// The executors take the first half of softmax_vjp's operands for all results of one softmax.
    void check_softmax(std::uint32_t n) {
        const Node& first = graph_.node(operands_[0]);
        bool right = first.op() == Op::projection && graph_.op(first.a) == Op::softmax &&
                     graph_.operands(first.a).size() == n;
        for (std::uint32_t i = 0; i < n; ++i) right = right && operands_[i] == first.a + 1 + i;
        if (!right) damaged("a softmax_vjp does not start with the results of a softmax");
    }

    void operands(std::uint32_t n) {
        operands_.clear();
        for (; n; --n) {
            const std::uint32_t back = in_.index(now_.size() + 1, "a distance to an operand");
            if (back == 0) damaged("a node is its own operand");
            operands_.push_back(value(static_cast<std::uint32_t>(now_.size()) - back));
        }
    }

    /// The graph's node for one of the record; a node with several results is no value itself.
    NodeId value(std::uint32_t id) const {
        if (has_projections(graph_.op(now_[id]))) damaged("several results are taken for one");
        return now_[id];
    }

    void push(NodeId id) { now_.push_back(id); }
    void push_all(NodeId header) {
        for (std::uint32_t i = 0, n = graph_.results(header); i <= n; ++i) push(header + i);
    }

    std::shared_ptr<const Program> targets() {
        const std::uint64_t values = in_.count("values"), each = in_.count("derivatives");
        if (values == 0) damaged("it has no outputs");
        if (each + 1 > in_.left() / values) damaged("it ends too early");
        std::vector<NodeId> ids(values * (each + 1));
        for (NodeId& id : ids) id = value(in_.index(now_.size(), "an output's node"));
        return Program::restore(graph_, ids, static_cast<std::uint32_t>(values),
                                static_cast<std::uint32_t>(each), inputs_, guards());
    }

    std::vector<Guard> guards() {
        std::vector<Guard> found;
        if (!shared_.guards || depth_ > 0) return found;
        for (std::uint32_t count = in_.count("guards"); count; --count) {
            const NodeId condition = value(in_.index(now_.size(), "a condition's node"));
            const bool taken = in_.number(2, "a truth value");
            const std::string words = in_.text();
            found.push_back({condition, taken, words, in_.text()});
        }
        return found;
    }

    Reader& in_;
    int depth_;
    Shared& shared_;
    Graph graph_;
    std::vector<NodeId> now_;  ///< per node of the record, results of their own included
    std::vector<NodeId> inputs_, operands_;
    std::vector<std::string> names_;
    std::vector<Op> ops_;
    std::vector<std::shared_ptr<const Program>> bodies_;
};

}  // namespace

std::string write_record(const Saved& saved) {
    if (const Custom* custom = saved.program->calls())
        throw FileError("save: the program calls the Python function '" + custom->name +
                        "', which is no data; save what it is made of and record it again");
    Writer::Shared shared;
    shared.steps = any_steps(*saved.program);
    shared.guards = !saved.program->guards().empty();
    Writer out(shared);
    out.number((saved.is_float ? flag_float : 0) | (saved.scalar ? flag_scalar : 0) |
               (saved.with_gradient ? flag_gradient : 0) | (shared.guards ? flag_guards : 0) |
               (shared.steps ? flag_steps : 0));
    out.program(*saved.program, 0);
    for (std::int64_t input : saved.wrt_input) out.number(static_cast<std::uint64_t>(input + 1));
    return out.take();
}

Saved read_record(std::string_view record) {
    Reader in(record);
    const std::uint64_t flags = in.number(all_flags + 1, "flags");
    ProgramReader::Shared shared{(flags & flag_steps) != 0, (flags & flag_guards) != 0};
    Saved saved{ProgramReader(in, 0, shared).read(),
                (flags & flag_float) != 0,
                (flags & flag_scalar) != 0,
                (flags & flag_gradient) != 0,
                {}};
    const Program& program = *saved.program;
    if (saved.scalar && program.values() != 1) damaged("several outputs are given as one number");
    if (!saved.with_gradient && program.derivatives()) damaged("derivatives are not announced");
    for (std::uint32_t i = 0; i < program.derivatives(); ++i)
        saved.wrt_input.push_back(
            std::int64_t{in.index(program.input_names().size() + 1, "an input's number")} - 1);
    if (in.left()) damaged("something follows its end");
    return saved;
}

}  // namespace tapegrad
