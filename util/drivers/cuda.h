/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The CUDA driver, and the only dlopen() of it.
 *
 * Building needs none of CUDA's headers: the symbol names of the calls below
 * carry their version, so their signatures never change.  If there is a cuda.h,
 * util/drivers/cuda_check.c compares types and values with it, and
 * tests/check/cuda.sh the names.  Handles are void pointers, enumerations ints,
 * device pointers 64-bit numbers.
 *
 * A process without GPU memory must not notice weft: only weft_cuda_init()
 * loads the library and calls cuInit().  weft uses the contexts of the memory
 * that the program passes, and makes none.
 *
 * Make every call between weft_cuda_enter() and weft_cuda_leave(): they make a
 * context current and keep a stream capture on any thread of the program valid.
 */
#ifndef WEFT_UTIL_DRIVERS_CUDA_H
#define WEFT_UTIL_DRIVERS_CUDA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define WEFT_CU_SUCCESS		    0
#define WEFT_CU_INVALID_VALUE	    1
#define WEFT_CU_OUT_OF_MEMORY	    2
#define WEFT_CU_NOT_INITIALIZED	    3
#define WEFT_CU_DEINITIALIZED	    4
#define WEFT_CU_NO_DEVICE	    100
#define WEFT_CU_INVALID_DEVICE	    101
#define WEFT_CU_INVALID_CONTEXT	    201
#define WEFT_CU_ALREADY_MAPPED	    208
#define WEFT_CU_OPERATING_SYSTEM    304
#define WEFT_CU_INVALID_HANDLE	    400
#define WEFT_CU_NOT_READY	    600
#define WEFT_CU_CONTEXT_DESTROYED   709
#define WEFT_CU_ALREADY_REGISTERED  712
#define WEFT_CU_NOT_PERMITTED	    800
#define WEFT_CU_NOT_SUPPORTED	    801
#define WEFT_CU_CAPTURE_UNSUPPORTED 900
#define WEFT_CU_CAPTURE_INVALIDATED 901

#define WEFT_CU_CAPTURE_GLOBAL	0
#define WEFT_CU_CAPTURE_RELAXED 2

#define WEFT_CU_POINTER_CONTEXT	    1
#define WEFT_CU_POINTER_MEMORY_TYPE 2
#define WEFT_CU_POINTER_BUFFER_ID   7
#define WEFT_CU_POINTER_IS_MANAGED  8
#define WEFT_CU_POINTER_ORDINAL	    9
#define WEFT_CU_MEMORY_HOST	    1
#define WEFT_CU_MEMORY_DEVICE	    2

#define WEFT_CU_DEVICE_PCI_BUS	  33
#define WEFT_CU_DEVICE_PCI_DEVICE 34
#define WEFT_CU_DEVICE_PCI_DOMAIN 50
#define WEFT_CU_DEVICE_VMM	  102 /* cuMemCreate and so on */
#define WEFT_CU_DEVICE_POSIX_FD	  103 /* exports as a descriptor */
#define WEFT_CU_DEVICE_VMM_RDMA	  110 /* adapters reach such memory */

#define WEFT_CU_STREAM_NON_BLOCKING    1
#define WEFT_CU_HOSTREGISTER_PORTABLE  1
#define WEFT_CU_HOSTREGISTER_DEVICEMAP 2
#define WEFT_CU_HANDLE_POSIX_FD	       1
#define WEFT_CU_ALLOCATION_PINNED      1
#define WEFT_CU_LOCATION_DEVICE	       1
#define WEFT_CU_ACCESS_READWRITE       3
#define WEFT_CU_SRC_ORDER_STREAM       1
#define WEFT_CU_IPC_LAZY_PEER_ACCESS   1

struct weft_cu_uuid {
	unsigned char bytes[16];
};

/* CUipcMemHandle */
struct weft_cu_ipc {
	unsigned char bytes[64];
};

/* CUmemLocation */
struct weft_cu_location {
	int type;
	int id;
};

/* CUmemAllocationProp */
struct weft_cu_alloc_prop {
	int type;
	int handle_types;
	struct weft_cu_location location;
	void *win32;
	struct {
		unsigned char compression;
		unsigned char rdma;
		unsigned short usage;
		unsigned char reserved[4];
	} flags;
};

/* CUmemAccessDesc */
struct weft_cu_access {
	struct weft_cu_location location;
	int flags;
};

/* CUmemcpyAttributes */
struct weft_cu_copy_attr {
	int src_order;
	struct weft_cu_location src_hint, dst_hint;
	unsigned int flags;
};

