/* SPDX-License-Identifier: BSD-3-Clause */
/* What the two halves of the fake driver share: memory and streams. */
#ifndef WEFT_TESTS_FAKE_CUDA_INT_H
#define WEFT_TESTS_FAKE_CUDA_INT_H

#include <pthread.h>
#include "tests/lib/cuda/fake_cuda.h"
#include "util/drivers/cuda.h"
#include "util/util.h"

#define EXPORT __attribute__((visibility("default")))
/* The tree has no header that declares the driver's calls. */
#pragma GCC diagnostic ignored "-Wmissing-prototypes"

/*
 * UCX hooks these by writing a jump over their first instructions, and moves
 * what stood there; it knows few instructions (ucm/bistro/bistro_x86_64.c).
 * So they begin with some of those; elsewhere nothing hooks them.  To be
 * declared with HOOKED(name) behind.
 */
#ifdef __x86_64__
#define MOVABLE \
	"push %rbp\npop %rbp\npush %rbp\npop %rbp\npush %rbp\npop %rbp\n"
#define JUMP "jmp"
#else
#define MOVABLE ""
#define JUMP	"b" /* of Arm and POWER */
#endif
#define HOOKED(name) \
	__asm__("hooked_" #name) __attribute__((visibility("hidden")))
#define HOOKABLE(name)                                                  \
	__asm__(".pushsection .text\n"                                  \
		".globl " #name "\n"                                    \
		".type " #name ", @function\n" #name ":\n" MOVABLE JUMP \
		" hooked_" #name "\n"                                   \
		".size " #name ", . - " #name "\n"                      \
		".popsection")

#define GPUS	   8
#define PAGE_2M	   (2ul << 20)
#define UNSAFE	   1 /* would break a capture in the global mode */
#define CONTEXT	   2 /* needs a current one */
#define NO_CAPTURE 4 /* breaks one in any mode */

struct context {
	_Atomic int ordinal, refs;
	_Atomic unsigned long long id; /* another one each time it is made */
};

struct handle {
	int fd, phys;
	int types; /* that it may be exported as */
	_Atomic int refs;
	size_t size;
};

enum kind { FREE, RESERVED, MALLOC, MANAGED_MEM, MAPPED, PINNED, IMPORTED };

struct object {
	enum kind kind;
	uint64_t base, size, id;
	int ordinal;
	void *ctx;
	uint64_t access; /* MAPPED, IMPORTED: ordinals */
	struct handle *handle;
	struct block *block; /* MALLOC: that it lies in, or NULL */
};

extern pthread_mutex_t fake_lock; /* all of the fake's own state */
extern struct fake_cuda_live fake_live;
extern unsigned int fake_delay_us;
extern bool fake_no_write, fake_full, fake_all;
extern _Atomic bool fake_wrong;

extern int fake_inits;
extern __thread int fake_depth, fake_capture_mode;
/* What every call begins with: 0, or the error it gives. */
int fake_gate(const char *name, int flags);
#define GATE(flags)                                     \
	do {                                            \
		int gate_ = fake_gate(__func__, flags); \
		if (gate_)                              \
			return gate_;                   \
	} while (0)

struct context *fake_current(void);
int cuCtxPushCurrent_v2(void *ctx);
extern int fake_phys_of[GPUS], fake_gpus;
/* What FAKE_CUDA_NODES says; cuInit() and nvmlInit_v2() call it. */
void fake_find_gpus(void);
bool fake_mig(void);

/* Under fake_lock, all of them. */
struct object *fake_add(enum kind kind, uint64_t base, uint64_t size,
			int ordinal);
struct object *fake_exact(enum kind kind, uint64_t base, size_t size);
/* Under fake_lock: the object around [p, p+len), or NULL. */
struct object *fake_find(uint64_t p, size_t len);
/* Is something that @kind says within [p, p+len)? */
bool fake_has(enum kind kind, uint64_t p, size_t len);
/* Is all of that within one such object? */
bool fake_within(enum kind kind, uint64_t p, size_t len);
/* The same: memory that has an IPC handle; NULL: none has. */
struct object *fake_ipc_alloc(int ordinal, size_t size);
void fake_ipc_free(struct object *o);
/* The driver's calls that its other half makes. */
int cuMemCreate(unsigned long long *handle, size_t size,
		const struct weft_cu_alloc_prop *prop,
		unsigned long long flags);
int cuMemRelease(unsigned long long handle);
int cuMemAddressReserve(uint64_t *ptr, size_t size, size_t align, uint64_t addr,
			unsigned long long flags);
int cuMemAddressFree(uint64_t ptr, size_t size);
int cuMemMap(uint64_t ptr, size_t size, size_t offset,
	     unsigned long long handle, unsigned long long flags)
	HOOKED(cuMemMap);
int cuMemUnmap(uint64_t ptr, size_t size) HOOKED(cuMemUnmap);
int cuMemSetAccess(uint64_t ptr, size_t size, const struct weft_cu_access *desc,
		   size_t n);

/* Waits for all streams, as freeing memory does. */
void fake_streams_drain(void);
/* For one: 0, or that it is no stream of the current context. */
int fake_stream_wait(void *stream);
int cuMemcpyAsync(uint64_t dst, uint64_t src, size_t n, void *stream);
int cuLaunchHostFunc(void *stream, void (*fn)(void *), void *arg);
int cuPointerGetAttributes(unsigned int n, int *attrs, void **values,
			   uint64_t ptr);

#endif
