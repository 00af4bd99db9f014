/* SPDX-License-Identifier: BSD-3-Clause */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>

#include "settings/table.h"
#include "util/parse.h"
#include "util/util.h"

static int parse_level(const char *text, const char **value)
{
	static const char *const names[] = { "error", "warn", "info", "debug" };
	size_t i;

	for (i = 0; i < ARRAY_SIZE(names); i++)
		if (!strcasecmp(text, names[i])) {
			*value = names[i];
			return 0;
		}
	return -EINVAL;
}

static int parse_tristate(const char *text, enum weft_tristate *value)
{
	bool on;

	if (!strcasecmp(text, "auto")) {
		*value = WEFT_AUTO;
		return 0;
	}
	if (weft_parse_bool(text, &on))
		return -EINVAL;
	*value = on ? WEFT_ON : WEFT_OFF;
	return 0;
}

static int parse_uint(const struct weft_setting *row, const char *text,
		      unsigned int *value)
{
	uint64_t v;
	int err;

	/* -1 is NCCL's "auto" */
	if (row->type == WEFT_SET_AUTO_UINT &&
	    (!strcasecmp(text, "auto") || !strcmp(text, "-1"))) {
		*value = row->automatic;
		return 0;
	}
	if (row->type == WEFT_SET_MINOR) {
		if (!*text) {
			*value = 0;
			return 0;
		}
		if (!strncmp(text, "1.", 2))
			text += 2;
	}
	err = weft_parse_u64(text, row->min, row->max, &v);
	if (!err)
		*value = (unsigned int)v;
	return err;
}

/*
 * "1.0s", "500ms", "20us", "800ns", "2m", or a bare number of seconds
 * (ucs/config/parser.c, ucs_config_sscanf_time()), in ns.
 */
static int parse_ucx_time(const char *text, double *ns)
{
	static const struct {
		const char *name;
		double ns;
	} units[] = {
		{ "", 1e9 },   { "s", 1e9 }, { "ms", 1e6 },
		{ "us", 1e3 }, { "ns", 1 },  { "m", 60e9 },
	};
	double v = 0, place = 1;
	const char *p = text;
	size_t i;

	for (; *p >= '0' && *p <= '9'; p++)
		v = v * 10 + (*p - '0');
	if (*p == '.')
		for (p++; *p >= '0' && *p <= '9'; p++)
			v += (*p - '0') * (place /= 10);
	if (p == text || !strcmp(text, "."))
		return -EINVAL;
	for (i = 0; i < ARRAY_SIZE(units); i++)
		if (!strcmp(p, units[i].name)) {
			*ns = v * units[i].ns;
			return 0;
		}
	return -EINVAL;
}

/* The exponent of the nearest time (uct_ib_to_qp_fabric_time() of UCX). */
static int parse_ib_timeout(const struct weft_setting *row, const char *origin,
			    const char *text, unsigned int *value)
{
	const double sqrt2 = 1.4142135623730951;
	unsigned int n = (unsigned int)row->min;
	double ns;
	int err;

	if (strncmp(origin, "UCX_", 4))
		return parse_uint(row, text, value);
	err = parse_ucx_time(text, &ns);
	if (err)
		return err;
	while (n < row->max && ns >= 4096.0 * (1u << n) * sqrt2)
		n++;
	*value = n;
	return 0;
}

static int parse_size(const struct weft_setting *row, const char *text,
		      size_t *value)
{
	uint64_t v;
	int err;

	if (!strcmp(row->def, "auto") && !strcasecmp(text, "auto")) {
		*value = 0;
		return 0;
	}
	err = weft_parse_size(text, row->min, row->max, &v);
	if (!err)
		*value = (size_t)v;
	return err;
}

static int parse_family(const char *text, int *value)
{
	if (!strcasecmp(text, "any"))
		*value = AF_UNSPEC;
	else if (!strcasecmp(text, "ipv4") || !strcmp(text, "4") ||
		 !strcmp(text, "AF_INET"))
		*value = AF_INET;
	else if (!strcasecmp(text, "ipv6") || !strcmp(text, "6") ||
		 !strcmp(text, "AF_INET6"))
		*value = AF_INET6;
	else
		return -EINVAL;
	return 0;
}

