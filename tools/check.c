/* SPDX-License-Identifier: BSD-3-Clause */
/* weft check: command line, control connection and output. */
#include <errno.h>
#include <getopt.h>
#include <netdb.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <unistd.h>

#include "bootstrap/settings.h"
#include "tools/check.h"
#include "tools/tool.h"
#include "util/clock.h"
#include "util/parse.h"
#include "util/util.h"

#define DEFAULT_PORT "19515"
#define GUESTS	     64 /* connections that have not sent their card */

static const char help[] =
	"usage: weft check HOST[:PORT]\n"
	"       weft check --listen [[ADDRESS]:PORT]\n"
	"\n"
	"Does weft work between two hosts, and how fast? Run 'weft check "
	"--listen' on\n"
	"one and 'weft check HOST' on the other. It sends messages both ways, "
	"puts and\n"
	"gets blocks of growing size, compares every byte, and then measures "
	"the speed.\n"
	"If both sides have a GPU, it does the same between their memory.\n"
	"\n"
	"  -l, --listen  serve checks, one after the other, until stopped\n"
	"  -h, --help    show this\n"
	"\n"
	"PORT is that of the control connection (default " DEFAULT_PORT
	"; 0 is any free port).\n"
	"On both hosts the device listens on another port, of "
	"WEFT_PORT_RANGE. Write an\n"
	"IPv6 address in brackets: [fd00::1]:19515.\n";

/* The first message of each side on the control connection. */
struct card {
	char magic[8]; /* "WEFTCHK1" */
	uint8_t iface[WEFT_IFACE_ADDR_LEN];
	uint8_t dev_len;
	uint8_t dev[WEFT_DEV_ADDR_MAX];
};
_Static_assert(sizeof(struct card) == 55, "no padding");
static const char card_magic[8] = { 'W', 'E', 'F', 'T', 'C', 'H', 'K', '1' };

/* "host:port", "[v6]:port", "v6", "host"; modifies @text and returns parts. */
static int split_host_port(char *text, char **host, const char **port)
{
	char *end = strrchr(text, ':');
	uint64_t n;

	*host = text;
	*port = DEFAULT_PORT;
	if (*text == '[') {
		(*host)++;
		end = strchr(text, ']');
		if (!end || (end[1] && end[1] != ':'))
			return -EINVAL;
		*end++ = '\0';
		if (!*end)
			return 0;
	} else if (!end || strchr(text, ':') != end) {
		return 0; /* no port, or an IPv6 address without brackets */
	}
	*end++ = '\0';
	*port = end;
	return weft_parse_u64(end, 0, 65535, &n);
}

static void convert_sockaddr(const struct sockaddr_storage *ss,
			     union weft_sockaddr *sa)
{
	memset(sa, 0, sizeof(*sa));
	if (ss->ss_family == AF_INET6)
		memcpy(&sa->in6, ss, sizeof(sa->in6));
	else
		memcpy(&sa->in, ss, sizeof(sa->in));
	/* on a dual-stack socket IPv4 is ::ffff:10.0.0.1 */
	if (ss->ss_family == AF_INET6 &&
	    IN6_IS_ADDR_V4MAPPED(&sa->in6.sin6_addr)) {
		const struct sockaddr_in6 v6 = sa->in6;

		memset(sa, 0, sizeof(*sa));
		sa->in.sin_family = AF_INET;
		sa->in.sin_port = v6.sin6_port;
		memcpy(&sa->in.sin_addr, &v6.sin6_addr.s6_addr[12], 4);
	}
}

/* The interface of the control connection. */
static int find_local_netif(int fd, struct weft_netif *netif)
{
	struct sockaddr_storage ss;
	socklen_t len = sizeof(ss);
	struct weft_netif *list;
	char text[WEFT_SOCKADDR_STR];
	union weft_sockaddr sa;
	int n, i, err = -ENODEV;

	if (getsockname(fd, (struct sockaddr *)&ss, &len))
		return -errno;
	convert_sockaddr(&ss, &sa);
	n = weft_netif_list(sa.sa.sa_family, &list);
	for (i = 0; i < n; i++)
		if (weft_netif_has(list[i].name, &sa)) {
			*netif = list[i];
			err = 0;
			break;
		}
	if (n >= 0)
		free(list);
	if (err) {
		tool_error("check", "no interface has the address of %s",
			   weft_sockaddr_str(&sa, text, sizeof(text)));
	} else if (!weft_settings_netdev_allowed(netif->name)) {
		tool_error("check",
			   "the route to the other side uses %s, which the "
			   "list of interfaces excludes ('weft info' shows "
			   "which list)",
			   netif->name);
		err = -ENODEV;
	}
	return err;
}

