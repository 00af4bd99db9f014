/* SPDX-License-Identifier: BSD-3-Clause */
/* Small files, and files in folders that others may write to. */
#ifndef WEFT_UTIL_FILE_H
#define WEFT_UTIL_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

struct statx;

/*
 * A file of /proc or /sys as a string, without its last newline, cut to @len.
 * The length, or -errno with an empty @text.
 */
ssize_t weft_file_read(const char *path, char *text, size_t len);

/*
 * May a file of this process, or memfd, have @size bytes?  Beyond RLIMIT_FSIZE
 * a write and ftruncate() raise SIGXFSZ, even where the file has room already.
 */
bool weft_file_allows(size_t size);

/*
 * openat() for regular files that belong to this user or root.  Never blocks,
 * not even on a FIFO.  Symbolic links are followed unless @flags has
 * O_NOFOLLOW, and their target is checked.  @st may be NULL.  Returns the
 * descriptor, or -errno with the reason in *@why, in which "it" is the file.
 */
int weft_file_open(int dir, const char *name, int flags, unsigned int mode,
		   struct statx *st, const char **why);

#endif
