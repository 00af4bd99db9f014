/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A CUDA driver without a GPU, for WEFT_LIBCUDA: the calls that
 * util/drivers/cuda.h lists, on memfds, so that exported memory is really
 * shared.
 *
 * Streams are threads that are late on purpose and know nothing of each other,
 * so that what is not ordered does happen in the wrong order.  It refuses what
 * the real driver refuses: calls without a context, a stream of another
 * context, memory that was freed or is mapped without access, GPUs without a
 * device node, memory to be exported that was not allocated for that, IPC
 * handles of the same process, of its pid or of freed memory, and calls that
 * would invalidate a capture (it notes that they would have).
 *
 * Tests find these functions with dlsym() in the library that they loaded.
 */
#ifndef WEFT_TESTS_FAKE_CUDA_H
#define WEFT_TESTS_FAKE_CUDA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Environment, read at cuInit(): */
#define FAKE_CUDA_NODES	   "WEFT_TEST_CUDA_NODES"    /* "01": GPUs here */
#define FAKE_CUDA_DELAY	   "WEFT_TEST_CUDA_DELAY"    /* us at most */
#define FAKE_CUDA_NO_WRITE "WEFT_TEST_CUDA_NO_WRITE" /* no stream write */
/* a driver before CUDA 12.8 has no batches ("no"), one before 13 "old" ones */
#define FAKE_CUDA_BATCH "WEFT_TEST_CUDA_BATCH"
/* "1": all GPUs are divided; memory of another process cannot be imported */
#define FAKE_CUDA_MIG "WEFT_TEST_CUDA_MIG"
/* the first copy of more than a page gets one byte wrong */
#define FAKE_CUDA_WRONG "WEFT_TEST_CUDA_WRONG"
/* memory that was not announced is GPU 0's, and its primary context's */
#define FAKE_CUDA_ALL "WEFT_TEST_CUDA_ALL"
/* there is no memory to be had */
#define FAKE_CUDA_FULL "WEFT_TEST_CUDA_FULL"
/* "1": GPU 1 has no virtual memory management; asked at any time */
#define FAKE_CUDA_NO_VMM "WEFT_TEST_CUDA_NO_VMM"
/* a folder: memory of cuMemAlloc() has IPC handles; the same for all peers */
#define FAKE_CUDA_IPC "WEFT_TEST_CUDA_IPC"
/* cuInit() never returns */
#define FAKE_CUDA_HANG "WEFT_TEST_CUDA_HANG"
/* NVML answers (WEFT_LIBNVML); else it says that no driver is loaded */
#define FAKE_NVML "WEFT_TEST_NVML"

/* What is alive: every kind must be back at its number before the test. */
struct fake_cuda_live {
	unsigned int handles, maps, reservations, streams, events, pinned;
	unsigned int imports; /* IPC handles open, each as often */
};

/* X(return type, name, arguments) */
#define FAKE_CUDA_CONTROL(X)                                                   \
	X(int, fake_cuda_inits, (void))                                        \
	X(void, fake_cuda_live, (struct fake_cuda_live *))                     \
	/* the @n-th call of @name from now on (1: the next) gives @err */     \
	X(void, fake_cuda_fail, (const char *name, int n, int err))            \
	/* every call of @name gives @err; 0: no longer */                     \
	X(void, fake_cuda_refuse, (const char *name, int err))                 \
	/* the @n-th call of any kind from now on gives @err; 0: none.         \
	 * Calls that give something back, ask whether work has ended, or      \
	 * cannot fail are not counted. */                                     \
	X(void, fake_cuda_fail_at, (int n, int err))                           \
	X(int, fake_cuda_calls, (void))		  /* since then */             \
	X(const char *, fake_cuda_failed, (void)) /* which; NULL: none */      \
	/* calls of @name so far */                                            \
	X(unsigned int, fake_cuda_called, (const char *name))                  \
	/* calls of @name wait until another one, or NULL, is named */         \
	X(void, fake_cuda_stall, (const char *name))                           \
	X(unsigned int, fake_cuda_stalled, (void)) /* wait now */              \
	X(void, fake_cuda_delay, (unsigned int us))                            \
	/* another thread of the program captures, in the global mode */       \
	X(void, fake_cuda_capture, (bool on))                                  \
	X(bool, fake_cuda_capture_broken, (void))                              \
	/* streams stop before their next operation until told to go on */     \
	X(void, fake_cuda_hold, (bool on))                                     \
	/* one of those goes on all the same */                                \
	X(void, fake_cuda_step, (void))                                        \
	/* the program's own: a primary context and memory of GPU @ordinal */  \
	X(void *, fake_cuda_context, (int ordinal))                            \
	/* as cudaDeviceReset(): the next one of @ordinal has its address */   \
	X(void, fake_cuda_reset, (int ordinal))                                \
	/* a green one, by its handle as a context */                          \
	X(void *, fake_cuda_green, (int ordinal))                              \
	X(void *, fake_cuda_malloc, (int ordinal, size_t size))                \
	X(void *, fake_cuda_malloc_in, (void *ctx, size_t size))               \
	X(void *, fake_cuda_vmm, (int ordinal, size_t size))                   \
	/* @n allocations of 2 MiB, one behind the other */                    \
	X(void *, fake_cuda_segments,                                          \
	  (int ordinal, unsigned int n, int types))                            \
	/* one of them is unmapped, or another one mapped in its place */      \
	X(void, fake_cuda_unmap, (void *p, size_t size))                       \
	X(void, fake_cuda_map, (void *p, int ordinal, size_t size, int types)) \
	X(void *, fake_cuda_managed, (int ordinal, size_t size))               \
	/* of no context, as from a stream-ordered pool */                     \
	X(void *, fake_cuda_pool, (int ordinal, size_t size))                  \
	X(void, fake_cuda_free, (void *p))                                     \
	X(unsigned long, fake_cuda_copies, (void))

#define X(type, name, args) type name args;
FAKE_CUDA_CONTROL(X)
#undef X

#endif
