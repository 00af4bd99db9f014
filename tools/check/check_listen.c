/* SPDX-License-Identifier: BSD-3-Clause */
/* The serving side of weft check. */
#include <errno.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "tools/check/check_control.h"
#include "tools/tool.h"

#define BACKLOG	   SOMAXCONN
#define REQUEST_MS 200 /* for the rest of a request, once it has begun */

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
	/* serve_all() has raised it; what follows is shorter */
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
		    listen(fd, BACKLOG)) {
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

/*
 * The kernel keeps a connection that sends nothing, so that it delays no other,
 * and hands it over after CHECK_PATIENCE_MS (TCP_DEFER_ACCEPT in tcp(7)).
 */
static int serve_all(int listener)
{
	const int patience_s = CHECK_PATIENCE_MS / 1000;
	const int whole = sizeof(struct check_request);
	struct pollfd guest = { .events = POLLIN };
	struct sockaddr_storage ss;
	union weft_sockaddr from;
	socklen_t len;

	setsockopt(listener, IPPROTO_TCP, TCP_DEFER_ACCEPT, &patience_s,
		   sizeof(patience_s));
	for (;;) {
		len = sizeof(ss);
		guest.fd = accept4(listener, (struct sockaddr *)&ss, &len,
				   SOCK_CLOEXEC);
		if (guest.fd < 0) {
			if (errno == EINTR || errno == ECONNABORTED ||
			    errno == EAGAIN)
				continue;
			tool_error("check", "cannot accept: %m");
			return EXIT_FAILED;
		}
		check_convert_sockaddr(&ss, &from);
		/* readable with the whole request, or at its end */
		setsockopt(guest.fd, SOL_SOCKET, SO_RCVLOWAT, &whole,
			   sizeof(whole));
		if (poll(&guest, 1, REQUEST_MS) > 0)
			serve_one(guest.fd, &from);
		else
			close(guest.fd);
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
	err = serve_all(fd);
	close(fd);
	return err;
}
