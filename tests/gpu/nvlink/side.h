/* SPDX-License-Identifier: BSD-3-Clause */
/* One pod's end of the device under test; what fails ends the process. */
#ifndef WEFT_TESTS_GPU_SIDE_H
#define WEFT_TESTS_GPU_SIDE_H

#include "devices/nvlink/nvl.h"
#include "tests/gpu/nvlink/gpumem.h"
#include "tests/lib/pair.h"

#define MIB (1ul << 20)

struct remote {
	uint64_t addr;
	uint8_t key[WEFT_RKEY_MAX];
};

struct buf {
	enum gpumem_kind kind;
	size_t size;
	char *p;
	struct weft_mem *mem;
	struct remote mine, theirs;
};

extern const struct weft_dev_ops *const ops;
extern struct side side;
/* An operation is about to fail, which ends the connection. */
extern bool may_fail;

/* The GPU of this rank. */
void gpu_open(void);
void device_open(void);
/* After such an end: both connect again. */
void device_connect_again(void);
void device_close(void);
void progress(void);
#define wait_until(cond)            \
	do {                        \
		while (!(cond))     \
			progress(); \
	} while (0)

/* Registers memory of @size bytes and learns of the other pod's. */
void buf_open(struct buf *b, enum gpumem_kind kind, size_t size);
void buf_close(struct buf *b);

/* Begins a put or get of @p; waits for room, not for its end. */
void start(struct wait_op *w, bool get, void *p, size_t len, uint64_t addr,
	   const void *key);
/* The same place in both, from its beginning to its end. */
void move(bool get, struct buf *local, struct buf *remote, size_t off,
	  size_t len);
/* The GPU looks whether [@off, @off + @len) has what @seed filled in. */
void verify(struct buf *b, size_t off, size_t len, uint64_t seed,
	    const char *what);

#endif
