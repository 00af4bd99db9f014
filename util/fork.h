/* SPDX-License-Identifier: BSD-3-Clause */
/* Which process something belongs to, without a system call. */
#ifndef WEFT_UTIL_FORK_H
#define WEFT_UTIL_FORK_H

/*
 * How many forks lie between the process that loaded weft and this one.  What
 * was opened at another count is the parent's: a child has none of its threads,
 * and may neither speak for it nor remove its files.
 */
unsigned int weft_forks(void);

#endif
