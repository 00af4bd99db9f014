/* SPDX-License-Identifier: BSD-3-Clause */
#include "stats/prometheus.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "util/util.h"

#define COUNTERS (sizeof(struct weft_counters) / sizeof(uint64_t))

void weft_counters_add(struct weft_counters *to,
		       const struct weft_counters *from)
{
	const uint64_t most = weft_max(atomic_load(&to->streams_max),
				       atomic_load(&from->streams_max));

#define X(name, help) atomic_fetch_add(&to->name, atomic_load(&from->name));
	WEFT_COUNTERS(X)
#undef X
	atomic_store(&to->streams_max, most);
}

void weft_sums_add(struct weft_sums *sums, const char *device,
		   const char *netdev, const struct weft_counters *c)
{
	struct weft_sum *sum = sums->list;
	struct weft_sum *const end = sums->list + sums->n;
	struct weft_sum *const last = sums->list + ARRAY_SIZE(sums->list) - 1;

	while (sum < end && sum < last &&
	       (strcmp(sum->device, device) || strcmp(sum->netdev, netdev)))
		sum++;
	if (sum == end) {
		sums->n++;
		*sum = (struct weft_sum){ .device = "" };
		snprintf(sum->device, sizeof(sum->device), "%s",
			 sum == last ? "other" : device);
		snprintf(sum->netdev, sizeof(sum->netdev), "%s",
			 sum == last ? "other" : netdev);
	}
	weft_counters_add(&sum->c, c);
}

static const _Atomic uint64_t *counter_at(const struct weft_counters *c,
					  size_t at)
{
	return (const _Atomic uint64_t *)((const char *)c + at);
}

struct text {
	char *at;
	size_t n, room;
};

static void append(struct text *text, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));

static void append(struct text *text, const char *fmt, ...)
{
	va_list args;
	int n;

	va_start(args, fmt);
	n = vsnprintf(text->at + text->n, text->room - text->n, fmt, args);
	va_end(args);
	text->n = weft_min(text->n + (size_t)n, text->room - 1);
}

static void append_metric(struct text *text, const char *name, const char *help,
			  size_t at, const char *labels,
			  const struct weft_sums *sums)
{
	/* the most that there was at once is no sum */
	const bool gauge = !strcmp(name, "streams_max");
	const char *end = gauge ? "" : "_total";
	const struct weft_sum *sum;

	append(text, "# HELP weft_%s%s %s\n# TYPE weft_%s%s %s\n", name, end,
	       help, name, end, gauge ? "gauge" : "counter");
	for (sum = sums->list; sum < sums->list + sums->n; sum++)
		append(text,
		       "weft_%s%s{%s,device=\"%s\",interface=\"%s\"} %" PRIu64
		       "\n",
		       name, end, labels, sum->device, sum->netdev,
		       atomic_load(counter_at(&sum->c, at)));
}

/* Readable by the exporter, which is another user. */
static int open_new(const char *path)
{
	const int fd =
		open(path, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC,
		     0644);

	if (fd < 0)
		return -errno;
	return fd;
}

static int write_text(int fd, const char *labels, const struct weft_sums *sums)
{
	/* names, help and figure of a line take less than 256 bytes */
	const size_t line = 256 + strlen(labels);
	struct text text = { .room = COUNTERS * line * (sums->n + 1) };
	int err = 0;

	text.at = malloc(text.room);
	if (!text.at)
		return -ENOMEM;
#define X(name, help)                     \
	append_metric(&text, #name, help, \
		      offsetof(struct weft_counters, name), labels, sums);
	WEFT_COUNTERS(X)
#undef X
	if (write(fd, text.at, text.n) != (ssize_t)text.n)
		err = -ENOSPC;
	free(text.at);
	return err;
}

int weft_prometheus_write(const char *path, const char *labels,
			  const struct weft_sums *sums)
{
	char new[4096];
	uint64_t random;
	int fd, err;

	err = weft_random(&random, sizeof(random));
	if (err)
		return err;
	/* the exporter reads what ends in ".prom" */
	if (snprintf(new, sizeof(new), "%s.%016" PRIx64, path, random) >=
	    (int)sizeof(new))
		return -ENAMETOOLONG;
	fd = open_new(new);
	if (fd < 0)
		return fd;
	err = write_text(fd, labels, sums);
	close(fd);
	if (!err && rename(new, path))
		err = -errno;
	if (err)
		unlink(new);
	return err;
}
