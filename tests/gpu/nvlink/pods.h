/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Two processes that share no namespace, only a folder: what two pods of one
 * host are.  What the test itself must agree on goes through memory that both
 * inherited; the device under test never sees it.
 */
#ifndef WEFT_TESTS_PODS_H
#define WEFT_TESTS_PODS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct pods_options {
	bool share_net;	      /* keep one network namespace */
	unsigned int limit_s; /* then both are killed */
};

/* Runs @fn(rank) in both; 0 when both returned 0. */
int pods_run(const struct pods_options *opt, int (*fn)(int rank));

/* In the children.  @progress is called while waiting. */
void pods_barrier(void (*progress)(void));
/* Hands over @len bytes (at most 512) each way; a barrier, too. */
void pods_exchange(const void *mine, void *theirs, size_t len,
		   void (*progress)(void));
/* For the other one, at any time: how often was it raised? */
void pods_raise(void);
unsigned int pods_raised(void);
int pods_rank(void);

/* Names what is going on, for the watchdog's message; both ranks. */
void pods_step(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

/* Results, kept by both and printed by pods_report() in the parent. */
void pods_result(double target, const char *unit, double value, const char *fmt,
		 ...) __attribute__((format(printf, 4, 5)));
/* A table on stdout and, where @json is given, the same there.  0: all met. */
int pods_report(const char *title, const char *json);

double pods_now(void); /* seconds */

#define pods_fail(...) pods_fail_at(__FILE__, __LINE__, __VA_ARGS__)
void pods_fail_at(const char *file, int line, const char *fmt, ...)
	__attribute__((noreturn, format(printf, 3, 4)));

#endif
