# SPDX-License-Identifier: BSD-3-Clause
"""The double of libnccl.so.2, wherever the loader finds it."""
import ctypes

lib = ctypes.CDLL("libnccl.so.2")
lib.ncclGetErrorString.restype = ctypes.c_char_p
