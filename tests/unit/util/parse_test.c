/* SPDX-License-Identifier: BSD-3-Clause */
#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <criterion/parameterized.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "util/parse.h"
#include "util/util.h"

/* On refusal the output must keep this value. */
#define UNTOUCHED 4711

typedef int (*parser)(const char *text, uint64_t min, uint64_t max,
		      uint64_t *value);

struct number {
	char text[32];
	uint64_t min, max;
	int err;
	uint64_t value;
};

static void check_number(parser parse, const struct number *c)
{
	uint64_t value = UNTOUCHED;

	cr_expect(eq(int, parse(c->text, c->min, c->max, &value), c->err),
		  "'%s'", c->text);
	cr_expect(eq(u64, value, c->err ? UNTOUCHED : c->value), "'%s'",
		  c->text);
}

ParameterizedTestParameters(parse, u64)
{
	static struct number cases[] = {
		{ "0", 0, 9, 0, 0 },
		{ "9", 0, 9, 0, 9 },
		{ "10", 0, 9, -ERANGE },
		{ "4", 5, 9, -ERANGE },
		{ "007", 0, 9, 0, 7 },
		{ "0x1F", 0, 99, 0, 31 },
		{ "18446744073709551615", 0, UINT64_MAX, 0, UINT64_MAX },
		{ "18446744073709551616", 0, UINT64_MAX, -ERANGE },
		{ "99999999999999999999999", 0, UINT64_MAX, -ERANGE },
		{ "0xffffffffffffffff", 0, UINT64_MAX, 0, UINT64_MAX },
		{ "0x10000000000000000", 0, UINT64_MAX, -ERANGE },
		{ "", 0, 9, -EINVAL },
		{ "-1", 0, 9, -EINVAL },
		{ "+1", 0, 9, -EINVAL },
		{ " 1", 0, 9, -EINVAL },
		{ "1 ", 0, 9, -EINVAL },
		{ "1k", 0, 9999, -EINVAL },
		{ "0x", 0, 9, -EINVAL },
		{ "1f", 0, 99, -EINVAL },
		{ "one", 0, 9, -EINVAL },
		{ "1.5", 0, 9, -EINVAL },
	};

	return cr_make_param_array(struct number, cases, ARRAY_SIZE(cases));
}

ParameterizedTest(struct number *c, parse, u64, .timeout = 20)
{
	check_number(weft_parse_u64, c);
}

ParameterizedTestParameters(parse, size)
{
	static struct number cases[] = {
		{ "4096", 0, UINT64_MAX, 0, 4096 },
		{ "64k", 0, UINT64_MAX, 0, 65536 },
		{ "64K", 0, UINT64_MAX, 0, 65536 },
		{ "64KiB", 0, UINT64_MAX, 0, 65536 },
		{ "1m", 0, UINT64_MAX, 0, 1048576 },
		{ "2Gb", 0, UINT64_MAX, 0, 2147483648 },
		{ "17179869184g", 0, UINT64_MAX, -ERANGE },
		{ "2k", 0, 2047, -ERANGE },
		{ "2k", 0, 2048, 0, 2048 },
		{ "k", 0, UINT64_MAX, -EINVAL },
		{ "2 k", 0, UINT64_MAX, -EINVAL },
		{ "2kk", 0, UINT64_MAX, -EINVAL },
		{ "2t", 0, UINT64_MAX, -EINVAL },
	};

	return cr_make_param_array(struct number, cases, ARRAY_SIZE(cases));
}

ParameterizedTest(struct number *c, parse, size, .timeout = 20)
{
	check_number(weft_parse_size, c);
}

ParameterizedTestParameters(parse, msec)
{
	static struct number cases[] = {
		{ "5s", 1, 3600000, 0, 5000 },
		{ "5", 1, 3600000, 0, 5000 },
		{ "200ms", 1, 3600000, 0, 200 },
		{ "2M", 1, 3600000, 0, 120000 },
		{ "1h", 1, 3600000, 0, 3600000 },
		{ "2h", 1, 3600000, -ERANGE },
		{ "0", 1, 3600000, -ERANGE },
		{ "2d", 1, 3600000, -EINVAL },
		{ "ms", 1, 3600000, -EINVAL },
		{ "1.5s", 1, 3600000, -EINVAL },
	};

	return cr_make_param_array(struct number, cases, ARRAY_SIZE(cases));
}

ParameterizedTest(struct number *c, parse, msec, .timeout = 20)
{
	check_number(weft_parse_msec, c);
}

struct truth {
	char text[8];
	int err;
	bool value;
};