/* X(field, symbol, arguments) */
#define WEFT_CUDA_CALLS(X)                                                   \
	X(init, cuInit, (unsigned int flags))                                \
	X(error_name, cuGetErrorName, (int err, const char **name))          \
	X(device_count, cuDeviceGetCount, (int *n))                          \
	X(device_get, cuDeviceGet, (int *dev, int ordinal))                  \
	X(device_uuid, cuDeviceGetUuid_v2, (struct weft_cu_uuid *, int dev)) \
	X(device_attr, cuDeviceGetAttribute, (int *v, int attr, int dev))    \
	X(primary_state, cuDevicePrimaryCtxGetState,                         \
	  (int dev, unsigned int *flags, int *active))                       \
	X(primary_retain, cuDevicePrimaryCtxRetain, (void **ctx, int dev))   \
	X(primary_release, cuDevicePrimaryCtxRelease_v2, (int dev))          \
	X(ctx_push, cuCtxPushCurrent_v2, (void *ctx))                        \
	X(ctx_pop, cuCtxPopCurrent_v2, (void **ctx))                         \
	X(ctx_current, cuCtxGetCurrent, (void **ctx))                        \
	X(ctx_device, cuCtxGetDevice, (int *dev))                            \
	X(ctx_id, cuCtxGetId, (void *ctx, unsigned long long *id))           \
	X(capture_mode, cuThreadExchangeStreamCaptureMode, (int *mode))      \
	X(pointer_attrs, cuPointerGetAttributes,                             \
	  (unsigned int n, int *attrs, void **values, uint64_t ptr))         \
	X(address_range, cuMemGetAddressRange_v2,                            \
	  (uint64_t * base, size_t * size, uint64_t ptr))                    \
	X(mem_alloc, cuMemAlloc_v2, (uint64_t * ptr, size_t size))           \
	X(mem_free, cuMemFree_v2, (uint64_t ptr))                            \
	X(mem_create, cuMemCreate,                                           \
	  (unsigned long long *handle, size_t size,                          \
	   const struct weft_cu_alloc_prop *, unsigned long long flags))     \
	X(mem_release, cuMemRelease, (unsigned long long handle))            \
	X(mem_retain, cuMemRetainAllocationHandle,                           \
	  (unsigned long long *handle, void *addr))                          \
	X(mem_props, cuMemGetAllocationPropertiesFromHandle,                 \
	  (struct weft_cu_alloc_prop *, unsigned long long handle))          \
	X(mem_export, cuMemExportToShareableHandle,                          \
	  (void *shareable, unsigned long long handle, int type,             \
	   unsigned long long flags))                                        \
	X(mem_import, cuMemImportFromShareableHandle,                        \
	  (unsigned long long *handle, void *shareable, int type))           \
	X(address_reserve, cuMemAddressReserve,                              \
	  (uint64_t * ptr, size_t size, size_t align, uint64_t addr,         \
	   unsigned long long flags))                                        \
	X(address_free, cuMemAddressFree, (uint64_t ptr, size_t size))       \
	X(mem_map, cuMemMap,                                                 \
	  (uint64_t ptr, size_t size, size_t offset,                         \
	   unsigned long long handle, unsigned long long flags))             \
	X(mem_unmap, cuMemUnmap, (uint64_t ptr, size_t size))                \
	X(mem_access, cuMemSetAccess,                                        \
	  (uint64_t ptr, size_t size, const struct weft_cu_access *,         \
	   size_t n))                                                        \
	X(ipc_get, cuIpcGetMemHandle, (struct weft_cu_ipc *, uint64_t ptr))  \
	X(ipc_open, cuIpcOpenMemHandle_v2,                                   \
	  (uint64_t * ptr, struct weft_cu_ipc, unsigned int flags))          \
	X(ipc_close, cuIpcCloseMemHandle, (uint64_t ptr))                    \
	X(host_register, cuMemHostRegister_v2,                               \
	  (void *p, size_t size, unsigned int flags))                        \
	X(host_unregister, cuMemHostUnregister, (void *p))                   \
	X(host_device_ptr, cuMemHostGetDevicePointer_v2,                     \
	  (uint64_t * dptr, void *p, unsigned int flags))                    \
	X(stream_create, cuStreamCreate, (void **st, unsigned int flags))    \
	X(stream_destroy, cuStreamDestroy_v2, (void *st))                    \
	X(stream_query, cuStreamQuery, (void *st))                           \
	X(memcpy_async, cuMemcpyAsync,                                       \
	  (uint64_t dst, uint64_t src, size_t n, void *st))                  \
	X(host_func, cuLaunchHostFunc,                                       \
	  (void *st, void (*fn)(void *), void *arg))

