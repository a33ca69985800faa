#include "common/linear_algebra.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <span>
#include <utility>

#include "common/copy.h"
#include "common/dtype.h"
#include "common/error.h"
#include "common/host_operators.h"

namespace menagerie::host {
namespace {

// A view of a matrix whose rows lie one after another.
struct Matrix {
  double* first;
  int64_t rows, columns;

  double& operator()(int64_t row, int64_t column) const { return first[row * columns + column]; }
  void exchange_rows(int64_t a, int64_t b) const {
    std::swap_ranges(first + a * columns, first + (a + 1) * columns, first + b * columns);
  }
  void exchange_columns(int64_t a, int64_t b) const {
    for (int64_t row = 0; row < rows; ++row) std::swap((*this)(row, a), (*this)(row, b));
  }
};

// All matrices of a tensor, in double precision and contiguous.
struct Matrices {
  Tensor values;

  explicit Matrices(const Tensor& tensor)
      : values(empty_contiguous(Dtype::kFloat64, tensor.sizes())) {
    require(tensor.dimensions >= 2 &&
                (tensor.dtype == Dtype::kFloat32 || tensor.dtype == Dtype::kFloat64),
            "matrices of float32 or float64 are wanted, not ", tensor);
    assign(tensor, values);
  }
  explicit Matrices(std::span<const int64_t> sizes)
      : values(empty_contiguous(Dtype::kFloat64, sizes)) {
    fill_zero(values);
  }
  int64_t rows() const { return values.size[values.dimensions - 2]; }
  int64_t columns() const { return values.size[values.dimensions - 1]; }
  int64_t smaller() const { return std::min(rows(), columns()); }
  int64_t count() const {
    const auto batches = values.sizes().first(values.sizes().size() - 2);
    return std::accumulate(batches.begin(), batches.end(), int64_t{1}, std::multiplies<>());
  }
  Matrix at(int64_t number) const {
    return {values.data<double>() + number * rows() * columns(), rows(), columns()};
  }
  // Return the sizes of the batches, followed by `others`.
  std::vector<int64_t> batches_and(std::initializer_list<int64_t> others) const {
    std::vector<int64_t> sizes(values.sizes().begin(), values.sizes().end() - 2);
    sizes.insert(sizes.end(), others);
    return sizes;
  }
};

Tensor rounded(const Tensor& wide, const Tensor& like) {
  Tensor out = empty_beside(like, like.dtype, wide.sizes());
  assign(wide, out);
  return out;
}

void require_square(const Matrices& a, const Tensor& given) {
  require(a.rows() == a.columns(), "the matrices must be square, not ", given);
}

// Fail if an element is NaN: LAPACK's iterations do not converge then either.
void require_numbers(const Matrices& a, const char* what) {
  const std::span<const double> all(a.values.data<double>(), a.values.elements());
  require(std::none_of(all.begin(), all.end(), [](double each) { return std::isnan(each); }), what,
          " does not converge: an element of the matrix is NaN");
}

// Factor a; return the order, from 1, of its first leading part not positive definite, or 0.
int32_t factor_cholesky(const Matrix& a) {
  for (int64_t j = 0; j < a.columns; ++j) {
    for (int64_t i = j; i < a.rows; ++i) {
      double rest = a(i, j);
      for (int64_t k = 0; k < j; ++k) rest -= a(i, k) * a(j, k);
      if (i == j && !(rest > 0)) {  // LAPACK leaves what is below and behind unchanged
        a(j, j) = rest;
        for (int64_t column = j; column < a.columns; ++column) {
          for (int64_t row = 0; row < column; ++row) a(row, column) = 0;
        }
        return static_cast<int32_t>(j + 1);
      }
      a(i, j) = i == j ? std::sqrt(rest) : rest / a(j, j);
    }
    for (int64_t i = 0; i < j; ++i) a(i, j) = 0;
  }
  return 0;
}

// Factor a; return the first step, from 1, whose pivot is zero, or 0.
int32_t factor_lu(const Matrix& a, int32_t* pivots) {
  int32_t singular = 0;
  for (int64_t k = 0; k < std::min(a.rows, a.columns); ++k) {
    int64_t largest = k;
    for (int64_t i = k + 1; i < a.rows; ++i) {
      if (std::abs(a(i, k)) > std::abs(a(largest, k))) largest = i;
    }
    pivots[k] = static_cast<int32_t>(largest + 1);
    if (a(largest, k) == 0) {
      if (singular == 0) singular = static_cast<int32_t>(k + 1);
      continue;
    }
    if (largest != k) a.exchange_rows(largest, k);
    for (int64_t i = k + 1; i < a.rows; ++i) {
      const double factor = a(i, k) /= a(k, k);
      for (int64_t j = k + 1; j < a.columns; ++j) a(i, j) -= factor * a(k, j);
    }
  }
  return singular;
}

// Set b to (1 - factor v v^T) b from row `column` on; v is one in that row and continues as that
// column of `reflectors` below its diagonal.
void reflect(const Matrix& reflectors, int64_t column, double factor, const Matrix& b,
             int64_t first_column) {
  for (int64_t j = first_column; j < b.columns; ++j) {
    double sum = b(column, j);
    for (int64_t i = column + 1; i < b.rows; ++i) sum += reflectors(i, column) * b(i, j);
    sum *= factor;
    b(column, j) -= sum;
    for (int64_t i = column + 1; i < b.rows; ++i) b(i, j) -= reflectors(i, column) * sum;
  }
}

void factor_qr(const Matrix& a, double* factors) {
  for (int64_t k = 0; k < std::min(a.rows, a.columns); ++k) {
    double below = 0;
    for (int64_t i = k + 1; i < a.rows; ++i) below = std::hypot(below, a(i, k));
    factors[k] = 0;
    if (below == 0) continue;
    const double head = a(k, k);
    const double turned = -std::copysign(std::hypot(head, below), head);
    factors[k] = (turned - head) / turned;
    for (int64_t i = k + 1; i < a.rows; ++i) a(i, k) /= head - turned;
    reflect(a, k, factors[k], a, k + 1);
    a(k, k) = turned;
  }
}

// Rotate columns p and q so that they are orthogonal, and those of `along` by the same angle.
// Return whether they were not orthogonal yet.
bool turn_columns(const Matrix& a, const Matrix& along, int64_t p, int64_t q) {
  double pp = 0, qq = 0, pq = 0;
  for (int64_t i = 0; i < a.rows; ++i) {
    pp += a(i, p) * a(i, p);
    qq += a(i, q) * a(i, q);
    pq += a(i, p) * a(i, q);
  }
  if (!(std::abs(pq) > 1e-15 * std::sqrt(pp * qq))) return false;
  const double slope = (qq - pp) / (2 * pq);
  const double tangent = std::copysign(1 / (std::abs(slope) + std::hypot(1.0, slope)), slope);
  const double cosine = 1 / std::hypot(1.0, tangent);
  const double sine = cosine * tangent;
  for (const Matrix& each : {a, along}) {
    for (int64_t i = 0; i < each.rows; ++i) {
      const double left = each(i, p), right = each(i, q);
      each(i, p) = cosine * left - sine * right;
      each(i, q) = sine * left + cosine * right;
    }
  }
  return true;
}

constexpr int kSweeps = 60;  // of rotations; they converge quadratically, in fewer than ten

// Compute a V = U S by one-sided Jacobi rotations (Hestenes); a, with rows >= columns, becomes U S.
void turn_until_orthogonal(const Matrix& a, const Matrix& v) {
  for (int64_t i = 0; i < v.rows; ++i) v(i, i) = 1;
  for (int sweep = 0; sweep < kSweeps; ++sweep) {
    bool turned = false;
    for (int64_t p = 0; p < a.columns; ++p) {
      for (int64_t q = p + 1; q < a.columns; ++q) turned = turn_columns(a, v, p, q) || turned;
    }
    if (!turned) return;
  }
}

// Replace column k of u by a unit vector orthogonal to the columns before it.
void complete_column(const Matrix& u, int64_t k) {
  for (int64_t axis = 0; axis < u.rows; ++axis) {
    for (int64_t i = 0; i < u.rows; ++i) u(i, k) = i == axis ? 1 : 0;
    for (int round = 0; round < 2; ++round) {
      for (int64_t j = 0; j < k; ++j) {
        double along = 0;
        for (int64_t i = 0; i < u.rows; ++i) along += u(i, j) * u(i, k);
        for (int64_t i = 0; i < u.rows; ++i) u(i, k) -= along * u(i, j);
      }
    }
    double length = 0;
    for (int64_t i = 0; i < u.rows; ++i) length = std::hypot(length, u(i, k));
    if (length < 1e-6) continue;
    for (int64_t i = 0; i < u.rows; ++i) u(i, k) /= length;
    return;
  }
}

// Turn U S in `a` into U, and its lengths into the singular values, in descending order.
void part_lengths(const Matrix& a, const Matrix& v, double* values) {
  for (int64_t j = 0; j < a.columns; ++j) {
    values[j] = 0;
    for (int64_t i = 0; i < a.rows; ++i) values[j] = std::hypot(values[j], a(i, j));
  }
  // hypot of an infinity and NaN is infinite, but rotations of infinities leave no lengths.
  if (!std::all_of(values, values + a.columns, [](double each) { return std::isfinite(each); })) {
    const double none = std::numeric_limits<double>::quiet_NaN();
    std::fill_n(values, a.columns, none);
    std::fill_n(a.first, a.rows * a.columns, none);
    return;
  }
  for (int64_t j = 0; j < a.columns; ++j) {
    const int64_t largest = std::max_element(values + j, values + a.columns) - values;
    std::swap(values[j], values[largest]);
    a.exchange_columns(j, largest);
    v.exchange_columns(j, largest);
    if (values[j] > values[0] * 1e-15) {
      for (int64_t i = 0; i < a.rows; ++i) a(i, j) /= values[j];
    } else {
      complete_column(a, j);
    }
  }
}

}  // namespace

std::vector<Tensor> cholesky(const Tensor& a, bool check) {
  const Matrices factors(a);
  require_square(factors, a);
  const Tensor info = empty_beside(a, Dtype::kInt32, factors.batches_and({}));
  for (int64_t i = 0; i < factors.count(); ++i) {
    const int32_t fault = info.data<int32_t>()[i] = factor_cholesky(factors.at(i));
    require(!check || fault == 0, "the matrix is not positive definite: its leading part of order ",
            fault, " is not");
  }
  return {rounded(factors.values, a), info};
}

std::vector<Tensor> lu_factor(const Tensor& a, bool check) {
  const Matrices factors(a);
  const Tensor pivots = empty_beside(a, Dtype::kInt32, factors.batches_and({factors.smaller()}));
  const Tensor info = empty_beside(a, Dtype::kInt32, factors.batches_and({}));
  for (int64_t i = 0; i < factors.count(); ++i) {
    const int32_t fault = info.data<int32_t>()[i] =
        factor_lu(factors.at(i), pivots.data<int32_t>() + i * factors.smaller());
    require(!check || fault == 0, "the matrix is singular: pivot ", fault, " is zero");
  }
  return {rounded(factors.values, a), pivots, info};
}

Tensor lu_permutation(const Tensor& pivots, int64_t rows) {
  require(pivots.dimensions >= 1 && pivots.dtype == Dtype::kInt32, "pivots are int32, not ",
          pivots);
  const Tensor steps = menagerie::contiguous(pivots);
  std::vector<int64_t> sizes(pivots.sizes().begin(), pivots.sizes().end());
  const int64_t length = std::exchange(sizes.back(), rows);
  const Tensor out = empty_beside(pivots, Dtype::kInt64, sizes);
  const int64_t count = rows == 0 ? 0 : out.elements() / rows;
  for (int64_t i = 0; i < count; ++i) {
    int64_t* row = out.data<int64_t>() + i * rows;
    std::iota(row, row + rows, int64_t{0});
    for (int64_t k = 0; k < length; ++k) {
      const int64_t other = steps.data<int32_t>()[i * length + k] - 1;
      require(k < rows && other >= 0 && other < rows, "pivot ", other + 1, " is not a row of ",
              rows);
      std::swap(row[k], row[other]);
    }
  }
  return out;
}

Tensor solve_triangular(const Tensor& a, const Tensor& b, bool upper, bool unit) {
  const Matrices triangles(a), solved(b);
  require_square(triangles, a);
  require(triangles.rows() == solved.rows() && triangles.count() == solved.count(),
          "the matrices do not fit: ", a, " and ", b);
  for (int64_t number = 0; number < solved.count(); ++number) {
    const Matrix t = triangles.at(number), x = solved.at(number);
    for (int64_t step = 0; step < t.rows; ++step) {
      const int64_t i = upper ? t.rows - 1 - step : step;
      const int64_t begin = upper ? i + 1 : 0, end = upper ? t.rows : i;
      for (int64_t j = 0; j < x.columns; ++j) {
        double rest = x(i, j);
        for (int64_t k = begin; k < end; ++k) rest -= t(i, k) * x(k, j);
        x(i, j) = unit ? rest : rest / t(i, i);
      }
    }
  }
  return rounded(solved.values, a);
}

std::vector<Tensor> qr_factor(const Tensor& a) {
  const Matrices factored(a);
  const Tensor factors =
      empty_contiguous(Dtype::kFloat64, factored.batches_and({factored.smaller()}));
  for (int64_t i = 0; i < factored.count(); ++i) {
    factor_qr(factored.at(i), factors.data<double>() + i * factored.smaller());
  }
  return {rounded(factored.values, a), rounded(factors, a)};
}

Tensor householder_product(const Tensor& a, const Tensor& factors) {
  const Matrices reflectors(a);
  const Tensor wide = menagerie::contiguous(factors, Dtype::kFloat64);
  const int64_t steps = factors.dimensions == 0 ? 0 : factors.size[factors.dimensions - 1];
  require(steps <= reflectors.columns() && reflectors.columns() <= reflectors.rows() &&
              wide.elements() == steps * reflectors.count(),
          "the reflectors do not fit: ", a, " and ", factors);
  const Matrices product(a.sizes());
  for (int64_t number = 0; number < product.count(); ++number) {
    const Matrix q = product.at(number), v = reflectors.at(number);
    for (int64_t i = 0; i < q.columns; ++i) q(i, i) = 1;
    for (int64_t k = steps - 1; k >= 0; --k) {  // as in orgqr: a NaN does not reach earlier columns
      const double factor = wide.data<double>()[number * steps + k];
      reflect(v, k, factor, q, k + 1);
      q(k, k) = 1 - factor;
      for (int64_t i = k + 1; i < q.rows; ++i) q(i, k) = -factor * v(i, k);
    }
  }
  return rounded(product.values, a);
}

std::vector<Tensor> eigh(const Tensor& a) {
  const Matrices turned(a);
  require_square(turned, a);
  require_numbers(turned, "eigh");
  const int64_t order = turned.rows();
  const Matrices vectors(a.sizes());
  const Tensor values = empty_contiguous(Dtype::kFloat64, turned.batches_and({order}));
  for (int64_t number = 0; number < turned.count(); ++number) {
    // With a large enough diagonal no eigenvalue is negative, and rotations find a V = V diag.
    const Matrix m = turned.at(number), v = vectors.at(number);
    double shift = 0;
    for (int64_t i = 0; i < order; ++i) {
      double sum = 0;
      for (int64_t j = 0; j < order; ++j) sum += std::abs(m(i, j));
      shift = std::max(shift, sum);
    }
    for (int64_t i = 0; i < order; ++i) m(i, i) += shift;
    turn_until_orthogonal(m, v);
    double* found = values.data<double>() + number * order;
    part_lengths(m, v, found);
    for (int64_t j = 0; j < order; ++j) found[j] -= shift;
    std::reverse(found, found + order);
    for (int64_t j = 0; j < order / 2; ++j) v.exchange_columns(j, order - 1 - j);
  }
  return {rounded(values, a), rounded(vectors.values, a)};
}

std::vector<Tensor> svd(const Tensor& a) {
  const bool wide = a.dimensions >= 2 && a.size[a.dimensions - 2] < a.size[a.dimensions - 1];
  const Tensor tall = wide ? with_axis_moved(a, a.dimensions - 2, a.dimensions - 1) : a;
  const Matrices u(tall);
  require_numbers(u, "svd");
  const int64_t r = u.columns();
  const Matrices v(u.batches_and({r, r}));
  const Tensor values = empty_contiguous(Dtype::kFloat64, u.batches_and({r}));
  for (int64_t number = 0; number < u.count(); ++number) {
    turn_until_orthogonal(u.at(number), v.at(number));
    part_lengths(u.at(number), v.at(number), values.data<double>() + number * r);
  }
  const auto transposed = [&](const Tensor& matrix) {
    return with_axis_moved(matrix, a.dimensions - 2, a.dimensions - 1);
  };
  return {rounded(wide ? v.values : u.values, a), rounded(values, a),
          rounded(transposed(wide ? u.values : v.values), a)};
}

}  // namespace menagerie::host
