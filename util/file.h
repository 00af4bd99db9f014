/* SPDX-License-Identifier: BSD-3-Clause */
/* Opening files in folders that others may write to. */
#ifndef WEFT_UTIL_FILE_H
#define WEFT_UTIL_FILE_H

struct statx;

/*
 * openat(), for a regular file of this user or root alone.  Never waits, as
 * open() does for the other end of a FIFO.  Symbolic links are followed unless
 * @flags has O_NOFOLLOW: what they lead to is checked all the same.  @st may be
 * NULL.  Returns the descriptor, or -errno and in *@why a text that speaks of
 * the file as "it".
 */
int weft_file_open(int dir, const char *name, int flags, unsigned int mode,
		   struct statx *st, const char **why);

#endif