ParameterizedTestParameters(parse, boolean)
{
	static struct truth cases[] = {
		{ "1", 0, true },      { "0", 0, false },   { "y", 0, true },
		{ "n", 0, false },     { "Yes", 0, true },  { "NO", 0, false },
		{ "on", 0, true },     { "off", 0, false }, { "true", 0, true },
		{ "False", 0, false }, { "", -EINVAL },	    { "2", -EINVAL },
		{ "ye", -EINVAL },     { "yess", -EINVAL },
	};

	return cr_make_param_array(struct truth, cases, ARRAY_SIZE(cases));
}

ParameterizedTest(struct truth *c, parse, boolean, .timeout = 20)
{
	bool value = !c->value;

	cr_expect(eq(int, weft_parse_bool(c->text, &value), c->err), "'%s'",
		  c->text);
	cr_expect(eq(int, value, c->err ? !c->value : c->value), "'%s'",
		  c->text);
}

struct ports {
	char text[16];
	int err;
	uint16_t first, last;
};

ParameterizedTestParameters(parse, ports)
{
	static struct ports cases[] = {
		{ "5000", 0, 5000, 5000 },
		{ "5000-5100", 0, 5000, 5100 },
		{ "1-65535", 0, 1, 65535 },
		{ "7-7", 0, 7, 7 },
		{ "0", -ERANGE },
		{ "65536", -ERANGE },
		{ "9-8", -ERANGE },
		{ "1-70000", -ERANGE },
		{ "", -EINVAL },
		{ "-", -EINVAL },
		{ "5-", -EINVAL },
		{ "-5", -EINVAL },
		{ "5-6-7", -EINVAL },
		{ "5,6", -EINVAL },
		{ "http", -EINVAL },
	};

	return cr_make_param_array(struct ports, cases, ARRAY_SIZE(cases));
}

ParameterizedTest(struct ports *c, parse, ports, .timeout = 20)
{
	uint16_t first = UNTOUCHED, last = UNTOUCHED;

	cr_expect(eq(int, weft_parse_ports(c->text, &first, &last), c->err),
		  "'%s'", c->text);
	cr_expect(eq(u16, first, c->err ? UNTOUCHED : c->first), "'%s'",
		  c->text);
	cr_expect(eq(u16, last, c->err ? UNTOUCHED : c->last), "'%s'", c->text);
}

static const struct {
	const char *entry, *names;
} ranges[] = {
	{ "mlx5_[0-3]:1", "mlx5_0:1 mlx5_1:1 mlx5_2:1 mlx5_3:1 " },
	{ "eth[9-11]", "eth9 eth10 eth11 " },
	{ "[07-07]x", "7x " },
	{ "eth0", "eth0 " },
	{ "", " " },
	/* UCX takes these as they are */
	{ "eth[3-1]", "eth[3-1] " },
	{ "eth[0-1][0-1]", "eth[0-1][0-1] " },
	{ "eth]0[0-1]", "eth]0[0-1] " },
	{ "eth[0-1", "eth[0-1 " },
	{ "eth[", "eth[ " },
	{ "eth[0-", "eth[0- " },
	{ "eth[0x0-0x1]", "eth[0x0-0x1] " },
	{ "eth[-1]", "eth[-1] " },
	{ "eth[0-]", "eth[0-] " },
	{ "eth[0-99999999999999999999]", "eth[0-99999999999999999999] " },
};

Test(parse, range_expands_to_names)
{
	char name[32], all[256];
	unsigned int i, k;
	size_t n;

	for (k = 0; k < ARRAY_SIZE(ranges); k++) {
		char *entry = strdup(ranges[k].entry); /* nothing behind it */

		*all = '\0';
		for (i = 0; weft_range_name(entry, strlen(entry), i, name,
					    sizeof(name));
		     i++) {
			n = strlen(all);
			snprintf(all + n, sizeof(all) - n, "%s ", name);
		}
		free(entry);
		cr_expect(eq(str, all, (char *)ranges[k].names));
	}
	/* as many as UCX takes, and none that does not fit */
	for (i = 0; weft_range_name("e[0-4000000000]", 15, i, name, 32); i++)
		;
	cr_expect(eq(uint, i, 128));
	cr_expect(weft_range_name("eth[0-1]", 8, 0, name, 5));
	cr_expect(not(weft_range_name("eth[0-1]", 8, 0, name, 4)));
	/* no further than the entry */
	cr_expect(weft_range_name("eth[0-1],x", 8, 1, name, 32));
	cr_expect(eq(str, name, (char *)"eth1"));
	cr_expect(weft_range_name("eth[0-1]", 7, 0, name, 32));
	cr_expect(eq(str, name, (char *)"eth[0-1"));
}
