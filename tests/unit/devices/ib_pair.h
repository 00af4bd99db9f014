/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Two interfaces of the InfiniBand device on the fake adapter, in one process.
 */
#ifndef WEFT_TESTS_UNIT_IB_PAIR_H
#define WEFT_TESTS_UNIT_IB_PAIR_H

#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "bootstrap/settings.h"
#include "devices/device.h"
#include "tests/lib/fake_verbs.h"
#include "util/clock.h"

#define WAIT_MS 30000
#define LEN	3000000

struct side {
	struct weft_iface *iface;
	struct weft_ep *ep;
	unsigned int messages, errors;
	uint32_t last;
	int error;
	bool disorder;
	/* what a test looks at; NULL: nobody does */
	void (*notified)(uint64_t tag, uint64_t size);
	void (*told)(uint32_t number);
};

struct wait_op {
	struct weft_op op;
	bool done;
	int status;
};

extern const struct weft_dev_ops *const ib;
extern struct side a, b;
extern char logged[4096]; /* everything that was */
/* Empties it; what is said again and again is logged again. */
void hear_anew(void);

void begin(void);
void end(void);
int open_side(struct side *s, const char *name);
int connect_side(struct side *s, struct side *to);
void close_side(struct side *s);
void pair_up(void);
void pair_down(void);
/* Progresses what is open. */
void turn(void);
void nothing_lives(const char *when);
/* Messages carry their number; on_message() looks for disorder. */
int send_number(struct side *s, uint32_t n);
uint8_t *buffer(uint8_t value);
/* Puts all of @src from a to b; its status, or why it was not taken. */
int put_all(uint8_t *src, uint8_t *dst, struct weft_mem *mem);
/* Without inline data is as good. */
bool unneeded(const char *call);
/* That, and what gives something back at the end. */
bool survived(const char *call);
void op_done(struct weft_op *op, int status);
void on_notify(void *arg, uint64_t tag, uint64_t size);
void on_error(void *arg, struct weft_ep *ep, void *user, int err);
void on_ready(void *arg, struct weft_ep *ep, void *user);

/* For Criterion, whose arguments may not begin with an operator. */
static inline bool yes(bool it_is)
{
	return it_is;
}

/* False: not within WAIT_MS. */
#define until(cond)                                      \
	yes(({                                           \
		uint64_t end_ = weft_now_ms() + WAIT_MS; \
		while (!(cond) && weft_now_ms() < end_)  \
			turn();                          \
		(cond);                                  \
	}))

#endif
