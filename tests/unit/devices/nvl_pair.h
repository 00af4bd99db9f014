/* SPDX-License-Identifier: BSD-3-Clause */
/* Interfaces of the NVLink device on the fake driver, in one process. */
#ifndef WEFT_TESTS_UNIT_NVL_PAIR_H
#define WEFT_TESTS_UNIT_NVL_PAIR_H

#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "devices/device.h"
#include "tests/lib/fake_cuda.h"
#include "util/clock.h"
#include "util/cuda.h"

#define WAIT_MS 30000

struct side {
	struct weft_iface *iface;
	struct weft_ep *ep;
	unsigned int errors;
	int error;
};

struct wait_op {
	struct weft_op op;
	bool done;
	int status;
};

extern const struct weft_dev_ops *const nvl;
extern struct side a, b, c;
/* The fake driver's control. */
extern struct fake {
#define X(type, name, args) type(*name) args;
	FAKE_CUDA_CONTROL(X)
#undef X
} fake;

/* A WEFT_RUN_DIR of this test's own, until it ends. */
extern char run_folder[];
void begin_folder(void);
void end_folder(void);
/* Keeps warnings and errors, loads the driver and makes two contexts. */
void load_fake(void);
/* How many warnings and errors had @words in them ("": all). */
unsigned int said(const char *words);

extern unsigned int side_flags; /* of those that are opened */
int open_side(struct side *s);
int connect_side(struct side *from, struct side *to);
/* An endpoint each way, ready. */
void meet(struct side *from, struct side *to);
void close_side(struct side *s);
/* Progresses what is open. */
void turn(void);

/* Fills @src anew, poisons the target, and looks; the operation's status. */
int put_checked(struct side *s, uint8_t *src, uint8_t *dst, size_t len,
		const void *key);
int get_checked(struct side *s, uint8_t *dst, uint8_t *src, size_t len,
		const void *key);
void op_done(struct weft_op *op, int status);
/* prepare(), as for memory registered at @memory. */
int prepare(struct weft_ep *ep, const void *memory);
/* What @ep's puts went through. */
enum weft_staging staged(struct weft_ep *ep);

/* For Criterion, whose arguments may not begin with an operator. */
static inline bool yes(bool it_is)
{
	return it_is;
}

/* False: not within WAIT_MS. */
#define until(cond)                                             \
	yes(({                                                  \
		uint64_t end_ = weft_now_ms() + WAIT_MS;        \
		bool is_;                                       \
		while (!(is_ = (cond)) && weft_now_ms() < end_) \
			turn();                                 \
		is_;                                            \
	}))
#define wait_for(cond)                                      \
	do {                                                \
		bool came_ = until(cond);                   \
		cr_assert(came_, "no '%s' in time", #cond); \
	} while (0)

#endif
