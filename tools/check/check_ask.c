/* SPDX-License-Identifier: BSD-3-Clause */
/* The asking side of weft check: what it measures and prints. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "settings/settings.h"
#include "tools/check/check_control.h"
#include "tools/tool.h"
#include "util/clock.h"
#include "util/util.h"

#define CHECK_WHOLE_MS 40000 /* after that no further device is measured */

static int run_measurements(struct check *c, struct check_pair *pair)
{
	static const size_t messages[] = { 8, 8 << 10 };
	static const size_t blocks[] = { 4 << 10, 64 << 10, 1 << 20,
					 CHECK_BUFFER };
	double usec;
	char text[32];
	size_t i;
	int err = 0;

	puts("\n  message      one way");
	for (i = 0; i < ARRAY_SIZE(messages) && !err; i++) {
		err = check_latency(c, messages[i], &usec);
		if (!err)
			printf("  %-10s %6.1f us\n",
			       check_format_size(messages[i], text,
						 sizeof(text)),
			       usec);
		if (!i)
			pair->rates.usec = usec;
	}
	if (!err) {
		putchar('\n');
		err = check_blocks(c, blocks, ARRAY_SIZE(blocks), &pair->rates);
	}
	return err ? err : check_gpus(c, &pair->gpu);
}

const char *check_format_pair(const struct check_pair *pair,
			      char label[CHECK_PAIR_LEN])
{
	snprintf(label, CHECK_PAIR_LEN, "weft_%s %s - %s",
		 pair->here->ops->name, pair->here->name, pair->there->name);
	return label;
}

/* A device beside the first: one size, a line. */
static int measure_in_short(struct check *c, const struct check_pair *pair,
			    struct check_rates *rates)
{
	static const size_t warm_up = 64 << 10;
	char label[CHECK_PAIR_LEN];
	size_t size = CHECK_BUFFER;
	int err;

	err = check_speed(c, CHECK_PUT, warm_up, &rates->put);
	if (!err && check_is_slow(size, rates->put))
		size = warm_up;
	if (!err)
		err = check_bytes(c, CHECK_PUT, size);
	if (!err)
		err = check_bytes(c, CHECK_GET, size);
	if (!err)
		err = check_latency(c, 8, &rates->usec);
	if (!err)
		err = check_speed(c, CHECK_PUT, size, &rates->put);
	if (!err)
		err = check_speed(c, CHECK_GET, size, &rates->get);
	if (err)
		return err;
	printf("  %-36s %7.1f us %10.0f %10.0f\n",
	       check_format_pair(pair, label), rates->usec, rates->put / 1e6,
	       rates->get / 1e6);
	return 0;
}

/* The other side's control port, found once. */
struct place {
	const char *host, *port;
	struct addrinfo *all;
	bool json;
};

