// core/scalar/objective.cpp -- values, gradients and squares of residuals, at points and over rows.
#include "objective.h"

#include <algorithm>
#include <numeric>

namespace tapegrad {

template <class T>
void Found<T>::hold_totals(std::size_t count) {
    totals.resize(count);
    order.resize(count);
    std::iota(order.begin(), order.end(), 0u);
    numbers = totals.data();
    places = order.data();
    lanes = 1;
}

template <class T>
void Objective<T>::run(const T* x, const Workspace<T>& workspace, Found<T>& found) const {
    const Code& code = runner_.program().code();
    const auto lanes = static_cast<std::size_t>(workspace.width());
    for (std::size_t i = 0; i < code.input_count; ++i)
        if (code.inputs[i] != no_slot)
            std::copy_n(x + i * lanes, lanes, workspace.slot(code.inputs[i]));
    if (lanes == 1)
        kernels<T>().single(code, workspace.slots());
    else
        kernels<T>().lanes(code, workspace.slots(), workspace.width());
    found.numbers = workspace.slots();
    found.places = code.outputs;
    found.lanes = lanes;
}

template <class T>
std::vector<InputRows<T>> Objective<T>::rows_at(const T* x) const {
    std::vector<InputRows<T>> out;
    for (std::size_t i = 0; i < inputs(); ++i) out.push_back({x + i, 0});
    out.insert(out.end(), data_->columns.begin(), data_->columns.end());
    return out;
}

template <class T>
void Objective<T>::scale(std::vector<T>& totals) const {
    if (!data_->mean) return;
    for (T& total : totals) total /= static_cast<T>(data_->rows);
}

template <class T>
void Objective<T>::evaluate(const T* x, const Workspace<T>& workspace, Found<T>& found) const {
    if (!data_) return run(x, workspace, found);
    const Code& code = runner_.program().code();
    found.hold_totals(code.output_count);
    runner_.sum_over_rows(rows_at(x).data(), data_->rows, threads_, found.totals,
                          [&](const RowBlock<T>& block, T* sums) {
                              for (std::size_t i = 0; i < code.output_count; ++i)
                                  add_rows(block.output(i), block.first, block.rows,
                                           sums + i * sum_lanes);
                          });
    scale(found.totals);
}

template <class T>
void Objective<T>::evaluate_squares(const T* x, const Workspace<T>& workspace,
                                    Found<T>& found) const {
    if (!data_) return run(x, workspace, found);
    const std::size_t k = runner_.program().values(), n = variables_.size();
    found.hold_totals(1 + n + n * (n + 1) / 2);
    const auto collect = [&](const RowBlock<T>& block, T* sums) {
        std::vector<const T*> slots;  // of the residuals, then of their slopes by each variable
        slots.reserve(k + k * n);
        for (std::size_t r = 0; r < k; ++r) slots.push_back(block.output(r));
        for (std::size_t i = 0; i < n; ++i)
            for (std::size_t r = 0; r < k; ++r) slots.push_back(block.output(k + r * n + i));
        const auto add = [&](std::size_t a, std::size_t b, std::size_t total) {
            add_products(&slots[a * k], &slots[b * k], k, block.first, block.rows,
                         sums + total * sum_lanes);
        };
        std::size_t total = 1 + n;
        add(0, 0, 0);
        for (std::size_t i = 1; i <= n; ++i) {
            add(i, 0, i);
            for (std::size_t j = 1; j <= i; ++j) add(i, j, total++);
        }
    };
    runner_.sum_over_rows(rows_at(x).data(), data_->rows, threads_, found.totals, collect);
    scale(found.totals);
}

template <class T>
double Objective<T>::unpack_totals(const std::vector<T>& totals, Numbers<double>& gradient,
                                   std::vector<double>& squares) const {
    const std::size_t n = variables_.size();
    std::copy_n(totals.begin() + 1, n, gradient.begin());
    std::size_t total = 1 + n;
    for (std::size_t i = 0; i < n; ++i)
        for (std::size_t j = 0; j <= i; ++j)
            squares[i * n + j] = squares[j * n + i] = static_cast<double>(totals[total++]);
    return 0.5 * static_cast<double>(totals[0]);
}

template <class T>
double Objective<T>::read_squares(const Found<T>& found, std::size_t lane,
                                  Numbers<double>& gradient, std::vector<double>& squares) const {
    const std::size_t k = runner_.program().values(), n = variables_.size();
    std::fill_n(gradient.begin(), n, 0.0);
    squares.assign(n * n, 0.0);
    if (data_) return unpack_totals(found.totals, gradient, squares);
    std::vector<double> row(n);
    double sum = 0;
    for (std::size_t r = 0; r < k; ++r) {
        const auto residual = static_cast<double>(found.at(r)[lane]);
        sum += residual * residual;
        for (std::size_t i = 0; i < n; ++i)
            row[i] = static_cast<double>(found.at(k + r * n + i)[lane]);
        for (std::size_t i = 0; i < n; ++i) {
            if (row[i] == 0) continue;  // many are: a residual depends on few variables
            gradient[i] += row[i] * residual;
            for (std::size_t j = 0; j <= i; ++j) squares[i * n + j] += row[i] * row[j];
        }
    }
    for (std::size_t i = 0; i < n; ++i)
        for (std::size_t j = 0; j < i; ++j) squares[j * n + i] = squares[i * n + j];
    return 0.5 * sum;
}

template struct Found<double>;
template struct Found<float>;
template class Objective<double>;
template class Objective<float>;

}  // namespace tapegrad
