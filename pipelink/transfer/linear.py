"""Maps between bits: matrices over the field of two elements, as lists of columns.

A vector is an integer, its bits the coordinates; a matrix is the list of what the unit vectors come
to. Addition is exclusive or.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

Matrix = tuple[int, ...]


def times(matrix: Matrix, vector: int) -> int:
    result = 0
    for n, column in enumerate(matrix):
        if vector >> n & 1:
            result ^= column
    return result


def product(left: Matrix, right: Matrix) -> Matrix:
    return tuple(times(left, column) for column in right)


def plus(left: Matrix, right: Matrix) -> Matrix:
    return tuple(a ^ b for a, b in zip(left, right, strict=True))


def unit(size: int) -> Matrix:
    return tuple(1 << n for n in range(size))


def affine(of: Callable[[int], int], bits: int) -> tuple[Matrix, int] | None:
    """(matrix, constant) of a function on so many bits, if it is that."""
    constant = of(0)
    matrix = tuple(of(1 << n) ^ constant for n in range(bits))
    if all(of(v) == times(matrix, v) ^ constant for v in range(1 << bits)):
        return matrix, constant
    return None


def _reduced(vectors: Sequence[int]) -> tuple[list[tuple[int, int]], list[int]]:
    """Independent vectors of the same span, each with the set of given ones that it is the sum of, and
    the sets whose sum is zero."""
    basis: list[tuple[int, int]] = []
    zero = []
    for n, vector in enumerate(vectors):
        source = 1 << n
        for pivot, made in basis:
            if vector ^ pivot < vector:
                vector, source = vector ^ pivot, source ^ made
        if vector:
            basis.append((vector, source))
            basis.sort(reverse=True)
        else:
            zero.append(source)
    return basis, zero


def rank(matrix: Sequence[int]) -> int:
    return len(_reduced(matrix)[0])


def kernel(matrix: Matrix) -> list[int]:
    """Independent vectors that come to zero, as many as there are."""
    return _reduced(matrix)[1]


def extend(start: Sequence[int], candidates: Sequence[int]) -> list[int]:
    """Which of the candidates, by number, are independent of the start and of one another."""
    found, span = [], list(start)
    for n, candidate in enumerate(candidates):
        if rank([*span, candidate]) > rank(span):
            found.append(n)
            span.append(candidate)
    return found


def inverse(matrix: Matrix) -> Matrix | None:
    """The inverse of a square matrix."""
    size = len(matrix)
    basis, zero = _reduced(matrix)
    if zero or any(vector >> size for vector in matrix):
        return None
    found = []
    for n in range(size):
        left, source = 1 << n, 0
        for pivot, made in basis:
            if left ^ pivot < left:
                left, source = left ^ pivot, source ^ made
        found.append(source)
    return tuple(found)


def from_basis(vectors: Sequence[int], images: Sequence[int]) -> Matrix:
    """The matrix that takes each vector of a basis to its image."""
    back = inverse(tuple(vectors))
    assert back is not None, "a basis"
    return product(tuple(images), back)


def row(matrix: Matrix, bit: int) -> int:
    """The set of input bits whose sum is a bit of the result."""
    return sum((column >> bit & 1) << n for n, column in enumerate(matrix))