/* -errno if there is no answer. */
static int dial(const struct place *place, const char *device)
{
	struct check_request request = { .device = "" };
	const struct addrinfo *ai;
	int fd = -1, err = 0;

	for (ai = place->all; ai && fd < 0; ai = ai->ai_next) {
		fd = socket(ai->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
		if (fd < 0)
			continue;
		check_set_patience(fd);
		if (!connect(fd, ai->ai_addr, ai->ai_addrlen))
			break;
		/* a connect() that SO_SNDTIMEO ends (socket(7)) */
		err = errno == EINPROGRESS ? ETIMEDOUT : errno;
		close(fd);
		fd = -1;
	}
	if (fd < 0)
		return -err;
	memcpy(request.magic, check_magic, sizeof(check_magic));
	snprintf(request.device, sizeof(request.device), "%s", device);
	if (check_send(fd, &request, sizeof(request)) || check_send_proof(fd)) {
		close(fd);
		return -EIO;
	}
	return fd;
}

static int measure_pair(const struct place *place, struct check_pair *pair)
{
	const bool first = pair->here->route;
	struct check c;
	const int fd = dial(place, pair->there->name);

	if (fd < 0)
		return tool_error("check", "cannot reach '%s' again: %s",
				  place->host, strerror(-fd));
	pair->err = check_connect_device(&c, fd, pair->here);
	if (!pair->err) {
		if (first)
			printf("%s, over weft_%s on %s\n", place->host,
			       c.ops->name, pair->here->name);
		pair->err = first ? run_measurements(&c, pair)
				  : measure_in_short(&c, pair, &pair->rates);
	}
	pair->measured = !pair->err;
	if (!pair->err)
		check_bye(&c);
	check_close(&c);
	close(fd);
	return pair->err;
}

/* Returns whether all that is measured works. */
static bool measure_pairs(const struct place *place, struct check_pair *pairs,
			  int n)
{
	const uint64_t end = weft_now_ms() + CHECK_WHOLE_MS;
	char label[CHECK_PAIR_LEN];
	bool works;
	int i;

	works = !measure_pair(place, pairs);
	/* if the first device does not work, others would fail as well */
	if (works && n > 1)
		printf("\n  %-36s %10s %10s %10s\n",
		       "other devices, here - there", "8 B", "put MB/s",
		       "get MB/s");
	for (i = 1; i < n && works; i++)
		if (weft_now_ms() < end)
			measure_pair(place, &pairs[i]);
		else
			printf("  %-36s not measured, out of time\n",
			       check_format_pair(&pairs[i], label));
	for (i = 1; i < n; i++)
		works &= !pairs[i].err;
	if (works)
		puts("\nEvery byte of every size was compared, both ways: it works.");
	return works;
}

static void print_json(const struct place *place,
		       const struct check_pair *pairs, int n, bool works)
{
	int i;

	printf("{\"host\":");
	tool_print_json(place->host);
	printf(",\"works\":%s,\"devices\":[", works ? "true" : "false");
	for (i = 0; i < n; i++) {
		printf("%s{\"weft\":\"%s\",\"here\":\"%s\",\"there\":\"%s\"",
		       i ? "," : "", pairs[i].here->ops->name,
		       pairs[i].here->name, pairs[i].there->name);
		if (pairs[i].measured)
			printf(",\"message_us\":%.1f,"
			       "\"put_bytes_per_s\":%.0f,"
			       "\"get_bytes_per_s\":%.0f",
			       pairs[i].rates.usec, pairs[i].rates.put,
			       pairs[i].rates.get);
		if (pairs[i].err)
			printf(",\"error\":\"%s\"", strerror(-pairs[i].err));
		putchar('}');
	}
	printf("],\"change\":[");
}

/* Discards what is printed until speak(), which gets the result. */
static int hush(void)
{
	int out;

	fflush(stdout);
	out = dup(STDOUT_FILENO);
	if (out < 0 || !freopen("/dev/null", "w", stdout))
		return -1;
	return out;
}

static void speak(int out)
{
	fflush(stdout);
	dup2(out, STDOUT_FILENO);
	close(out);
}

/* Over the connection on which the list was asked for. */
static int run_check(const struct place *place, int fd)
{
	struct check_pair pairs[CHECK_DEVICES_MAX];
	struct check_list here, there;
	uint8_t text[CHECK_LIST_LEN];
	struct weft_netif route;
	int err, n, out = -1;
	bool works;

	if (check_find_netif(fd, &route) || check_read_verdict(fd) ||
	    check_read(fd, text, sizeof(text)))
		return EXIT_FAILED;
	err = check_list_own(&route, &here);
	if (err)
		return tool_error("check", "%s", strerror(-err));
	if (check_unpack_list(text, &there))
		return tool_error(
			"check",
			"the other side is not 'weft check' of this release");
	n = check_match(&here, &there, pairs);
	if (!n)
		return tool_error("check",
				  "the two sides have no device in common");
	if (place->json) {
		out = hush();
		if (out < 0)
			return tool_error("check", "cannot write: %m");
	}
	works = measure_pairs(place, pairs, n);
	if (place->json) {
		speak(out);
		print_json(place, pairs, n, works);
	}
	check_advise(pairs, n, &here, &there, place->json);
	if (place->json)
		puts("]}");
	else
		check_report(pairs, n, works);
	return works ? 0 : EXIT_FAILED;
}

int check_host(char *where, bool json)
{
	const struct addrinfo hints = {
		.ai_socktype = SOCK_STREAM,
		.ai_family = weft_settings()->family,
	};
	struct place place = { .json = json };
	char *host;
	int fd, err;

	if (check_split_host_port(where, &host, &place.port))
		return usage_error("check", "'%s' is not HOST or HOST:PORT",
				   where);
	if (!*host)
		return usage_error("check", "no host given");
	if (check_require_secret())
		return EXIT_FAILED;
	place.host = host;
	err = getaddrinfo(host, place.port, &hints, &place.all);
	if (err) {
		tool_error("check", "cannot resolve '%s'%s: %s", host,
			   hints.ai_family ? " within WEFT_FAMILY" : "",
			   gai_strerror(err));
		return EXIT_AWAY;
	}
	fd = dial(&place, "");
	if (fd >= 0) {
		err = run_check(&place, fd);
		close(fd);
	} else {
		tool_error(
			"check",
			"cannot reach '%s' on port %s: %s; is 'weft check --listen' running there?",
			host, place.port, strerror(-fd));
		err = EXIT_AWAY;
	}
	freeaddrinfo(place.all);
	return err;
}
