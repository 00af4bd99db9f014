/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The harness of the conformance list: two sides of the device under test in
 * one process, and memory with guards around it.
 */
#ifndef WEFT_TESTS_CONFORMANCE_PAIR_H
#define WEFT_TESTS_CONFORMANCE_PAIR_H

#include <stdatomic.h>

#include "tests/lib/pair.h"

struct device_row {
	const char *name;
	const struct weft_dev_ops *ops;
	const char *netdev;
	int family;
	const char *other; /* of every second side; NULL: the same */
	bool one_socket;   /* for all endpoints of a pair, and kept */
	bool own_keys;	   /* not those of the region table */
	bool sockets;	   /* bulk too, from a port open to all */
	bool in_process;   /* no socket, no peer elsewhere */
	bool gpu;	   /* all memory is a GPU's */
	bool blocks;	   /* has neither messages nor notifications */
	bool slow;	   /* emulated or sanitized: see rounds() */
	bool soft_roce;	   /* may lose the answer to what it refused */
};
extern const struct device_row *row;	     /* the one under test */
extern const struct weft_dev_ops memory_ops; /* memory.c */

static inline enum weft_mem_kind mem_kind(void)
{
	return row->gpu ? WEFT_MEM_CUDA : WEFT_MEM_HOST;
}

/* How often a test repeats itself, or how many take part in it. */
static inline unsigned int rounds(unsigned int n)
{
	return row->slow ? n / 8 : n;
}

/* Shared by all processes of a test: why it is skipped. */
#define SKIP_REASON_MAX 128
extern char *skip_reason;
void skip_test(const char *fmt, ...)
	__attribute__((noreturn, format(printf, 1, 2)));

void side_open(struct side *s);
struct weft_ep *side_connect(struct side *from, const struct side *to,
			     void *user);
/* Opens both and connects them both ways (s->ep). */
void sides_open(struct side *a, struct side *b);
/* Bulk reads that still find what came (cases/order.c); -1: all. */
extern atomic_int bulk_reads;

/* Called before both are connected to each other, and when they are. */
extern void (*sides_connect_hook)(bool connected);
void sides_close(struct side *a, struct side *b);
/* After an operation has failed: both endpoints fail, and are made again. */
void sides_fail(struct side *a, struct side *b);
/*
 * After giving up what was under way: the same where the device says so; else
 * the endpoints live on.  Both sides are connected when this returns.
 */
void sides_mend(struct side *a, struct side *b);

/* @len, or what a message of the device can be if that is less. */
static inline size_t fit(const struct side *s, size_t len)
{
	return row->blocks || len < s->attr.max_message ? len
							: s->attr.max_message;
}

/* Sends, waiting for room; the message is the pattern of @seed. */
void send_pattern(struct side *s, struct side *other, struct weft_ep *ep,
		  uint8_t id, size_t len, unsigned int seed);
void check_message(struct side *s, uint8_t id, size_t len, unsigned int seed);
/* Starts a put or a get: it is under way, and a hook may be given to @w. */
void put_start(struct side *s, struct wait_op *w, const void *src, size_t len,
	       uint64_t addr, const void *key);
void get_start(struct side *s, struct wait_op *w, void *dst, size_t len,
	       uint64_t addr, const void *key);
/* Until @w, a struct wait_op, is done, with the status @want. */
#define wait_status(a, b, w, want)           \
	do {                                 \
		wait_for(a, b, (w).done);    \
		check_int((w).status, want); \
	} while (0)
/* Puts or gets and waits for the completion; returns its status. */
int put_wait(struct side *s, struct side *other, const void *src, size_t len,
	     uint64_t addr, const void *key, const struct weft_notify *notify);
int get_wait(struct side *s, struct side *other, void *dst, size_t len,
	     uint64_t addr, const void *key);

/* Registered memory between two poisoned guards. */
struct target {
	uint8_t *map;
	size_t map_len;
	uint8_t *buf;
	size_t len;
	struct weft_mem *mem;
	uint8_t key[WEFT_RKEY_MAX];
};
#define GUARD  4096
#define POISON 0xa5
void target_open(struct target *t, size_t len);
void target_poison(struct target *t);
void target_check_guards(const struct target *t);
void target_check_poison(const struct target *t, size_t from, size_t to);
/* Bytes that change after @a's on_error(): runs both for a while and looks. */
void target_watch_quiet(struct side *a, struct side *b, const struct target *t);
/*
 * A byte that may be written meanwhile.  An engine does not ask the processor,
 * but ThreadSanitizer knows the fake driver's as a thread.
 */
uint8_t peek(const uint8_t *at);
void target_close(struct target *t);
/* A put of @len bytes into memory of its own, of which every byte is right. */
void put_checked(struct side *s, struct side *other, size_t len,
		 unsigned int seed);
/* A plain TCP connection to where @s listens. */
int raw_connect(const struct side *s);
/* Of this process: sockets and memory that can be shared. */
unsigned int count_descriptors(void);

struct conformance_test {
	const char *name;
	void (*run)(void);
	bool waits; /* most of its time: others may run beside it */
};
extern const struct conformance_test message_tests[], put_tests[],
	order_tests[], stall_tests[], end_tests[], killed_tests[], meet_tests[],
	unproven_tests[], port_tests[], wait_tests[], stream_tests[],
	cheat_tests[], greedy_tests[], skew_tests[], leave_tests[],
	exit_tests[], limit_tests[], fail_tests[], outage_tests[], fork_tests[];

#endif
