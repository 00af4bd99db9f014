/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Memory for keys: whole pages, excluded from core dumps (MADV_DONTDUMP; where
 * the kernel refuses, a warning says so) and overwritten when freed.
 */
#ifndef WEFT_UTIL_SECRET_H
#define WEFT_UTIL_SECRET_H

#include <stddef.h>

/* @size zeroed bytes; NULL: no memory. */
void *weft_secret_alloc(size_t size);
/* @size as allocated; NULL @p is ignored. */
void weft_secret_free(void *p, size_t size);

#endif
