/* SPDX-License-Identifier: BSD-3-Clause */
#include "stats/output.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "settings/settings.h"
#include "util/file.h"
#include "util/log.h"

/* "%p" becomes the pid. */
static void expand_path(const char *from, char path[WEFT_STATS_PATH_LEN])
{
	size_t n = 0;

	for (; *from && n + 16 < WEFT_STATS_PATH_LEN; from++) {
		if (from[0] == '%' && from[1] == 'p') {
			n += (size_t)snprintf(path + n, 16, "%d", getpid());
			from++;
		} else {
			path[n++] = *from;
		}
	}
	path[n] = '\0';
}

const char *weft_stats_export_path(void)
{
	static const char prefix[] = "prometheus:";
	const char *to = weft_settings()->stats;

	return strncmp(to, prefix, sizeof(prefix) - 1)
		       ? NULL
		       : to + sizeof(prefix) - 1;
}

int weft_stats_open_output(void)
{
	const char *to = weft_settings()->stats;
	char path[WEFT_STATS_PATH_LEN];
	const char *why;
	struct statx st;
	int fd;

	if (!*to || !strcmp(to, "0") || weft_stats_export_path())
		return -1;
	if (!strcmp(to, "1"))
		return fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 3);
	expand_path(to, path);
	/* no link of either kind: in /tmp anyone can plant one */
	fd = weft_file_open(AT_FDCWD, path,
			    O_WRONLY | O_APPEND | O_CREAT | O_NOFOLLOW, 0644,
			    &st, &why);
	if (fd >= 0 && st.stx_nlink > 1) {
		close(fd);
		fd = -1;
		why = "it has a second name (a hard link)";
	}
	if (fd < 0)
		weft_warn_once(
			"cannot write counters to '%s', named by WEFT_STATS: %s",
			path, why);
	return fd;
}

void weft_stats_name_export(const char *to, const char *host,
			    const char *runtime, char path[WEFT_STATS_PATH_LEN])
{
	struct statx st;
	size_t n;

	expand_path(to, path);
	n = strlen(path);
	if (!statx(AT_FDCWD, path, 0, STATX_TYPE, &st) && S_ISDIR(st.stx_mode))
		snprintf(path + n, WEFT_STATS_PATH_LEN - n,
			 "/weft-%s-%d-%s.prom", host, getpid(), runtime);
}
