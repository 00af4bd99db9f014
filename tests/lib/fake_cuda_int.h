/* SPDX-License-Identifier: BSD-3-Clause */
/* What the two halves of the fake driver share: memory and streams. */
#ifndef WEFT_TESTS_FAKE_CUDA_INT_H
#define WEFT_TESTS_FAKE_CUDA_INT_H

#include <pthread.h>
#include "tests/lib/fake_cuda.h"
#include "util/cuda.h"
#include "util/util.h"

#define EXPORT		__attribute__((visibility("default")))
/* The driver declares its calls in no header of ours. */
#pragma GCC diagnostic ignored "-Wmissing-prototypes"

#define GPUS		8
#define PAGE_2M		(2ul << 20)
#define UNSAFE		1	/* would break a capture in the global mode */
#define CONTEXT		2	/* needs a current one */

struct context {
	int ordinal, refs;
};

struct handle {
	int fd, phys, refs;
	size_t size;
};

enum kind { FREE, RESERVED, MALLOC, MANAGED_MEM, MAPPED, PINNED };

struct object {
	enum kind kind;
	uint64_t base, size, id;
	int ordinal;
	void *ctx;
	uint64_t access;		/* MAPPED: ordinals */
	struct handle *handle;
};

extern pthread_mutex_t fake_lock;	/* all of the fake's own state */
extern struct fake_cuda_live fake_live;
extern unsigned int fake_delay_us;
extern bool fake_no_write;

/* What every call begins with: 0, or the error it gives. */
int fake_gate(const char *name, int flags);
#define GATE(flags)							\
	do {								\
		int gate_ = fake_gate(__func__, flags);			\
		if (gate_)						\
			return gate_;					\
	} while (0)

struct context *fake_current(void);
extern int fake_phys_of[GPUS], fake_gpus;

/* Under fake_lock, all of them. */
struct object *fake_add(enum kind kind, uint64_t base, uint64_t size,
			int ordinal);
struct object *fake_exact(enum kind kind, uint64_t base, size_t size);
/* Under fake_lock: the object around [p, p+len), or NULL. */
struct object *fake_find(uint64_t p, size_t len);

/* The driver's calls that its other half makes. */
int cuMemCreate(unsigned long long *handle, size_t size,
		const struct weft_cu_alloc_prop *prop,
		unsigned long long flags);
int cuMemRelease(unsigned long long handle);
int cuMemAddressReserve(uint64_t *ptr, size_t size, size_t align,
			uint64_t addr, unsigned long long flags);
int cuMemAddressFree(uint64_t ptr, size_t size);
int cuMemMap(uint64_t ptr, size_t size, size_t offset,
	     unsigned long long handle, unsigned long long flags);
int cuMemUnmap(uint64_t ptr, size_t size);
int cuMemSetAccess(uint64_t ptr, size_t size,
		   const struct weft_cu_access *desc, size_t n);

/* Waits for all streams, as freeing memory does. */
void fake_streams_drain(void);

#endif
