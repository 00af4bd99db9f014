/* SPDX-License-Identifier: BSD-3-Clause */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "util/parse.h"
#include "util/util.h"

struct unit {
	const char *name;
	uint64_t factor;
};

static int digit_value(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	if (c >= 'a' && c <= 'f')
		return c - 'a' + 10;
	if (c >= 'A' && c <= 'F')
		return c - 'A' + 10;
	return 16;
}

/* Reads the digits at *text and leaves *text behind them. */
static int take_number(const char **text, uint64_t *value)
{
	const char *p = *text;
	int base = 10;
	uint64_t v = 0;

	if (p[0] == '0' && (p[1] == 'x' || p[1] == 'X')) {
		base = 16;
		p += 2;
	}
	if (digit_value(*p) >= base)
		return -EINVAL;
	for (; digit_value(*p) < base; p++)
		if (__builtin_mul_overflow(v, base, &v) ||
		    __builtin_add_overflow(v, digit_value(*p), &v))
			return -ERANGE;
	*text = p;
	*value = v;
	return 0;
}

static int take_units(const char *text, const struct unit *units, size_t n,
		      uint64_t min, uint64_t max, uint64_t *value)
{
	uint64_t v;
	size_t i;
	int err;

	err = take_number(&text, &v);
	if (err)
		return err;
	for (i = 0; i < n; i++)
		if (!strcasecmp(text, units[i].name))
			break;
	if (i == n)
		return -EINVAL;
	if (__builtin_mul_overflow(v, units[i].factor, &v) || v < min ||
	    v > max)
		return -ERANGE;
	*value = v;
	return 0;
}

int weft_parse_u64(const char *text, uint64_t min, uint64_t max,
		   uint64_t *value)
{
	static const struct unit plain[] = { { "", 1 } };

	return take_units(text, plain, ARRAY_SIZE(plain), min, max, value);
}

int weft_parse_size(const char *text, uint64_t min, uint64_t max,
		    uint64_t *value)
{
	static const struct unit sizes[] = {
		{ "", 1 },
		{ "b", 1 },
		{ "k", 1ull << 10 },
		{ "kb", 1ull << 10 },
		{ "kib", 1ull << 10 },
		{ "m", 1ull << 20 },
		{ "mb", 1ull << 20 },
		{ "mib", 1ull << 20 },
		{ "g", 1ull << 30 },
		{ "gb", 1ull << 30 },
		{ "gib", 1ull << 30 },
	};

	return take_units(text, sizes, ARRAY_SIZE(sizes), min, max, value);
}

int weft_parse_msec(const char *text, uint64_t min, uint64_t max,
		    uint64_t *msec)
{
	static const struct unit times[] = {
		{ "", 1000 },	    { "ms", 1 },	  { "s", 1000 },
		{ "m", 60 * 1000 }, { "h", 3600 * 1000 },
	};

	return take_units(text, times, ARRAY_SIZE(times), min, max, msec);
}

int weft_parse_bool(const char *text, bool *value)
{
	static const char *const words[][2] = {
		{ "0", "1" },	 { "n", "y" },	      { "no", "yes" },
		{ "off", "on" }, { "false", "true" },
	};
	size_t i;
	int v;

	for (i = 0; i < ARRAY_SIZE(words); i++)
		for (v = 0; v < 2; v++)
			if (!strcasecmp(text, words[i][v])) {
				*value = v;
				return 0;
			}
	return -EINVAL;
}

bool weft_is_zero(const char *text)
{
	const char *digits = "0123456789";

	text += strspn(text, " \t\n\v\f\r");
	text += *text == '-' || *text == '+';
	if (text[0] == '0' && (text[1] == 'x' || text[1] == 'X')) {
		digits = "0123456789abcdefABCDEF";
		text += 2;
	} else if (text[0] == '0') {
		digits = "01234567";
	}
	text += strspn(text, "0");
	return !*text || !strchr(digits, *text);
}

int weft_parse_ports(const char *text, uint16_t *first, uint16_t *last)
{
	uint64_t lo, hi;
	int err;

	err = take_number(&text, &lo);
	if (err)
		return err;
	hi = lo;
	if (*text == '-') {
		text++;
		err = take_number(&text, &hi);
		if (err)
			return err;
	}
	if (*text)
		return -EINVAL;
	if (lo < 1 || hi > UINT16_MAX || lo > hi)
		return -ERANGE;
	*first = lo;
	*last = hi;
	return 0;
}

#define RANGE_MAX 128 /* names of one list: UCS_CONFIG_ARRAY_MAX */

static bool take_decimal(const char **text, uint64_t *value)
{
	const char *p = *text;

	return *p >= '0' && *p <= '9' && p[1] != 'x' && p[1] != 'X' &&
	       !take_number(text, value);
}

/* "prefix[first-last]suffix": *@at points to '[', *@rest after ']'. */
static bool take_range(const char *entry, size_t len, const char **at,
		       const char **rest, uint64_t *first, uint64_t *last)
{
	const char *end = entry + len, *p;

	*at = memchr(entry, '[', len);
	if (!*at || memchr(entry, ']', (size_t)(*at - entry)))
		return false;
	p = *at + 1;
	if (!take_decimal(&p, first) || *p++ != '-' ||
	    !take_decimal(&p, last) || p >= end || *p++ != ']' ||
	    *first > *last)
		return false;
	*rest = p;
	return !memchr(p, '[', (size_t)(end - p)) &&
	       !memchr(p, ']', (size_t)(end - p));
}

bool weft_range_name(const char *entry, size_t len, unsigned int i, char *name,
		     size_t size)
{
	const char *at, *rest;
	uint64_t first, last;
	int n;

	if (!take_range(entry, len, &at, &rest, &first, &last)) {
		n = snprintf(name, size, "%.*s", (int)len, entry);
		return !i && n < (int)size;
	}
	if (i > last - first || i >= RANGE_MAX)
		return false;
	n = snprintf(name, size, "%.*s%llu%.*s", (int)(at - entry), entry,
		     (unsigned long long)(first + i), (int)(entry + len - rest),
		     rest);
	return n < (int)size;
}
