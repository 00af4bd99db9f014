/* SPDX-License-Identifier: BSD-3-Clause */
/* Interfaces of the NVLink device on the fake driver, in one process. */
#ifndef WEFT_TESTS_UNIT_NVL_PAIR_H
#define WEFT_TESTS_UNIT_NVL_PAIR_H

#include <stdio.h>

#include "tests/lib/cuda/fake_cuda.h"
#include "tests/unit/devices/sides.h"
#include "util/drivers/cuda.h"

extern const struct weft_dev_ops *const nvl;
/* The fake driver's control. */
extern struct fake {
#define X(type, name, args) type(*name) args;
	FAKE_CUDA_CONTROL(X)
#undef X
} fake;

/* begin_folder(), with NVML; and with memory that IPC handles name. */
void begin_pair(void);
void begin_ipc_pair(void);
/* Keeps warnings and errors, loads the driver and makes two contexts. */
void load_fake(void);

int open_side(struct side *s);
void open_both(void);
/* For @key, where it is given. */
struct weft_mem *register_gpu(void *p, size_t len, void *key);
/* An endpoint of @from's, ready. */
void meet(struct side *from, struct side *to);
/* One of a's and one of b's, of one connection. */
void meet_both(void);
/* The same after an operation has failed, which has ended both. */
void meet_again(void);

/* Fills @src again, poisons the target, and looks; the operation's status. */
int put_checked(struct side *s, uint8_t *src, uint8_t *dst, size_t len,
		const void *key);
int get_checked(struct side *s, uint8_t *dst, uint8_t *src, size_t len,
		const void *key);

/*
 * As a program that sleeps until something happens: a and b, until *@done, or
 * *@ended unless that is NULL.
 */
void sleep_until(const unsigned int *done, const unsigned int *ended);

/*
 * Lives of a program, in each of which one of its driver calls fails, or none
 * (0); the number of errors that it got.  After begin_lives() nothing may be
 * left of the driver's or the kernel's.
 */
extern int calls;	   /* of the last life, and */
extern const char *failed; /* which of them did; NULL: none */
extern bool unsaid;	   /* its only error is that memory is not mapped */
void begin_lives(unsigned int (*life)(int fail));
void end_of_life(unsigned int errors, const char *name, int n);
void fail_each_call(unsigned int (*life)(int fail));

#undef wait_for
#define wait_for(cond) cr_assert(until(cond), "no '%s' in time", #cond)

#endif