static int exchange_cards(int fd, const struct weft_address *own,
			  struct weft_address *peer)
{
	struct card card = { .dev_len = 0 };
	size_t have = 0;
	ssize_t n;

	memcpy(card.magic, card_magic, sizeof(card_magic));
	weft_address_pack_iface(own, card.iface);
	card.dev_len = (uint8_t)weft_address_pack_dev(own, card.dev);
	if (send(fd, &card, sizeof(card), MSG_NOSIGNAL) != sizeof(card)) {
		tool_error("check", "cannot send: %m");
		return -EIO;
	}
	while (have < sizeof(card)) {
		n = read(fd, (char *)&card + have, sizeof(card) - have);
		if (n <= 0) {
			tool_error("check", "no answer from the other side: %s",
				   n ? strerror(errno)
				     : "it closed the connection");
			return -EIO;
		}
		have += (size_t)n;
	}
	if (memcmp(card.magic, card_magic, sizeof(card_magic)) ||
	    card.dev_len > sizeof(card.dev) ||
	    weft_address_unpack(card.iface, sizeof(card.iface), card.dev,
				card.dev_len, peer)) {
		tool_error("check", "the other side is not 'weft check'");
		return -EPROTO;
	}
	return 0;
}

/* Open the device on the control connection's interface and connect it. */
static int connect_device(struct check *c, int fd, struct weft_netif *netif)
{
	const struct timeval patience = { .tv_sec = CHECK_PATIENCE_MS / 1000 };
	struct weft_address own, peer;
	char text[WEFT_SOCKADDR_STR];
	const char *why = "the device refused";
	int err;

	memset(c, 0, sizeof(*c));
	c->control = fd;
	setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
	setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof(patience));
	err = find_local_netif(fd, netif);
	if (!err)
		err = check_open(c, &weft_tcp_ops, netif->name,
				 netif->addr.sa.sa_family, NULL, &own);
	if (!err)
		err = exchange_cards(fd, &own, &peer);
	if (!err && !c->ops->reaches(c->iface, &peer, &why)) {
		tool_error("check", "cannot reach %s over %s: %s",
			   weft_sockaddr_str(&peer.sa, text, sizeof(text)),
			   netif->name, why);
		err = -EHOSTUNREACH;
	}
	return err ? err : check_connect(c, &peer);
}

static const char *format_size(size_t size, char *buf, size_t len)
{
	if (size >= 1 << 20)
		snprintf(buf, len, "%zu MiB", size >> 20);
	else if (size >= 1 << 10)
		snprintf(buf, len, "%zu KiB", size >> 10);
	else
		snprintf(buf, len, "%zu B", size);
	return buf;
}

int check_blocks(struct check *c, const size_t *sizes, size_t n)
{
	double put, get;
	char text[32];
	size_t i;
	int err = 0;

	puts("  block         put MB/s   get MB/s");
	for (i = 0; i < n && !err; i++) {
		err = check_bytes(c, CHECK_PUT, sizes[i]);
		if (!err)
			err = check_bytes(c, CHECK_GET, sizes[i]);
		if (!err)
			err = check_speed(c, CHECK_PUT, sizes[i], &put);
		if (!err)
			err = check_speed(c, CHECK_GET, sizes[i], &get);
		if (!err)
			printf("  %-10s %11.0f %10.0f\n",
			       format_size(sizes[i], text, sizeof(text)),
			       put / 1e6, get / 1e6);
		fflush(stdout);
	}
	return err;
}

static int run_measurements(struct check *c)
{
	static const size_t messages[] = { 8, 8 << 10 };
	static const size_t blocks[] = { 4 << 10, 64 << 10, 1 << 20, 16 << 20,
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
			       format_size(messages[i], text, sizeof(text)),
			       usec);
	}
	if (!err) {
		putchar('\n');
		err = check_blocks(c, blocks, ARRAY_SIZE(blocks));
	}
	if (!err)
		err = check_gpus(c);
	if (!err)
		puts("\nEvery byte of every size was compared, both ways: it "
		     "works.");
	return err;
}

