# SPDX-License-Identifier: BSD-3-Clause
"""
A test double of CuPy for machines without a GPU, beside the double of NCCL.

It is not CuPy: its arrays are numpy's, in host memory, and there are two GPUs
in name only.  It has what examples/nccl_clique.py asks of CuPy, and refuses
what CuPy would: numpy does not take a "device" array by itself.
"""
import numpy

from . import cuda


class ndarray(numpy.ndarray):
    # Not "cupy": Dask would take it for the real one and look inside.
    __module__ = "double_of_cupy"

    @property
    def __cuda_array_interface__(self):
        return dict(self.__array_interface__, version=3)

    def __array_function__(self, function, types, args, kwargs):
        raise TypeError("Implicit conversion to a NumPy array is not allowed")


def asarray(values, dtype=None):
    if isinstance(values, ndarray) and dtype in (None, values.dtype):
        return values
    return numpy.array(values, dtype=dtype, order="C").view(ndarray)


def empty(shape, dtype=float):
    return numpy.full(shape, numpy.nan, dtype=dtype).view(ndarray)


def zeros(shape):
    return asarray(numpy.zeros(shape))


def empty_like(array):
    return empty(array.shape, array.dtype)


def asnumpy(array):
    if type(array) is numpy.ndarray:
        return array
    return array.view(numpy.ndarray).copy()
