/* SPDX-License-Identifier: BSD-3-Clause */
/* Internal to settings.c and its helpers. */
#ifndef WEFT_SETTINGS_TABLE_H
#define WEFT_SETTINGS_TABLE_H

#include <net/if.h>

#include "settings/settings.h"

enum weft_setting_type {
	WEFT_SET_TEXT,	     /* const char * */
	WEFT_SET_LEVEL,	     /* const char *: error, warn, info, debug */
	WEFT_SET_TRISTATE,   /* enum weft_tristate: auto, on, off */
	WEFT_SET_UINT,	     /* unsigned int */
	WEFT_SET_AUTO_UINT,  /* unsigned int; "auto" is .automatic */
	WEFT_SET_IB_TIMEOUT, /* unsigned int: exponent, from UCX_ a time */
	WEFT_SET_MINOR,	     /* unsigned int: "22" or "1.22", "" for 0 */
	WEFT_SET_SIZE,	     /* size_t; "auto" is 0 */
	WEFT_SET_MSEC,	     /* uint64_t */
	WEFT_SET_FAMILY,     /* int: any, ipv4, ipv6 */
	WEFT_SET_PORTS,	     /* struct weft_port_range; "0": any */
};

struct weft_setting {
	const char *name;
	const char *aliases; /* other names, the first set one wins */
	enum weft_setting_type type;
	size_t at; /* in struct weft_settings */
	const char *def;
	uint64_t min, max;
	unsigned int automatic;
	const char *help;
};

/*
 * 0, -EINVAL or -ERANGE; writes to @s on success only.  @text is borrowed; the
 * form depends on @origin, the variable that held it.
 */
int weft_setting_parse(const struct weft_setting *row, const char *origin,
		       const char *text, struct weft_settings *s);
/* The permitted values: "from 4k to 64m", "auto, on or off". */
const char *weft_setting_bounds(const struct weft_setting *row, char *buf,
				size_t len);

void weft_settings_secret_reset(void);

#endif
