/* SPDX-License-Identifier: BSD-3-Clause */
/* What the halves of the program `gpu` share. */
#ifndef WEFT_TESTS_HOST_GPU_H
#define WEFT_TESTS_HOST_GPU_H

#include "tests/gpu/nvlink/gpumem.h"
#include "tests/host/programs/transfer.h"

#define KIB (1ul << 10)
#define MIB (1ul << 20)

/* GPU memory, or host memory where @kind is GPU_HOST. */
#define GPU_HOST ((enum gpumem_kind) - 1)
struct buf {
	char *p;
	size_t size;
	enum gpumem_kind kind;
};

/* What a mode has that does not name it. */
extern enum gpumem_kind gpu_kind;
void buf_open(struct buf *b, enum gpumem_kind kind, size_t size);
void buf_close(struct buf *b);
void buf_fill(struct buf *b, size_t off, size_t len, uint64_t seed);
/* Dies with @what unless [off, off+len) holds the pattern of @seed. */
void buf_verify(struct buf *b, size_t off, size_t len, uint64_t seed,
		const char *what);

/*
 * gpu_speed.c: a line of JSON for each figure, on side 0's stdout.  @total
 * bytes are moved for a bandwidth; 0: as many as suit the driver.
 */
void gpu_speed(struct host *h, size_t largest, size_t total);

#endif