/* NULL if the driver is too old. */
#define WEFT_CUDA_OPTIONAL(X)                                                 \
	X(write_value32, cuStreamWriteValue32_v2,                             \
	  (void *st, uint64_t addr, uint32_t value, unsigned int flags))      \
	X(memcpy_batch, cuMemcpyBatchAsync_v2,                                \
	  (uint64_t * dsts, uint64_t * srcs, size_t * sizes, size_t n,        \
	   struct weft_cu_copy_attr * attrs, size_t * attr_at, size_t nattrs, \
	   void *st))                                                         \
	/* all that drivers of CUDA 12.8 and 12.9 have */                     \
	X(memcpy_batch_12, cuMemcpyBatchAsync,                                \
	  (uint64_t * dsts, uint64_t * srcs, size_t * sizes, size_t n,        \
	   struct weft_cu_copy_attr * attrs, size_t * attr_at, size_t nattrs, \
	   size_t * failed, void *st))

struct weft_cuda {
#define X(field, symbol, args) int(*field) args;
	WEFT_CUDA_CALLS(X)
	WEFT_CUDA_OPTIONAL(X)
#undef X
};

/*
 * Load the driver ($WEFT_LIBCUDA or libcuda.so.1) and initialise it; later
 * calls return the first result.  Call it once the program has passed GPU
 * memory, never before.  -ENOENT: no driver; -ENODEV: no GPU; -ELIBBAD: the
 * driver lacks a call.  Logs the cause, once.
 */
int weft_cuda_init(void);

/*
 * The number of GPUs of the driver that the program has loaded.  Neither loads
 * nor initialises one.  -ENOENT: none is loaded; -ENODEV: not initialised.
 */
int weft_cuda_program_gpus(void);
/* Does one of those GPUs lack @attr?  False if the driver does not answer. */
bool weft_cuda_program_lacks(int attr);

/* The driver, or NULL until weft_cuda_init() has succeeded. */
const struct weft_cuda *weft_cuda(void);

struct weft_cuda_scope {
	const struct weft_cuda *cu;
	int mode;
	bool pushed;
};

/*
 * Open a scope for driver calls on this thread; @ctx NULL: no context needed.
 * -ENODEV: the context is gone; then do not call weft_cuda_leave().
 */
int weft_cuda_enter(struct weft_cuda_scope *s, void *ctx);

/* One that is kept: after cudaDeviceReset() another one has its address. */
struct weft_cuda_ctx {
	void *ptr;
	unsigned long long id; /* never used again */
};

/* The same; -ENODEV, too, if another one is there now. */
int weft_cuda_enter_kept(struct weft_cuda_scope *s,
			 const struct weft_cuda_ctx *ctx);

static inline bool weft_cuda_is_same_ctx(const struct weft_cuda_ctx *ctx,
					 const struct weft_cuda_ctx *other)
{
	return ctx->ptr == other->ptr && ctx->id == other->id;
}

void weft_cuda_leave(struct weft_cuda_scope *s);

/* What the driver knows about an address. */
enum weft_cuda_where {
	WEFT_CUDA_PAGEABLE, /* ordinary host memory */
	WEFT_CUDA_PINNED,   /* registered host memory */
	WEFT_CUDA_DEVICE,
};

struct weft_cuda_ptr {
	enum weft_cuda_where where;
	bool managed;
	int ordinal;		  /* DEVICE: this process's numbering */
	struct weft_cuda_ctx ctx; /* DEVICE: the context to enter */
	uint64_t buffer_id;	  /* of the allocation, never reused */
};

/*
 * Without a driver everything is PAGEABLE.  For memory that belongs to no
 * context (VMM, stream-ordered pools), @info->ctx is the primary context of its
 * GPU if that is active, else this thread's current one if it is of the same
 * GPU.  -ENODEV: there is neither, and none is created.  On any other error the
 * memory is unknown; do not treat it as host memory.
 */
int weft_cuda_query(const void *p, struct weft_cuda_ptr *info);

/*
 * A context in which driver calls of this thread can be made: its current one,
 * else a GPU's primary one that is active.  NULL: there is none, or the program
 * uses no CUDA.
 */
void *weft_cuda_any_context(void);

/* -errno for a driver's error: ENOMEM, ENODEV, EINVAL, ..., else EIO. */
int weft_cuda_errno(int err);
/* "CUDA_ERROR_INVALID_DEVICE"; never NULL. */
const char *weft_cuda_error_name(int err);

/* For tests: forget the driver, so that another one can be loaded. */
void weft_cuda_reset(void);

#endif
