/* SPDX-License-Identifier: BSD-3-Clause */
/* Ports to listen on that are given as a range. */
#include "tests/conformance/pair.h"

#include <errno.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

/*
 * Who listens first at the address that is about to be listened at; -1: none.
 */
static bool rival_wanted;
static int rival = -1;

static int plain_socket(bool reuse)
{
	int fd = socket(row->family, SOCK_STREAM, 0), on = reuse;

	check(fd >= 0, "no socket");
	check(!setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)),
	      "no SO_REUSEADDR");
	return fd;
}

/* listen() of this program. */
int listen(int fd, int backlog)
{
	union weft_sockaddr sa;
	socklen_t len = sizeof(sa);

	if (rival_wanted) {
		rival_wanted = false;
		check(!getsockname(fd, &sa.sa, &len), "no name");
		rival = plain_socket(true);
		check(!bind(rival, &sa.sa, len), "bind: %s", strerror(errno));
		check(!syscall(SYS_listen, rival, 8), "the rival's listen");
	}
	return (int)syscall(SYS_listen, fd, backlog);
}

static bool port_free(unsigned int port)
{
	union weft_sockaddr sa = { .sa.sa_family = row->family };
	int fd = plain_socket(false);
	bool is;

	if (row->family == AF_INET)
		sa.in.sin_port = htons(port);
	else
		sa.in6.sin6_port = htons(port);
	is = !bind(fd, &sa.sa, weft_sockaddr_len(&sa));
	close(fd);
	return is;
}

/* The first of @n free ports, now the range. */
static unsigned int set_range(unsigned int n, char text[16])
{
	unsigned int port = 20000 + getpid() % 10000, i;

	if (!row->sockets)
		skip_test("no port to bind");
	for (i = 0; i < n;) {
		if (port_free(port + i)) {
			i++;
			continue;
		}
		port += i + 1;
		i = 0;
	}
	snprintf(text, 16, "%u-%u", port, port + n - 1);
	setenv("WEFT_PORT_RANGE", text, 1);
	return port;
}

static unsigned int port_of(const struct side *s)
{
	const union weft_sockaddr *sa = &s->attr.addr.sa;

	return ntohs(sa->sa.sa_family == AF_INET ? sa->in.sin_port
						 : sa->in6.sin6_port);
}

/* All ports of the range are taken: which, by what setting, where. */
static void used_up(void)
{
	struct weft_iface_cb cb = { 0 };
	const struct weft_iface_params params = {
		.netdev = row->netdev,
		.family = row->family,
		.cb = &cb,
	};
	struct weft_iface *iface;
	char text[16], want[128];
	struct side a;

	set_range(1, text);
	log_keep();
	side_open(&a);
	check_int(row->ops->iface_open(&params, &iface), -EADDRINUSE);
	snprintf(want, sizeof(want), "WEFT_PORT_RANGE '%s' are taken on '%s'",
		 text, row->netdev);
	check_int(log_lines(want), 1);
	check_int(log_lines(""), 1);
	side_close(&a);
}

/* What was accepted there and is in TIME_WAIT now does not hold a port. */
static void lingering(void)
{
	char text[16], drop[256];
	unsigned int before, port;
	struct side a;
	int fd;

	port = set_range(1, text);
	side_open(&a);
	before = count_descriptors();
	fd = raw_connect(&a);
	wait_for(&a, NULL, count_descriptors() == before + 2);
	side_close(&a);
	while (read(fd, drop, sizeof(drop)) > 0)
		;
	close(fd);
	check(!port_free(port), "nothing is in TIME_WAIT");
	side_open(&a);
	check_int(port_of(&a), port);
	side_close(&a);
}

/* Two may bind to a port, and the second hears of the first by listen(). */
static void taken_meanwhile(void)
{
	union weft_sockaddr sa;
	socklen_t len = sizeof(sa);
	char text[16];
	struct side a, taken = { 0 };

	set_range(2, text);
	log_keep();
	rival_wanted = true;
	side_open(&a);
	check(rival >= 0, "the rival took no port");
	check(!getsockname(rival, &sa.sa, &len), "no name");
	taken.attr.addr.sa = sa;
	check(port_of(&a) != port_of(&taken), "two listen at one port");
	check_int(log_lines(""), 0);
	side_close(&a);
	close(rival);
}

const struct conformance_test port_tests[] = {
	{ "a used-up port range is an error that names it", used_up },
	{ "a port in TIME_WAIT is used again", lingering },
	{ "a port taken between bind and listen is skipped", taken_meanwhile },
	{ NULL, NULL },
};
