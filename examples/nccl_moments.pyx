# SPDX-License-Identifier: BSD-3-Clause
# cython: language_level=3
"""
The function of nccl_moments.c for Python, by Cython. nccl_clique.py takes it
where this module is installed, and else calls the function by ctypes.

    cythonize nccl_moments.pyx
    gcc -shared -fPIC $(python3-config --includes) -o \
        nccl_moments$(python3-config --extension-suffix) \
        nccl_moments.c -L $CONDA_PREFIX/lib -lclique_moments
"""
from libc.stdint cimport uintptr_t

cdef extern from *:
    """
    int clique_moments(void *comm, int root, const double *sums,
                       double *all_sums, size_t n_sums, const double *products,
                       double *all_products, size_t n_products, void *stream,
                       int *ranks);
    """
    int _moments "clique_moments"(
        void *comm, int root, const double *sums, double *all_sums,
        size_t n_sums, const double *products, double *all_products,
        size_t n_products, void *stream, int *ranks) nogil


def clique_moments(uintptr_t comm, int root, uintptr_t sums,
                   uintptr_t all_sums, size_t n_sums, uintptr_t products,
                   uintptr_t all_products, size_t n_products,
                   uintptr_t stream):
    """Addresses go in; NCCL's result comes out."""
    cdef int ranks, result
    with nogil:
        result = _moments(<void *>comm, root, <const double *>sums,
                          <double *>all_sums, n_sums,
                          <const double *>products, <double *>all_products,
                          n_products, <void *>stream, &ranks)
    return result