static int check_host(char *where)
{
	struct addrinfo hints = { .ai_socktype = SOCK_STREAM }, *all, *ai;
	struct weft_netif netif;
	struct check c;
	const char *port;
	char *host;
	int fd = -1, err;

	if (split_host_port(where, &host, &port) || !*host)
		return usage_error("check", "'%s' is not HOST or HOST:PORT",
				   where);
	err = getaddrinfo(host, port, &hints, &all);
	if (err)
		return tool_error("check", "cannot resolve '%s': %s", host,
				  gai_strerror(err));
	for (ai = all; ai && fd < 0; ai = ai->ai_next) {
		fd = socket(ai->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
		if (fd >= 0 && connect(fd, ai->ai_addr, ai->ai_addrlen)) {
			err = errno;
			close(fd);
			fd = -1;
		}
	}
	freeaddrinfo(all);
	if (fd < 0)
		return tool_error("check",
				  "cannot reach '%s' on port %s: %s; is "
				  "'weft check --listen' running there?",
				  host, port, strerror(err));
	err = connect_device(&c, fd, &netif);
	if (!err) {
		printf("%s, over weft_%s on %s\n", host, c.ops->name,
		       netif.name);
		err = run_measurements(&c);
	}
	if (!err)
		check_bye(&c);
	check_close(&c);
	close(fd);
	return err ? EXIT_FAILED : 0;
}

static void serve_one(int fd, const union weft_sockaddr *from)
{
	char text[WEFT_SOCKADDR_STR];
	struct weft_netif netif;
	struct check c;
	int err;

	weft_sockaddr_str(from, text, sizeof(text));
	err = connect_device(&c, fd, &netif);
	if (!err) {
		printf("%s, over weft_%s on %s\n", text, c.ops->name,
		       netif.name);
		fflush(stdout);
		err = check_serve(&c);
		if (err)
			tool_error("check", "%s: %s", text, strerror(-err));
	}
	check_close(&c);
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

/* Accepted connections that have not sent their card, oldest first. */
struct guests {
	struct pollfd fds[1 + GUESTS]; /* behind the listener */
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
	const int whole = sizeof(struct card);
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
	/* readable with the whole card, or at the end of the stream */
	setsockopt(fd, SOL_SOCKET, SO_RCVLOWAT, &whole, sizeof(whole));
	g->fds[g->n] = (struct pollfd){ .fd = fd, .events = POLLIN };
	convert_sockaddr(&ss, &g->from[g->n]);
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

static int run_listener(char *where)
{
	struct sockaddr_storage ss;
	union weft_sockaddr sa;
	socklen_t len = sizeof(ss);
	const char *port;
	char *host;
	int fd, err;

	if (split_host_port(where, &host, &port))
		return usage_error("check", "'%s' is not [ADDRESS]:PORT",
				   where);
	fd = open_listener(host, port);
	if (fd < 0)
		return EXIT_FAILED;
	getsockname(fd, (struct sockaddr *)&ss, &len);
	convert_sockaddr(&ss, &sa);
	printf("listening on port %u; on the other host: weft check "
	       "THISHOST:%u\n",
	       ntohs(sa.in.sin_port), ntohs(sa.in.sin_port));
	fflush(stdout);
	err = serve_guests(fd);
	close(fd);
	return err;
}

int check_main(int argc, char **argv)
{
	static const struct option options[] = {
		{ "listen", no_argument, NULL, 'l' },
		{ "help", no_argument, NULL, 'h' },
		{ 0 },
	};
	char any[] = "";
	bool serve_guests = false;
	int c;

	opterr = 0;
	while ((c = getopt_long(argc, argv, "lh", options, NULL)) != -1) {
		switch (c) {
		case 'l':
			serve_guests = true;
			break;
		case 'h':
			fputs(help, stdout);
			return 0;
		default:
			return usage_error("check", "unknown option '%s'",
					   argv[optind - 1]);
		}
	}
	if (argc - optind > 1)
		return usage_error("check", "more than one host");
	if (serve_guests)
		return run_listener(optind < argc ? argv[optind] : any);
	if (optind == argc)
		return usage_error("check", "no host given");
	return check_host(argv[optind]);
}
