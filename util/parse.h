/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Text to values, without libc's strto* (whose symbols depend on the glibc
 * that the build saw).  The whole text must be the value: no blanks, no sign,
 * no rest.  Each returns 0, -EINVAL for text that is no such value, or -ERANGE
 * for one outside its bounds; outputs change only on success.  Nothing is
 * logged: the caller knows where the text came from.
 */
#ifndef WEFT_UTIL_PARSE_H
#define WEFT_UTIL_PARSE_H

#include <stdbool.h>
#include <stdint.h>

/* "123", "0x7b" */
int weft_parse_u64(const char *text, uint64_t min, uint64_t max,
		   uint64_t *value);
/* "4096", "64k", "64K", "1m", "2g", "64kb", "64KiB": powers of 1024 */
int weft_parse_size(const char *text, uint64_t min, uint64_t max,
		    uint64_t *value);
/* "200ms", "5s", "2m", "1h"; a bare number is seconds.  All in ms. */
int weft_parse_msec(const char *text, uint64_t min, uint64_t max,
		    uint64_t *msec);
/* "1", "y", "yes", "on", "true" and their opposites, in any case */
int weft_parse_bool(const char *text, bool *value);
/* "5000" or "5000-5100", 1 to 65535, first <= last */
int weft_parse_ports(const char *text, uint16_t *first, uint16_t *last);

#endif