static int parse_ports(const char *text, struct weft_port_range *value)
{
	struct weft_port_range r = { 0, 0 };
	int err = 0;

	/* "any port" in UCX */
	if (strcmp(text, "0") && strcmp(text, "0-0"))
		err = weft_parse_ports(text, &r.first, &r.last);
	if (!err)
		*value = r;
	return err;
}

int weft_setting_parse(const struct weft_setting *row, const char *origin,
		       const char *text, struct weft_settings *s)
{
	void *to = (char *)s + row->at;

	switch (row->type) {
	case WEFT_SET_TEXT:
		*(const char **)to = text;
		return 0;
	case WEFT_SET_LEVEL:
		return parse_level(text, to);
	case WEFT_SET_TRISTATE:
		return parse_tristate(text, to);
	case WEFT_SET_UINT:
	case WEFT_SET_AUTO_UINT:
	case WEFT_SET_MINOR:
		return parse_uint(row, text, to);
	case WEFT_SET_IB_TIMEOUT:
		return parse_ib_timeout(row, origin, text, to);
	case WEFT_SET_SIZE:
		return parse_size(row, text, to);
	case WEFT_SET_MSEC:
		return weft_parse_msec(text, row->min, row->max, to);
	case WEFT_SET_FAMILY:
		return parse_family(text, to);
	case WEFT_SET_PORTS:
		return parse_ports(text, to);
	}
	return -EINVAL;
}

/* Format @v in the largest unit that is exact. */
static void format_scaled(uint64_t v, const char *const *units,
			  const uint32_t *steps, char *buf, size_t len)
{
	while (*steps && v && v % *steps == 0) {
		v /= *steps++;
		units++;
	}
	snprintf(buf, len, "%llu%s", (unsigned long long)v, *units);
}

const char *weft_setting_bounds(const struct weft_setting *row, char *buf,
				size_t len)
{
	static const char *const bytes[] = { "", "k", "m", "g" };
	static const uint32_t by_1024[] = { 1024, 1024, 1024, 0 };
	static const char *const times[] = { "ms", "s", "m", "h" };
	static const uint32_t by_60[] = { 1000, 60, 60, 0 };
	const bool automatic = !strcmp(row->def, "auto");
	char min[32], max[32];

	switch (row->type) {
	case WEFT_SET_TEXT:
		return "a text";
	case WEFT_SET_LEVEL:
		return "error, warn, info or debug";
	case WEFT_SET_TRISTATE:
		return "auto, on or off";
	case WEFT_SET_FAMILY:
		return "any, ipv4 or ipv6";
	case WEFT_SET_PORTS:
		return "a port or a range within 1-65535, or 0 for any";
	case WEFT_SET_MINOR:
		snprintf(buf, len, "a UCX version from 1.%llu to 1.%llu",
			 (unsigned long long)row->min,
			 (unsigned long long)row->max);
		return buf;
	case WEFT_SET_SIZE:
		format_scaled(row->min, bytes, by_1024, min, sizeof(min));
		format_scaled(row->max, bytes, by_1024, max, sizeof(max));
		break;
	case WEFT_SET_MSEC:
		format_scaled(row->min, times, by_60, min, sizeof(min));
		format_scaled(row->max, times, by_60, max, sizeof(max));
		break;
	case WEFT_SET_UINT:
	case WEFT_SET_AUTO_UINT:
	case WEFT_SET_IB_TIMEOUT:
		snprintf(min, sizeof(min), "%llu",
			 (unsigned long long)row->min);
		snprintf(max, sizeof(max), "%llu",
			 (unsigned long long)row->max);
		break;
	}
	snprintf(buf, len, "%sfrom %s to %s", automatic ? "auto or " : "", min,
		 max);
	return buf;
}
