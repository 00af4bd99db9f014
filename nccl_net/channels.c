/* SPDX-License-Identifier: BSD-3-Clause */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include "nccl_net/channels.h"
#include "util/log.h"
#include "util/util.h"

#define SETTING	"NCCL_MIN_NCHANNELS"

static const char *set_to(const char *name)
{
	const char *v = getenv(name);

	return v && *v ? v : NULL;
}

bool weft_nccl_channels_free(void)
{
	static const char *const others[] = {
		"NCCL_MAX_NCHANNELS", "NCCL_MIN_NRINGS", "NCCL_MAX_NRINGS",
		"NCCL_MIN_CTAS", "NCCL_MAX_CTAS",
	};
	const char *min = set_to(SETTING);
	const char *net = set_to("NCCL_NET");
	const char *tuner = set_to("NCCL_TUNER_PLUGIN");
	size_t i;

	for (i = 0; i < ARRAY_SIZE(others); i++)
		if (set_to(others[i]))
			return false;
	/* "none" goes on to the network plugin before NCCL 2.28: heeded here. */
	return (!min || !strcmp(min, WEFT_NCCL_CHANNELS)) &&
	       (!net || !strcasecmp(net, "weft")) &&
	       (!tuner || strstr(tuner, "weft"));
}

void weft_nccl_channels_raise(void)
{
	if (!weft_nccl_channels_free() || set_to(SETTING))
		return;
	if (setenv(SETTING, WEFT_NCCL_CHANNELS, 1)) {
		weft_fail(errno, "cannot set " SETTING "; large collectives "
			  "stay at NCCL's own number of channels");
		return;
	}
	weft_info(SETTING " is now " WEFT_NCCL_CHANNELS ", of which small "
		  "collectives use fewer; NCCL_TUNER_PLUGIN=none leaves both to "
		  "NCCL");
}

bool weft_nccl_channels_raised(void)
{
	return set_to(SETTING) && weft_nccl_channels_free();
}
