/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * GPU memory as a program has it, for tests: allocated, filled and checked by
 * the GPU itself; on the fake driver (tests/lib/cuda/fake_cuda.h) by the
 * processor. Whatever fails ends the process with a message.
 */
#ifndef WEFT_TESTS_GPUMEM_H
#define WEFT_TESTS_GPUMEM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Makes the context of GPU @ordinal current on this thread. */
void gpumem_open(int ordinal);
bool gpumem_is_fake(void);
/* Copies that the fake driver has made in this process. */
unsigned long gpumem_copies(void);
/* "NVIDIA H200", with the driver's version. */
void gpumem_name(char *buf, size_t len);

enum gpumem_kind {
	GPUMEM_MALLOC, /* cuMemAlloc, as cudaMalloc */
	GPUMEM_VMM,    /* with a descriptor, as NCCL's buffers */
	GPUMEM_PARTS,  /* several of these, as torch's expandable segments */
	GPUMEM_POOL,   /* cuMemAllocAsync, as cudaMallocAsync */
};
void *gpumem_alloc(enum gpumem_kind kind, size_t size);
void gpumem_free(enum gpumem_kind kind, void *p, size_t size);

/* Synchronous.  Values depend on offset and @seed. */
void gpumem_fill(void *base, uint64_t start, uint64_t len, uint64_t seed);
/* A kernel looks at once: the number of wrong places. */
uint64_t gpumem_check(const void *base, uint64_t start, uint64_t len,
		      uint64_t seed);
/* pattern.cu, compiled */
extern const char gpumem_pattern_ptx[];
/* The same values in host memory. */
void gpumem_host_fill(uint8_t *p, uint64_t start, uint64_t len, uint64_t seed);
uint64_t gpumem_host_check(const uint8_t *p, uint64_t start, uint64_t len,
			   uint64_t seed);

#endif
