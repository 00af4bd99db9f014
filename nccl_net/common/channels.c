/* SPDX-License-Identifier: BSD-3-Clause */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include "nccl_net/common/channels.h"
#include "util/log.h"
#include "util/parse.h"
#include "util/util.h"

#define SETTING		      "NCCL_MIN_NCHANNELS"
#define NCCL_BUFFSIZE_DEFAULT (1u << 22) /* init.cc, DEFAULT_BUFFSIZE */

struct setting {
	const char *name, *value, *why;
};

/* The second one only where NCCL asks our tuner. */
static const struct setting network_settings[] = {
	{ "NCCL_P2P_NET_CHUNKSIZE", WEFT_NCCL_CHUNK,
	  "sends and receives go in fewer pieces" },
	{ SETTING, WEFT_NCCL_CHANNELS,
	  "from NCCL 2.24 on; small collectives use fewer; NCCL_TUNER_PLUGIN=none leaves both to NCCL" },
};

static const char *nonempty_env(const char *name)
{
	const char *v = getenv(name);

	return v && *v ? v : NULL;
}

/* Has the user limited the channels in another way? */
static bool channels_chosen(void)
{
	static const char *const names[] = {
		"NCCL_MAX_NCHANNELS", "NCCL_MIN_NRINGS", "NCCL_MAX_NRINGS",
		"NCCL_MIN_CTAS",      "NCCL_MAX_CTAS",
	};
	size_t i;

	for (i = 0; i < ARRAY_SIZE(names); i++)
		if (nonempty_env(names[i]))
			return true;
	return false;
}

bool weft_nccl_network_ours(void)
{
	const char *net = nonempty_env("NCCL_NET");

	return !net || !strcasecmp(net, "weft");
}

static bool is_tuner_ours(void)
{
	const char *tuner = nonempty_env("NCCL_TUNER_PLUGIN");

	/* Before NCCL 2.28 "none" asks the network plugin nevertheless. */
	return weft_nccl_network_ours() && (!tuner || strstr(tuner, "weft"));
}

/* The same for the tuner, and the user has set no number of channels. */
static bool are_channels_ours(void)
{
	const char *min = nonempty_env(SETTING);

	return !channels_chosen() &&
	       (!min || !strcmp(min, WEFT_NCCL_CHANNELS)) && is_tuner_ours();
}

static void apply_setting(const struct setting *s)
{
	if (nonempty_env(s->name))
		return;
	if (setenv(s->name, s->value, 1))
		weft_fail(-errno, "cannot set %s; large collectives stay slow",
			  s->name);
	else
		weft_info("%s is now %s: %s", s->name, s->value, s->why);
}

void weft_nccl_channels_raise(bool tuner)
{
	size_t i;

	if (!weft_nccl_network_ours())
		return;
	for (i = 0; i < ARRAY_SIZE(network_settings); i++)
		if (!i || (tuner && are_channels_ours()))
			apply_setting(&network_settings[i]);
}

bool weft_nccl_channels_raised(void)
{
	return nonempty_env(SETTING) && are_channels_ours();
}

unsigned int weft_nccl_channels_set(void)
{
	const char *v = nonempty_env(SETTING);
	uint64_t n;

	return v && !weft_parse_u64(v, 0, 255, &n) ? n : 0;
}

unsigned int weft_nccl_buffer_set(void)
{
	const char *v = nonempty_env("NCCL_BUFFSIZE");
	uint64_t n;

	if (!v || weft_parse_u64(v, 1, 255ull << 20, &n))
		n = NCCL_BUFFSIZE_DEFAULT;
	return (n + (1 << 20) - 1) >> 20;
}

bool weft_nccl_network_setting(size_t i, const char **name, const char **value,
			       const char **why)
{
	if (i >= ARRAY_SIZE(network_settings))
		return false;
	*name = network_settings[i].name;
	*value = network_settings[i].value;
	*why = network_settings[i].why;
	return true;
}
