/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The harness of the conformance list: two sides of one device in one process,
 * each with an interface, an inbox and counters.  Every wait is bounded; a wait
 * that ends without its condition fails the test and says which.
 */
#ifndef WEFT_TESTS_CONFORMANCE_PAIR_H
#define WEFT_TESTS_CONFORMANCE_PAIR_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "devices/device.h"

#define WAIT_MS 30000

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
	bool slow;	   /* emulated or sanitized: see rounds() */
};
extern const struct device_row *row;	     /* the one under test */
extern const struct weft_dev_ops memory_ops; /* memory.c */

/* How often a test repeats itself, or how many take part in it. */
static inline unsigned int rounds(unsigned int n)
{
	return row->slow ? n / 8 : n;
}

struct inbox_message {
	struct inbox_message *next;
	uint8_t id;
	size_t len;
	uint8_t data[];
};

struct side {
	const struct weft_dev_ops *ops;
	struct weft_iface *iface;
	struct weft_iface_attr attr;
	struct weft_ep *ep; /* the one that connect_sides() made */
	struct inbox_message *first, **last;
	unsigned int messages, notifies, errors, readies;
	uint64_t notify_tag, notify_size;
	int error; /* of the last on_error() */
	void *error_user;
	/* called for each message instead of keeping it, where set */
	void (*hook)(struct side *s, uint8_t id, void *data, size_t len);
	void *hook_arg;
};

struct wait_op {
	struct weft_op op;
	unsigned int done;
	int status;
	void (*hook)(struct wait_op *w);
	void *hook_arg;
};

void fail_at(const char *file, int line, const char *fmt, ...)
	__attribute__((noreturn, format(printf, 3, 4)));
/* Shared by all processes of a test: why it is skipped. */
#define SKIP_REASON_MAX 128
extern char *skip_reason;
void skip_test(const char *fmt, ...)
	__attribute__((noreturn, format(printf, 1, 2)));

#define check(cond, ...)                                          \
	do {                                                      \
		if (!(cond))                                      \
			fail_at(__FILE__, __LINE__, __VA_ARGS__); \
	} while (0)
#define check_int(got, want)                                                \
	do {                                                                \
		long long got_ = (got), want_ = (want);                     \
		if (got_ != want_)                                          \
			fail_at(__FILE__, __LINE__, "%s is %lld, not %lld", \
				#got, got_, want_);                         \
	} while (0)

void side_open(struct side *s);
void side_close(struct side *s);
struct weft_ep *side_connect(struct side *from, const struct side *to,
			     void *user);
/* Opens both and connects them both ways (s->ep). */
void sides_open(struct side *a, struct side *b);
/* Bulk reads that still find what came (t_order.c); -1: all. */
extern atomic_int bulk_reads;

/* Called by sides_open() when both are connected, where set. */
extern void (*sides_are_open)(void);
void sides_close(struct side *a, struct side *b);
/*
 * After a refused key, or giving up what was under way: both endpoints have
 * failed where the device says so, and live on where it does not.  Both sides
 * are connected when this returns.
 */
void sides_mend(struct side *a, struct side *b);
void side_progress(struct side *s);
void both_progress(struct side *a, struct side *b);
struct inbox_message *side_take(struct side *s);

/* Progresses both (either may be NULL) until @cond, or fails the test. */
#define wait_for(a, b, cond)                                          \
	do {                                                          \
		uint64_t end_ = now_ms() + WAIT_MS;                   \
		while (!(cond)) {                                     \
			both_progress(a, b);                          \
			if (now_ms() > end_)                          \
				fail_at(__FILE__, __LINE__,           \
					"no '%s' within %d s", #cond, \
					WAIT_MS / 1000);              \
		}                                                     \
	} while (0)
/* Progresses both for @ms. */
void run_for(struct side *a, struct side *b, unsigned int ms);
uint64_t now_ms(void);

/* @len, or what a message of the device can be if that is less. */
static inline size_t fit(const struct side *s, size_t len)
{
	return len < s->attr.max_message ? len : s->attr.max_message;
}

void wait_op_init(struct wait_op *w);
/* Sends, waiting for room; the message is the pattern of @seed. */
void send_pattern(struct side *s, struct side *other, struct weft_ep *ep,
		  uint8_t id, size_t len, unsigned int seed);
void check_message(struct side *s, uint8_t id, size_t len, unsigned int seed);
/* Puts or gets and waits for the completion; returns its status. */
int put_wait(struct side *s, struct side *other, const void *src, size_t len,
	     uint64_t addr, const void *key, const struct weft_notify *notify);
int get_wait(struct side *s, struct side *other, void *dst, size_t len,
	     uint64_t addr, const void *key);

/* From now on warnings and errors are kept instead of written. */
void log_keep(void);
/* How many of them contain @part ("": any). */
unsigned int log_lines(const char *part);

/* A pattern that depends on the seed and on every offset. */
void pattern_fill(void *p, size_t len, unsigned int seed);
void pattern_check(const char *what, const void *p, size_t len,
		   unsigned int seed);
uint8_t pattern_byte(size_t off, unsigned int seed);

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
void target_close(struct target *t);

/* A plain TCP connection to where @s listens. */
int raw_connect(const struct side *s);
unsigned int count_sockets(void);

struct conformance_test {
	const char *name;
	void (*run)(void);
};
extern const struct conformance_test message_tests[], put_tests[],
	order_tests[], stall_tests[], end_tests[], meet_tests[], port_tests[],
	wait_tests[], stream_tests[], cheat_tests[], skew_tests[],
	leave_tests[], limit_tests[];

#endif
