/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Compares util/drivers/cuda.h with NVIDIA's header at compile time, if
 * configure has found one (12.0 or later).
 */
#include <cuda.h>

#include "util/drivers/cuda.h"

#define SAME(ours, theirs) \
	_Static_assert((int)(ours) == (int)(theirs), #ours " is " #theirs)

SAME(WEFT_CU_SUCCESS, CUDA_SUCCESS);
SAME(WEFT_CU_INVALID_VALUE, CUDA_ERROR_INVALID_VALUE);
SAME(WEFT_CU_OUT_OF_MEMORY, CUDA_ERROR_OUT_OF_MEMORY);
SAME(WEFT_CU_NOT_INITIALIZED, CUDA_ERROR_NOT_INITIALIZED);
SAME(WEFT_CU_DEINITIALIZED, CUDA_ERROR_DEINITIALIZED);
SAME(WEFT_CU_NO_DEVICE, CUDA_ERROR_NO_DEVICE);
SAME(WEFT_CU_INVALID_DEVICE, CUDA_ERROR_INVALID_DEVICE);
SAME(WEFT_CU_INVALID_CONTEXT, CUDA_ERROR_INVALID_CONTEXT);
SAME(WEFT_CU_ALREADY_MAPPED, CUDA_ERROR_ALREADY_MAPPED);
SAME(WEFT_CU_OPERATING_SYSTEM, CUDA_ERROR_OPERATING_SYSTEM);
SAME(WEFT_CU_INVALID_HANDLE, CUDA_ERROR_INVALID_HANDLE);
SAME(WEFT_CU_NOT_READY, CUDA_ERROR_NOT_READY);
SAME(WEFT_CU_CONTEXT_DESTROYED, CUDA_ERROR_CONTEXT_IS_DESTROYED);
SAME(WEFT_CU_ALREADY_REGISTERED, CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
SAME(WEFT_CU_NOT_PERMITTED, CUDA_ERROR_NOT_PERMITTED);
SAME(WEFT_CU_NOT_SUPPORTED, CUDA_ERROR_NOT_SUPPORTED);
SAME(WEFT_CU_CAPTURE_UNSUPPORTED, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
SAME(WEFT_CU_CAPTURE_INVALIDATED, CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);

SAME(WEFT_CU_CAPTURE_GLOBAL, CU_STREAM_CAPTURE_MODE_GLOBAL);
SAME(WEFT_CU_CAPTURE_RELAXED, CU_STREAM_CAPTURE_MODE_RELAXED);
SAME(WEFT_CU_POINTER_CONTEXT, CU_POINTER_ATTRIBUTE_CONTEXT);
SAME(WEFT_CU_POINTER_MEMORY_TYPE, CU_POINTER_ATTRIBUTE_MEMORY_TYPE);
SAME(WEFT_CU_POINTER_BUFFER_ID, CU_POINTER_ATTRIBUTE_BUFFER_ID);
SAME(WEFT_CU_POINTER_IS_MANAGED, CU_POINTER_ATTRIBUTE_IS_MANAGED);
SAME(WEFT_CU_POINTER_ORDINAL, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL);
SAME(WEFT_CU_MEMORY_HOST, CU_MEMORYTYPE_HOST);
SAME(WEFT_CU_MEMORY_DEVICE, CU_MEMORYTYPE_DEVICE);
SAME(WEFT_CU_DEVICE_PCI_BUS, CU_DEVICE_ATTRIBUTE_PCI_BUS_ID);
SAME(WEFT_CU_DEVICE_PCI_DEVICE, CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID);
SAME(WEFT_CU_DEVICE_PCI_DOMAIN, CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID);
SAME(WEFT_CU_DEVICE_VMM,
     CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED);
SAME(WEFT_CU_DEVICE_POSIX_FD,
     CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED);
SAME(WEFT_CU_STREAM_NON_BLOCKING, CU_STREAM_NON_BLOCKING);
SAME(WEFT_CU_HOSTREGISTER_PORTABLE, CU_MEMHOSTREGISTER_PORTABLE);
SAME(WEFT_CU_HOSTREGISTER_DEVICEMAP, CU_MEMHOSTREGISTER_DEVICEMAP);
SAME(WEFT_CU_HANDLE_POSIX_FD, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
SAME(WEFT_CU_ALLOCATION_PINNED, CU_MEM_ALLOCATION_TYPE_PINNED);
SAME(WEFT_CU_LOCATION_DEVICE, CU_MEM_LOCATION_TYPE_DEVICE);
SAME(WEFT_CU_ACCESS_READWRITE, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
SAME(WEFT_CU_IPC_LAZY_PEER_ACCESS, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS);

/* handles, enumerations, integers */
SAME(sizeof(void *), sizeof(CUcontext));
SAME(sizeof(void *), sizeof(CUstream));
SAME(sizeof(void *), sizeof(CUevent));
SAME(sizeof(uint64_t), sizeof(CUdeviceptr));
SAME(sizeof(unsigned long long), sizeof(CUmemGenericAllocationHandle));
SAME(sizeof(int), sizeof(CUdevice));
SAME(sizeof(int), sizeof(CUresult));
SAME(sizeof(int), sizeof(CUmemAllocationHandleType));
SAME(sizeof(int), sizeof(CUpointer_attribute));
SAME(sizeof(struct weft_cu_uuid), sizeof(CUuuid));
SAME(sizeof(struct weft_cu_ipc), sizeof(CUipcMemHandle));

#define AT(ours, field, theirs, its)                               \
	SAME(offsetof(struct ours, field), offsetof(theirs, its)); \
	SAME(sizeof(((struct ours *)0)->field), sizeof(((theirs *)0)->its))

SAME(sizeof(struct weft_cu_location), sizeof(CUmemLocation));
AT(weft_cu_location, type, CUmemLocation, type);
AT(weft_cu_location, id, CUmemLocation, id);

SAME(sizeof(struct weft_cu_alloc_prop), sizeof(CUmemAllocationProp));
AT(weft_cu_alloc_prop, type, CUmemAllocationProp, type);
AT(weft_cu_alloc_prop, handle_types, CUmemAllocationProp, requestedHandleTypes);
AT(weft_cu_alloc_prop, location, CUmemAllocationProp, location);
AT(weft_cu_alloc_prop, win32, CUmemAllocationProp, win32HandleMetaData);
AT(weft_cu_alloc_prop, flags, CUmemAllocationProp, allocFlags);
AT(weft_cu_alloc_prop, flags.compression, CUmemAllocationProp,
   allocFlags.compressionType);
AT(weft_cu_alloc_prop, flags.rdma, CUmemAllocationProp,
   allocFlags.gpuDirectRDMACapable);
AT(weft_cu_alloc_prop, flags.usage, CUmemAllocationProp, allocFlags.usage);

SAME(sizeof(struct weft_cu_access), sizeof(CUmemAccessDesc));
AT(weft_cu_access, location, CUmemAccessDesc, location);
AT(weft_cu_access, flags, CUmemAccessDesc, flags);

#if CUDA_VERSION >= 12080
SAME(WEFT_CU_SRC_ORDER_STREAM, CU_MEMCPY_SRC_ACCESS_ORDER_STREAM);
SAME(sizeof(struct weft_cu_copy_attr), sizeof(CUmemcpyAttributes));
AT(weft_cu_copy_attr, src_order, CUmemcpyAttributes, srcAccessOrder);
AT(weft_cu_copy_attr, src_hint, CUmemcpyAttributes, srcLocHint);
AT(weft_cu_copy_attr, dst_hint, CUmemcpyAttributes, dstLocHint);
AT(weft_cu_copy_attr, flags, CUmemcpyAttributes, flags);
/* the arguments of the call; CUDA 12's form has one more */
#if CUDA_VERSION >= 13000
SAME(sizeof(int),
     sizeof(cuMemcpyBatchAsync((CUdeviceptr *)0, (CUdeviceptr *)0, (size_t *)0,
			       0, 0, (size_t *)0, 0, (CUstream)0)));
#else
SAME(sizeof(int), sizeof(cuMemcpyBatchAsync((CUdeviceptr *)0, (CUdeviceptr *)0,
					    (size_t *)0, 0, 0, (size_t *)0, 0,
					    (size_t *)0, (CUstream)0)));
#endif
#endif
