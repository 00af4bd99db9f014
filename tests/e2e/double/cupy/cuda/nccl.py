# SPDX-License-Identifier: BSD-3-Clause
"""cupy.cuda.nccl of CuPy 14 over the double of NCCL, through its C interface."""
import ctypes

from ._lib import lib

available = True


class UniqueId(ctypes.Structure):
    _fields_ = [("internal", ctypes.c_ubyte * 128)]


class NcclError(RuntimeError):
    def __init__(self, status):
        self.status = status
        super().__init__(lib.ncclGetErrorString(status).decode())

    def __reduce__(self):
        return type(self), (self.status,)


def check(status):
    if status:
        raise NcclError(status)


def get_version():
    version = ctypes.c_int()
    check(lib.ncclGetVersion(ctypes.byref(version)))
    return version.value


def get_unique_id():
    uid = UniqueId()
    check(lib.ncclGetUniqueId(ctypes.byref(uid)))
    return bytes(uid)


class NcclCommunicator:
    def __init__(self, ndev, commId, rank):
        if not isinstance(commId, bytes):
            raise TypeError("Argument 'commId' has incorrect type")
        handle = ctypes.c_void_p()
        check(lib.ncclCommInitRank(ctypes.byref(handle), ndev,
                                   UniqueId.from_buffer_copy(commId), rank))
        self.comm = handle.value

    def check_async_error(self):
        error = ctypes.c_int()
        check(lib.ncclCommGetAsyncError(ctypes.c_void_p(self.comm),
                                        ctypes.byref(error)))
        check(error.value)

    def end(self, call):
        if self.comm:
            call(ctypes.c_void_p(self.comm))
        self.comm = 0

    def destroy(self):
        self.end(lib.ncclCommDestroy)

    def abort(self):
        self.end(lib.ncclCommAbort)
