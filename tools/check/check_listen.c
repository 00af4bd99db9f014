/* SPDX-License-Identifier: BSD-3-Clause */
/* The serving side of weft check. */
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "tools/check/check_control.h"
#include "tools/tool.h"
#include "util/clock.h"
#include "util/util.h"

#define GUESTS 64 /* connections that have not sent their request */

static int send_list(int fd, const struct check_list *list)
{
	uint8_t text[CHECK_LIST_LEN];

	check_pack_list(list, text);
	return check_send(fd, text, sizeof(text));
}

static int serve_device(int fd, const char *from,
			const struct check_device *device)
{
	struct check c;
	int err;

	err = check_connect_device(&c, fd, device);
	if (!err) {
		printf("%s, over weft_%s on %s\n", from, c.ops->name,
		       device->name);
		fflush(stdout);
		err = check_serve(&c);
		if (err)
			tool_error("check", "%s: %s", from, strerror(-err));
	}
	check_close(&c);
	return err;
}

static void serve_one(int fd, const union weft_sockaddr *from)
{
	struct check_list list = { .n = 0 };
	char text[WEFT_SOCKADDR_STR];
	struct weft_netif route;
	struct check_request request = { 0 };
	struct check_proof proof = { 0 };
	const int one = 1;
	bool ask;
	int i;

	weft_sockaddr_str(from, text, sizeof(text));
	check_set_patience(fd);
	/* accept_guest() has raised it; what follows is shorter */
	setsockopt(fd, SOL_SOCKET, SO_RCVLOWAT, &one, sizeof(one));
	if (!check_read(fd, &request, sizeof(request))) {
		if (memcmp(request.magic, check_magic, sizeof(check_magic)))
			tool_error("check",
				   "%s is not 'weft check' of this release",
				   text);
		else if (!check_read(fd, &proof, sizeof(proof)) &&
			 !check_find_netif(fd, &route))
			check_list_own(&route, &list);
	}
	request.device[sizeof(request.device) - 1] = '\0';
	ask = !*request.device;
	if (list.n && ask && check_answer_proof(fd, &proof, text))
		send_list(fd, &list);
	for (i = 0; i < list.n && !ask; i++)
		if (!strcmp(list.devices[i].name, request.device)) {
			serve_device(fd, text, &list.devices[i]);
			break;
		}
	close(fd);
}

/* Listen for both families if the host has both. */
static int open_listener(const char *host, const char *port)
{
	const int on = 1, off = 0;
	struct addrinfo hints = {
		.ai_socktype = SOCK_STREAM,
		.ai_flags = AI_PASSIVE,
		.ai_family = *host ? AF_UNSPEC : AF_INET6,
	}, *all, *ai;
	int fd = -1, err;

	err = getaddrinfo(*host ? host : NULL, port, &hints, &all);
	if (err) {
		tool_error("check", "cannot resolve '%s': %s", host,
			   gai_strerror(err));
		return -1;
	}
	for (ai = all; ai && fd < 0; ai = ai->ai_next) {
		fd = socket(ai->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
		if (fd < 0) {
			err = errno;
			continue;
		}
		setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
		setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof(off));
		if (bind(fd, ai->ai_addr, ai->ai_addrlen) ||
		    listen(fd, GUESTS)) {
			err = errno;
			close(fd);
			fd = -1;
		}
	}
	freeaddrinfo(all);
	if (fd < 0 && !*host)
		return open_listener("0.0.0.0", port);
	if (fd < 0)
		tool_error("check", "cannot listen on %s, port %s: %s", host,
			   port, strerror(err));
	return fd;
}

/* Accepted connections that have not sent their request, oldest first. */
struct guests {
	struct pollfd fds[1 + GUESTS]; /* after the listener */
	union weft_sockaddr from[1 + GUESTS];
	uint64_t since_ms[1 + GUESTS];
	nfds_t n;
};

static int remove_guest(struct guests *g, nfds_t i)
{
	const int fd = g->fds[i].fd;
	const size_t rest = --g->n - i;

	memmove(g->fds + i, g->fds + i + 1, rest * sizeof(*g->fds));
	memmove(g->from + i, g->from + i + 1, rest * sizeof(*g->from));
	memmove(g->since_ms + i, g->since_ms + i + 1,
		rest * sizeof(*g->since_ms));
	return fd;
}

/* 0, or -1 after an error message. */
static int accept_guest(struct guests *g)
{
	const int whole = sizeof(struct check_request);
	struct sockaddr_storage ss;
	socklen_t len = sizeof(ss);
	const int fd = accept4(g->fds[0].fd, (struct sockaddr *)&ss, &len,
			       SOCK_CLOEXEC);

	if (fd < 0) {
		if (errno == EINTR || errno == ECONNABORTED || errno == EAGAIN)
			return 0;
		tool_error("check", "cannot accept: %m");
		return -1;
	}
	if (g->n == ARRAY_SIZE(g->fds))
		close(remove_guest(g, 1));
	/* readable with the whole request, or at the end of the stream */
	setsockopt(fd, SOL_SOCKET, SO_RCVLOWAT, &whole, sizeof(whole));
	g->fds[g->n] = (struct pollfd){ .fd = fd, .events = POLLIN };
	check_convert_sockaddr(&ss, &g->from[g->n]);
	g->since_ms[g->n++] = weft_now_ms();
	return 0;
}

/* A guest that sends nothing delays no other. */
static int serve_guests(int listener)
{
	struct guests g = {
		.fds = { { .fd = listener, .events = POLLIN } },
		.n = 1,
	};
	union weft_sockaddr from;
	nfds_t i;

	for (;;) {
		poll(g.fds, g.n, g.n > 1 ? 1000 : -1);
		for (i = 1; i < g.n; i++)
			if (g.fds[i].revents)
				break;
		if (i < g.n) {
			from = g.from[i];
			serve_one(remove_guest(&g, i), &from);
			continue;
		}
		while (g.n > 1 &&
		       weft_now_ms() - g.since_ms[1] > CHECK_PATIENCE_MS)
			close(remove_guest(&g, 1));
		if (g.fds[0].revents && accept_guest(&g))
			return EXIT_FAILED;
	}
}

int check_listen(char *where)
{
	struct sockaddr_storage ss;
	union weft_sockaddr sa;
	socklen_t len = sizeof(ss);
	const char *port;
	char *host;
	int fd, err;

	if (check_split_host_port(where, &host, &port))
		return usage_error("check", "'%s' is not [ADDRESS]:PORT",
				   where);
	if (check_require_secret())
		return EXIT_FAILED;
	fd = open_listener(host, port);
	if (fd < 0)
		return EXIT_FAILED;
	getsockname(fd, (struct sockaddr *)&ss, &len);
	check_convert_sockaddr(&ss, &sa);
	printf("listening on port %u; on the other host: weft check THISHOST:%u\n",
	       ntohs(sa.in.sin_port), ntohs(sa.in.sin_port));
	fflush(stdout);
	err = serve_guests(fd);
	close(fd);
	return err;
}
