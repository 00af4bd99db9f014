/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Parse values without libc's strto*(), whose symbol versions depend on the
 * glibc of the build.  The whole text must be the value: no blanks, no sign,
 * no trailing characters.  Return 0, -EINVAL for text that is no such value,
 * or -ERANGE for a value out of bounds; outputs change only on success.
 * Nothing is logged: the caller knows where the text came from.
 */
#ifndef WEFT_UTIL_PARSE_H
#define WEFT_UTIL_PARSE_H

#include <stdbool.h>
#include <stddef.h>
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
/*
 * Expand an entry of a device list in UCX's form: "mlx5_[0-3]:1" stands for
 * four names, any other text for itself (ucs_config_array_expand_range() in
 * ucs/config/parser.c of 1.22).  Writes the @i-th name, from 0.  False: there
 * are fewer, or the name does not fit into @size bytes.
 */
bool weft_range_name(const char *entry, size_t len, unsigned int i, char *name,
		     size_t size);
/*
 * Is it 0 as NCCL reads its settings, by strtoll(text, NULL, 0)?  So is any
 * text without a number.
 */
bool weft_is_zero(const char *text);
/* "5000" or "5000-5100", 1 to 65535, first <= last */
int weft_parse_ports(const char *text, uint16_t *first, uint16_t *last);

#endif
