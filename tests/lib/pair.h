/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Sides of one device: an interface each, an inbox, counters, and what a test
 * does with them.  Every wait is bounded; one that ends without its condition
 * fails the test and says which.  Used by the conformance list, by unit tests
 * under Criterion and by programs that run in containers.
 */
#ifndef WEFT_TESTS_LIB_PAIR_H
#define WEFT_TESTS_LIB_PAIR_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "devices/device.h"

#define WAIT_MS 30000
#define BUSY_MS 20

struct inbox_message {
	struct inbox_message *next;
	uint8_t id;
	size_t len;
	uint8_t data[];
};

struct side {
	const struct weft_dev_ops *ops;
	struct weft_iface *iface; /* NULL: closed */
	struct weft_iface_attr attr;
	struct weft_ep *ep; /* side_close() destroys it */
	struct inbox_message *first, **last;
	unsigned int messages, notifies, errors, readies;
	uint64_t notify_tag, notify_size;
	int error; /* of the last on_error() */
	void *error_user;
	/* called for each message instead of keeping it, where set */
	void (*hook)(struct side *s, uint8_t id, void *data, size_t len);
	void *hook_arg;
	/* called for each notification, where set */
	void (*notify_hook)(uint64_t tag, uint64_t size);
};

struct wait_op {
	struct weft_op op;
	unsigned int done;
	int status;
	void (*hook)(struct wait_op *w);
	void *hook_arg;
};
#define WAIT_OP                         \
	{                               \
		.op.done = wait_op_done \
	}

/* The program's own: says why, and ends the test. */
void fail_at(const char *file, int line, const char *fmt, ...)
	__attribute__((noreturn, format(printf, 3, 4)));

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

/* Opens an interface with callbacks that count; 0 or its error. */
int side_init(struct side *s, const struct weft_dev_ops *ops,
	      const char *netdev, int family);
/* A second call does nothing. */
void side_close(struct side *s);
/* Makes @from's endpoint to @to (from->ep); 0 or ep_create()'s error. */
int side_dial(struct side *from, const struct side *to);
void side_progress(struct side *s);
/* Has its descriptor anything to say, within @ms? */
bool side_is_woken(struct side *s, int ms);
/* Those that are NULL or closed are left out. */
void both_progress(struct side *a, struct side *b);
/* The oldest message, which is the caller's to free; NULL: none. */
struct inbox_message *side_take(struct side *s);

/* For a wait that began at @begin: after BUSY_MS it leaves the processor. */
void leave_cpu(uint64_t begin);
/* Calls @step until @cond, or for WAIT_MS; has @cond come true? */
#define step_until(step, cond)                                           \
	({                                                               \
		const uint64_t begin_ = now_ms();                        \
		bool is_;                                                \
		while (!(is_ = (cond)) && now_ms() - begin_ < WAIT_MS) { \
			step;                                            \
			leave_cpu(begin_);                               \
		}                                                        \
		is_;                                                     \
	})
/* Progresses both (either may be NULL) until @cond, or fails the test. */
#define wait_for(a, b, cond)                                                \
	check(step_until(both_progress(a, b), cond), "no '%s' within %d s", \
	      #cond, WAIT_MS / 1000)
/* Progresses both for @ms. */
void run_for(struct side *a, struct side *b, unsigned int ms);
uint64_t now_ms(void);

void wait_op_init(struct wait_op *w);
void wait_op_done(struct weft_op *op, int status);

/* From now on warnings and errors are kept in @logged instead of written. */
void log_keep(void);
extern char logged[16384]; /* a line each */
/* How many of them contain @part ("": any). */
unsigned int log_lines(const char *part);

/* A pattern that depends on the seed and on every offset. */
void pattern_fill(void *p, size_t len, unsigned int seed);
void pattern_check(const char *what, const void *p, size_t len,
		   unsigned int seed);
uint8_t pattern_byte(size_t off, unsigned int seed);

#endif
