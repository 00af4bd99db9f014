/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The program that a lying peer of frames.c, nvl.c and shm.c meets: its memory,
 * its operations, and what must hold whatever the peer says.
 */
#ifndef WEFT_TESTS_FUZZ_VICTIM_H
#define WEFT_TESTS_FUZZ_VICTIM_H

#include "devices/device.h"

#define VICTIM_MEMORY 8192

struct victim {
	const char *name; /* in what it says */
	const struct weft_dev_ops *dev;
	size_t max_message;
	struct weft_mem *mem; /* of victim_memory */
};
extern struct victim victim;
extern uint8_t *const victim_memory; /* guarded; to be registered */
extern unsigned int victim_ended;    /* calls of its on_error() */

/* Its callbacks; arg counts on_error(), for others' interfaces elsewhere. */
extern const struct weft_iface_cb victim_cb;

/* What ends a run without a finding of the sanitizers says why. */
void __attribute__((noreturn)) victim_broken(const char *what);
/* Before each input. */
void victim_begin(void);
/*
 * It puts (@control % 3 = 0), gets (1) or sends a message (2); @p overwrites
 * the key with that many bytes.
 */
void victim_act(struct weft_ep *ep, uint8_t control, const uint8_t *p,
		size_t n);
/* After each input: nothing beside the memory that it gave was written. */
void victim_check_memory(void);
/* So, and the endpoint has ended once, and every operation has ended. */
void victim_check(void);
/*
 * Sets one of the counters in @len bytes at @at to what {which, value} at @p
 * says; @control & 1: adds it.
 */
void fuzz_counter(void *at, size_t len, uint8_t control, const uint8_t *p,
		  size_t n);

#endif
