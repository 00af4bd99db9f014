/* SPDX-License-Identifier: BSD-3-Clause */
/* "NAME=value" lines as the environment of everything that reads it. */
#include <stdlib.h>
#include <string.h>

#include "host/netdevs.h"
#include "settings/settings.h"
#include "ucx_tl/ucxenv.h"
#include "util/log.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void quiet(void *arg, enum weft_level level, const char *file, int line,
		  const char *text)
{
	if (strlen(text) > 4096)
		abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const char *const names[] = { "lo", "eth0", "" };
	struct weft_ucxenv out[WEFT_UCXENV_MAX];
	const struct weft_settings *s;
	struct weft_setting_info info;
	char *text, *line, *save, *value;
	size_t i, n;

	text = malloc(size + 1);
	if (!text)
		return 0;
	memcpy(text, data, size);
	text[size] = '\0';
	clearenv();
	for (line = strtok_r(text, "\n", &save); line;
	     line = strtok_r(NULL, "\n", &save)) {
		value = strchr(line, '=');
		/* Not the file system: a secret may be in any file. */
		if (!value || value == line ||
		    !strncmp(line, "WEFT_SECRET", 11))
			continue;
		*value++ = '\0';
		setenv(line, value, 1);
	}
	weft_log_set_sink(quiet, NULL);
	weft_settings_reset();
	s = weft_settings();
	if (s->tcp_chunk < 4096 || s->tcp_chunk > 64 << 20 ||
	    s->ports.first > s->ports.last || !s->connect_timeout_ms)
		abort();
	for (i = 0; i < weft_settings_count(); i++)
		weft_settings_info(i, &info);
	for (i = 0; i < 3; i++) {
		weft_netdevs_allowed(names[i]);
		weft_netdevs_named(names[i]);
	}
	weft_netdevs_verbs_allowed("mlx5_0", 1, "ib0");
	weft_is_requested("weft_tcp");
	weft_ucxenv_option("TLS", "tcp");
	weft_ucxenv(WEFT_UCXENV_LOADED, out);
	n = weft_ucxenv(WEFT_UCXENV_RUN, out);
	if (n > WEFT_UCXENV_MAX)
		abort();
	free(text);
	return 0;
}
