/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Memory for keys: pages of their own that are left out of core dumps
 * (MADV_DONTDUMP) and overwritten when they are given back.
 */
#ifndef WEFT_UTIL_SECRET_H
#define WEFT_UTIL_SECRET_H

#include <stddef.h>

/* @size zeroed bytes, in whole pages; NULL: no memory. */
void *weft_secret_alloc(size_t size);
/* The same @size again; @p NULL: nothing. */
void weft_secret_free(void *p, size_t size);

#endif
