// Factorisations of matrices [..., rows, columns] of float32 or float64, computed by the host in
// double precision. Batches are those of the first operand. Results lie beside it.
#pragma once

#include <cstdint>
#include <vector>

#include "common/tensor.h"

namespace menagerie::host {

// L with L L^T = a, of whose lower triangle it is made, and in a second tensor [...] of int32 the
// order of the first leading part that is not positive definite, 0 if all are. `check`: fails there
// instead.
std::vector<Tensor> cholesky(const Tensor& a, bool check);

// L and U in one matrix with P a = L U, the int32 row (from 1) that each step exchanged with its
// own, and the int32 number of the first pivot that is zero, 0 if none is. `check`: fails there.
std::vector<Tensor> lu_factor(const Tensor& a, bool check);

// For each row of P a the row of a that it is: int64 [..., rows].
Tensor lu_permutation(const Tensor& pivots, int64_t rows);

// x with a x = b for a triangular a; `unit`: its diagonal counts as ones.
Tensor solve_triangular(const Tensor& a, const Tensor& b, bool upper, bool unit);

// R above reflectors and, in a second tensor, their factors (LAPACK's geqrf).
std::vector<Tensor> qr_factor(const Tensor& a);
// The first columns of the product of such reflectors, as many as `a` has (LAPACK's orgqr).
Tensor householder_product(const Tensor& a, const Tensor& factors);

// Eigenvalues of symmetric matrices, ascending, and eigenvectors as columns.
std::vector<Tensor> eigh(const Tensor& a);
// U [rows, r], descending singular values [r], and V^T [r, columns], r the smaller size.
std::vector<Tensor> svd(const Tensor& a);

}  // namespace menagerie::host
