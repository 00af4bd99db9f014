/* SPDX-License-Identifier: BSD-3-Clause */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include "bootstrap/settings.h"
#include "nccl_net/channels.h"
#include "nccl_net/offer.h"
#include "util/log.h"
#include "util/parse.h"
#include "util/util.h"

#define SETTING	"NCCL_MIN_NCHANNELS"
#define NCCL_BUFFSIZE_DEFAULT	(1u << 22)	/* init.cc, DEFAULT_BUFFSIZE */

/* The only one that NVLink needs in any case, and ranks may differ in. */
#define GPU_MEMORY	3

/* The first one is free by more than its own name. */
static const struct {
	const char *name, *value, *why;
} nvlink_settings[] = {
	{ SETTING, WEFT_NCCL_NVLINK_CHANNELS,
	  "copies of many channels fill NVLink" },
	{ "NCCL_BUFFSIZE", "8388608", "so do copies of 2 MiB" },
	{ "NCCL_LL128_BUFFSIZE", "1048576", "LL128 is never used with weft" },
	[GPU_MEMORY] =
	{ "NCCL_NET_GDR_LEVEL", "SYS", "NCCL hands over GPU memory" },
	{ "NCCL_P2P_NET_CHUNKSIZE", "262144", "so do sends and receives" },
	{ "NCCL_NCHANNELS_PER_NET_PEER", "16",
	  "and sends and receives on many channels" },
};

/* Without NVLink.  The second one only where NCCL asks our tuner. */
static const struct {
	const char *name, *value, *why;
} network_settings[] = {
	{ "NCCL_P2P_NET_CHUNKSIZE", WEFT_NCCL_CHUNK,
	  "sends and receives go in fewer pieces" },
	{ SETTING, WEFT_NCCL_CHANNELS,
	  "from NCCL 2.24 on; small collectives use fewer; "
	  "NCCL_TUNER_PLUGIN=none leaves both to NCCL" },
};

static const char *set_to(const char *name)
{
	const char *v = getenv(name);

	return v && *v ? v : NULL;
}

static const char *our_channels(void)
{
	return weft_nccl_nvlink_raised() ? WEFT_NCCL_NVLINK_CHANNELS :
					   WEFT_NCCL_CHANNELS;
}

/* Somebody has bounded the channels in another way. */
static bool channels_chosen(void)
{
	static const char *const names[] = {
		"NCCL_MAX_NCHANNELS", "NCCL_MIN_NRINGS", "NCCL_MAX_NRINGS",
		"NCCL_MIN_CTAS", "NCCL_MAX_CTAS",
	};
	size_t i;

	for (i = 0; i < ARRAY_SIZE(names); i++)
		if (set_to(names[i]))
			return true;
	return false;
}

bool weft_nccl_network_ours(void)
{
	const char *net = set_to("NCCL_NET");

	return !net || !strcasecmp(net, "weft");
}

bool weft_nccl_channels_free(void)
{
	const char *min = set_to(SETTING);
	const char *tuner = set_to("NCCL_TUNER_PLUGIN");

	/* "none" goes on to the network plugin before NCCL 2.28: heeded here. */
	return !channels_chosen() &&
	       (!min || !strcmp(min, our_channels())) &&
	       weft_nccl_network_ours() &&
	       (!tuner || strstr(tuner, "weft"));
}

static void set(const char *name, const char *value, const char *why)
{
	if (set_to(name))
		return;
	if (setenv(name, value, 1))
		weft_fail(errno, "cannot set %s; large collectives stay slow",
			  name);
	else
		weft_info("%s is now %s: %s", name, value, why);
}

void weft_nccl_channels_raise(bool tuner)
{
	size_t i;

	if (!weft_nccl_network_ours())
		return;
	if (weft_nccl_nvlink_raised()) {
		for (i = channels_chosen(); i < ARRAY_SIZE(nvlink_settings);
		     i++)
			set(nvlink_settings[i].name, nvlink_settings[i].value,
			    nvlink_settings[i].why);
		return;
	}
	if (weft_nccl_nvlink_offered())
		set(nvlink_settings[GPU_MEMORY].name,
		    nvlink_settings[GPU_MEMORY].value,
		    nvlink_settings[GPU_MEMORY].why);
	for (i = 0; i < ARRAY_SIZE(network_settings); i++)
		if (!i || (tuner && weft_nccl_channels_free()))
			set(network_settings[i].name, network_settings[i].value,
			    network_settings[i].why);
}

bool weft_nccl_channels_raised(void)
{
	return set_to(SETTING) && weft_nccl_channels_free();
}

unsigned int weft_nccl_channels_set(void)
{
	const char *v = set_to(SETTING);
	uint64_t n;

	return v && !weft_parse_u64(v, 0, 255, &n) ? n : 0;
}

unsigned int weft_nccl_buffer_set(void)
{
	const char *v = set_to("NCCL_BUFFSIZE");
	uint64_t n;

	if (!v || weft_parse_u64(v, 1, 255ull << 20, &n))
		n = NCCL_BUFFSIZE_DEFAULT;
	return (n + (1 << 20) - 1) >> 20;
}

bool weft_nccl_nvlink_setting(size_t i, const char **name, const char **value,
			      const char **why)
{
	if (i >= ARRAY_SIZE(nvlink_settings))
		return false;
	*name = nvlink_settings[i].name;
	*value = nvlink_settings[i].value;
	if (i != GPU_MEMORY && weft_settings()->nccl_introduce != WEFT_OFF)
		*value = NULL;
	if (!i && channels_chosen())
		*value = NULL;
	*why = nvlink_settings[i].why;
	return true;
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
