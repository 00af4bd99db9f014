# SPDX-License-Identifier: BSD-3-Clause
"""
A test double of NVML's bindings for machines without a GPU: two GPUs in name
only, of which Dask and dask-cuda ask how many there are, and of what size.
Beside it lies a Device of cuda.core on which a context costs nothing.
"""
import os
import types

GPUS = 2
NVML_DEVICE_MIG_DISABLE, NVML_DEVICE_MIG_ENABLE = 0, 1


class NVMLError(Exception):
    pass


class NVMLError_NotSupported(NVMLError):
    pass


class NVMLError_NotFound(NVMLError):
    pass


class NVMLError_LibraryNotFound(NVMLError):
    pass


class NVMLError_DriverNotLoaded(NVMLError):
    pass


class NVMLError_Unknown(NVMLError):
    pass


def nvmlInit():
    pass


def nvmlSystemGetDriverVersion():
    return "580.0"


def nvmlDeviceGetCount():
    return GPUS


def nvmlDeviceGetHandleByIndex(index):
    if not 0 <= index < GPUS:
        raise NVMLError_NotFound(index)
    return index


def nvmlDeviceGetHandleByUUID(uuid):
    return int(str(uuid)[-1])


def nvmlDeviceGetIndex(gpu):
    return gpu


def nvmlDeviceGetUUID(gpu):
    return f"GPU-00000000-0000-0000-0000-00000000000{gpu}"


def nvmlDeviceGetName(gpu):
    return "a GPU in name only"


def nvmlDeviceGetMemoryInfo(gpu):
    return types.SimpleNamespace(total=16 << 30, used=0)


def nvmlDeviceGetUtilizationRates(gpu):
    return types.SimpleNamespace(gpu=0)


def nvmlDeviceGetComputeRunningProcesses(gpu):
    return []


def nvmlDeviceIsMigDeviceHandle(gpu):
    return False


def nvmlDeviceGetMigMode(gpu):
    raise NVMLError_NotSupported()


def nvmlDeviceGetCpuAffinity(gpu, words):
    mask = sum(1 << cpu for cpu in os.sched_getaffinity(0))
    return [mask >> 64 * word & (1 << 64) - 1 for word in range(words)]


def nvmlDeviceGetBAR1MemoryInfo(gpu):
    return types.SimpleNamespace(bar1Total=256 << 20)
