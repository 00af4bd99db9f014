/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef WEFT_UTIL_UTIL_H
#define WEFT_UTIL_UTIL_H

#include <stddef.h>
#include <stdint.h>

#define ARRAY_SIZE(a) (sizeof(a) / sizeof((a)[0]))
#define BIT(n)	      (1ull << (n))
#define WEFT_EXPORT   __attribute__((visibility("default")))
#define container_of(ptr, type, member) \
	((type *)((char *)(ptr)-offsetof(type, member)))

static inline size_t weft_min(size_t a, size_t b)
{
	return a < b ? a : b;
}

static inline size_t weft_max(size_t a, size_t b)
{
	return a > b ? a : b;
}

/* Overwrite @p, even if the compiler sees no later reader. */
static inline void weft_wipe(void *p, size_t n)
{
	volatile unsigned char *c = p;

	while (n--)
		*c++ = 0;
}

/* Get @n random bytes from the kernel.  0 or -errno. */
int weft_random(void *buf, size_t n);

#endif
