// Factorisations of matrices [..., rows, columns] of float32 or float64, computed by the host in
// double precision. Batches are those of the first operand. Results are on its device.
#pragma once

#include <cstdint>
#include <vector>

#include "common/tensor.h"

namespace menagerie::host {

// Return L with L L^T = a, made of a's lower triangle, and a second tensor [...] of int32 with the
// order of the first leading part that is not positive definite, 0 if all are. With `check`, fail
// in that case.
std::vector<Tensor> cholesky(const Tensor& a, bool check);

// Return L and U in one matrix with P a = L U, the int32 row (from 1) that each step exchanged with
// its own, and the int32 number of the first zero pivot, or 0. With `check`, fail on one.
std::vector<Tensor> lu_factor(const Tensor& a, bool check);

// Return for each row of P a the row of a that it comes from: int64 [..., rows].
Tensor lu_permutation(const Tensor& pivots, int64_t rows);

// Solve a x = b for x with a triangular a; with `unit`, its diagonal counts as ones.
Tensor solve_triangular(const Tensor& a, const Tensor& b, bool upper, bool unit);

// Return R above the reflectors and, in a second tensor, their factors (LAPACK's geqrf).
std::vector<Tensor> qr_factor(const Tensor& a);
// Return the first columns of these reflectors' product, as many as `a` has (LAPACK's orgqr).
Tensor householder_product(const Tensor& a, const Tensor& factors);

// Return the ascending eigenvalues of symmetric matrices, and eigenvectors as columns.
std::vector<Tensor> eigh(const Tensor& a);
// Return U [rows, r], descending singular values [r], V^T [r, columns]; r is the smaller size.
std::vector<Tensor> svd(const Tensor& a);

}  // namespace menagerie::host
