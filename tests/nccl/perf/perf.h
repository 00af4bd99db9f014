/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * nccl_perf: conformance and speed of an NCCL network plugin, without NCCL and
 * without a GPU.  Each case runs in fresh processes ("ranks"), so that a crash,
 * a hang or a leak in one says nothing about the next.
 */
#ifndef WEFT_TOOLS_PERF_PERF_H
#define WEFT_TOOLS_PERF_PERF_H

#include <stddef.h>
#include <stdint.h>
#include "tests/nccl/perf/plugin.h"
#include "util/list.h"

#define PERF_RANKS_MAX 4
#define PERF_ENV_MAX   16

struct perf_options {
	const char *plugin;
	int api[2];		       /* of even and of odd ranks */
	const char *netns[2];	       /* NULL: the caller's */
	const char *env[PERF_ENV_MAX]; /* "RANK:NAME=VALUE" */
	unsigned int nenv;
	unsigned int time_limit; /* s per case */
	unsigned int comms;	 /* of the speed part */
	size_t max_size;	 /* of the speed part */
	int json, verbose;	 /* flags */
};

/* One process of a case. */
struct perf {
	const struct perf_options *opt;
	struct perf_plugin plugin;
	int rank, ranks;
	int wire[PERF_RANKS_MAX]; /* to the other ranks */
	int report;
	int fds, threads; /* before the plugin was loaded */
};

struct perf_case {
	const char *name;
	const char *what;
	int ranks;
	void (*run)(struct perf *p);
	unsigned int slow; /* time limits that it may take; 0: 1 */
	bool once;	   /* long, and the same in each version */
	bool killed;	   /* kill its last rank */
};
extern const struct perf_case perf_cases[];
extern const struct perf_case perf_speed;

enum perf_verdict { PERF_OK, PERF_SKIPPED, PERF_FAILED };

/* Runs it; @text gets the reason of a failure, or what the case reported. */
enum perf_verdict perf_run(const struct perf_case *c,
			   const struct perf_options *opt, char *text,
			   size_t len);

/* The exit status of a program that has one case, of two ranks. */
int perf_main(void (*run)(struct perf *p), const struct perf_options *opt);

/* For cases; these end the process. */
void perf_fail(struct perf *p, const char *fmt, ...)
	__attribute__((noreturn, format(printf, 2, 3)));
void perf_skip(struct perf *p, const char *fmt, ...)
	__attribute__((noreturn, format(printf, 2, 3)));
/* A line for the user, from rank 0. */
void perf_say(struct perf *p, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));
/* A result of NCCL's that must be success. */
void perf_check(struct perf *p, enum nccl_result r, const char *call);

/* Bytes to another rank over the side channel, and a meeting of all. */
void perf_tell(struct perf *p, int rank, const void *buf, size_t len);
void perf_hear(struct perf *p, int rank, void *buf, size_t len);
void perf_meet(struct perf *p);

double perf_now(void); /* s */
/* Closes the plugin, which must leave no descriptor and no thread. */
void perf_unload(struct perf *p);

/* move.c: links and transfers */

/* Both directions to another rank; a side that is not wanted stays NULL. */
struct perf_link {
	void *send, *recv;
};
void perf_join(struct perf *p, int rank, struct perf_link *l);
/* One way; the ranks of both arguments call it.  The comm of this side. */
void *perf_join_one(struct perf *p, int from, int to, struct perf_link *l);
/* Calls in turn, as NCCL does, until the sides that are not NULL are there. */
void perf_establish(struct perf *p, void *listener, char *handle,
		    struct perf_link *l);
void perf_leave(struct perf *p, struct perf_link *l);
/* After a meeting. */
void perf_leave_all(struct perf *p, struct perf_link *l, unsigned int n);

struct perf_buf {
	size_t whole; /* bytes from base on */
	char *base;   /* poisoned guard, data, guard */
	char *data;
	size_t size;
	void *mr;
	void *comm;
};
/* @shift: bytes off alignment. */
void perf_buf_new(struct perf *p, struct perf_buf *b, void *comm, size_t size,
		  size_t shift);
void perf_buf_free(struct perf *p, struct perf_buf *b);
/* Its registration is gone already. */
void perf_buf_drop(struct perf_buf *b);
/* The bytes of message @seed, and a look whether they came, and only they. */
void perf_fill(void *data, size_t size, uint64_t seed);
void perf_poison(struct perf *p, struct perf_buf *b);
/* @room: bytes from @at on that no other message may have written to. */
void perf_look(struct perf *p, struct perf_buf *b, size_t at, size_t size,
	       size_t room, uint64_t seed, const char *what);

struct perf_op {
	bool send;
	bool early; /* receive: early completion is fine */
	bool posted, done;
	void *comm;
	void *data;
	size_t size;
	void *mr;
	int tag;
	void *req;
	int got;		 /* bytes; -1 until done */
	enum nccl_result result; /* as post or test gave it */
};
/* @size bytes from @at on in @b, over its comm. */
struct perf_op perf_part(bool send, const struct perf_buf *b, size_t at,
			 size_t size);
/* One round over all: posts in order per comm, at most @window a way; tests. */
unsigned int perf_step(struct perf *p, struct perf_op *op, unsigned int n,
		       unsigned int window);
/* Until all are done; any result but success fails the case. */
void perf_finish(struct perf *p, struct perf_op *op, unsigned int n,
		 unsigned int window);
/* Until each has ended in one way or the other, which fails after @limit s. */
void perf_end_all(struct perf *p, struct perf_op *op, unsigned int n,
		  unsigned int limit);
/* How many requests this version of NCCL has out at a time. */
unsigned int perf_window(const struct perf *p);

#endif
