// core/scalar/objective.h -- what is minimised: a program's value, the sum of its values over rows,
// or half the sum of the squares of its values.
#pragma once

#include <cstdint>
#include <vector>

#include "aligned.h"
#include "runner.h"

namespace tapegrad {

/// Rows whose parts of the value are summed. The program's first inputs are the variables, the
/// others have a column each.
template <class T>
struct Data {
    std::vector<InputRows<T>> columns;
    std::size_t rows;
    bool mean;  ///< and not the sum
};

/// Numbers found at the points of a block: number i of a lane is at(i)[lane].
template <class T>
struct Found {
    const T* numbers = nullptr;             ///< slots of the program, or totals
    const std::uint32_t* places = nullptr;  ///< of number i, in lanes
    std::size_t lanes = 1;
    std::vector<T> totals;             ///< where they are sums over rows, of one lane
    std::vector<std::uint32_t> order;  ///< 0, 1, ...: the places of totals

    const T* at(std::size_t i) const { return numbers + places[i] * lanes; }
    /// Room for so many totals.
    void hold_totals(std::size_t count);
};

template <class T>
class Objective {
   public:
    /// `variables` are the inputs that the derivatives of each value are by. `data` may be null,
    /// and must live as long as this.
    Objective(const Runner<T>& runner, std::vector<std::uint32_t> variables, const Data<T>* data,
              int threads)
        : runner_(runner), variables_(std::move(variables)), data_(data), threads_(threads) {}

    const std::vector<std::uint32_t>& variables() const { return variables_; }
    bool has_data() const { return data_; }
    /// Numbers in a point.
    std::size_t inputs() const {
        return runner_.program().code().input_count - (data_ ? data_->columns.size() : 0);
    }

    /// Value and gradient at the points x, [input][lane]: numbers 0 and 1 + k.
    void evaluate(const T* x, const Workspace<T>& workspace, Found<T>& found) const;
    /// The same for least squares, as read_squares() reads it.
    void evaluate_squares(const T* x, const Workspace<T>& workspace, Found<T>& found) const;
    /// Half the sum of squares of one lane with its gradient and the matrix J'J, by rows.
    double read_squares(const Found<T>& found, std::size_t lane, Numbers<double>& gradient,
                        std::vector<double>& squares) const;

   private:
    void run(const T* x, const Workspace<T>& workspace, Found<T>& found) const;
    std::vector<InputRows<T>> rows_at(const T* x) const;
    void scale(std::vector<T>& totals) const;
    double unpack_totals(const std::vector<T>& totals, Numbers<double>& gradient,
                         std::vector<double>& squares) const;

    const Runner<T>& runner_;
    std::vector<std::uint32_t> variables_;
    const Data<T>* data_;
    int threads_;
};

}  // namespace tapegrad
