/* SPDX-License-Identifier: BSD-3-Clause */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <dlfcn.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>
#include "tests/host/programs/host.h"

void die(const char *fmt, ...)
{
	va_list ap;

	fprintf(stderr, "exchange: ");
	va_start(ap, fmt);
	vfprintf(stderr, fmt, ap);
	va_end(ap);
	fprintf(stderr, "\n");
	exit(1);
}

void check(ucs_status_t status, const char *what)
{
	if (status != UCS_OK)
		die("%s: %s", what, ucs_status_string(status));
}

/*
 * spin: a program that takes the event fd and then calls progress forever, as
 * ucxx does.  weft's sleeps end here only with data: with the time limit
 * of its own a lost wakeup is merely slow.
 */
static struct host *spinner;
static pthread_t spinning;

int ppoll(struct pollfd *fds, nfds_t n, const struct timespec *limit,
	  const sigset_t *mask)
{
	int (*real)(struct pollfd *, nfds_t, const struct timespec *,
		    const sigset_t *);
	struct pollfd with[128];

	if (!spinner || !pthread_equal(spinning, pthread_self()) || n > 127) {
		real = (__typeof__(real))dlsym(RTLD_NEXT, "ppoll");
		return real(fds, n, limit, mask);
	}
	spinner->sleeps++;
	memcpy(with, fds, n * sizeof(*fds));
	with[n] = (struct pollfd){ .fd = spinner->oob, .events = POLLIN };
	if (poll(with, n + 1, 20000) == 0)
		die("nothing ended a rest in 20 s");
	return 1;
}

static void usage(void)
{
	die("usage: exchange wait|come SOCKET|IP:PORT [addr|sock=IP] [none|peer] [poll|block|spin] [eps=N] [later=NAMESPACE] MODE...");
}

/* "10.0.0.1:7000" is on another host, anything else a Unix socket's path. */
static socklen_t parse_meeting(const char *where, struct sockaddr_storage *ss)
{
	struct sockaddr_in *in = (struct sockaddr_in *)ss;
	struct sockaddr_un *un = (struct sockaddr_un *)ss;
	const char *colon = strchr(where, ':');
	char ip[INET_ADDRSTRLEN];

	memset(ss, 0, sizeof(*ss));
	if (colon && (size_t)(colon - where) < sizeof(ip)) {
		snprintf(ip, sizeof(ip), "%.*s", (int)(colon - where), where);
		if (inet_pton(AF_INET, ip, &in->sin_addr) == 1) {
			in->sin_family = AF_INET;
			in->sin_port = htons((uint16_t)atoi(colon + 1));
			return sizeof(*in);
		}
	}
	un->sun_family = AF_UNIX;
	snprintf(un->sun_path, sizeof(un->sun_path), "%s", where);
	return sizeof(*un);
}

static void meet(struct host *h, const char *where, bool wait)
{
	struct sockaddr_storage ss;
	const socklen_t len = parse_meeting(where, &ss);
	const bool far = ss.ss_family == AF_INET;
	const int one = 1;
	int fd = socket(ss.ss_family, SOCK_STREAM, 0);

	if (far)
		setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	if (wait) {
		if (bind(fd, (struct sockaddr *)&ss, len) || listen(fd, 1))
			die("cannot listen on '%s': %s", where,
			    strerror(errno));
		h->oob = accept(fd, NULL, NULL);
		close(fd);
		if (far)
			setsockopt(h->oob, IPPROTO_TCP, TCP_NODELAY, &one,
				   sizeof(one));
		else
			unlink(where);
		return;
	}
	/* The other side is started at the same time, and so is its host. */
	for (int i = 0; connect(fd, (struct sockaddr *)&ss, len); i++) {
		if (i == (far ? 30000 : 1000))
			die("no listener on '%s': %s", where, strerror(errno));
		usleep(10000);
	}
	h->oob = fd;
}

void host_open(struct host *h, int argc, char **argv)
{
	ucp_params_t params = {
		.field_mask = UCP_PARAM_FIELD_FEATURES,
		.features = UCP_FEATURE_TAG | UCP_FEATURE_AM |
			    UCP_FEATURE_STREAM | UCP_FEATURE_RMA,
	};
	ucp_worker_params_t worker = {
		.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE,
		.thread_mode = UCS_THREAD_MODE_SINGLE,
	};
	ucp_config_t *config;
	bool block = false, spin = false;

	memset(h, 0, sizeof(*h));
	h->n_eps = 1;
	h->ip = "127.0.0.1";
	h->efd = -1;
	if (argc < 3)
		usage();
	for (int i = 3; i < argc; i++) {
		if (!strncmp(argv[i], "sock", 4)) {
			h->by_sockaddr = true;
			if (argv[i][4] == '=')
				h->ip = argv[i] + 5;
		} else if (!strcmp(argv[i], "peer")) {
			h->peer_errors = true;
		} else if (!strcmp(argv[i], "block")) {
			block = true;
		} else if (!strcmp(argv[i], "spin")) {
			block = spin = true;
		} else if (!strncmp(argv[i], "eps=", 4)) {
			h->n_eps = (unsigned int)atoi(argv[i] + 4);
			if (h->n_eps < 1 || h->n_eps > MAX_EPS)
				usage();
		} else if (!strncmp(argv[i], "later=", 6)) {
			h->later = strtoull(argv[i] + 6, NULL, 16);
		}
	}
	if (block)
		params.features |= UCP_FEATURE_WAKEUP;
	h->side = strcmp(argv[1], "wait") != 0;

	check(ucp_config_read(NULL, NULL, &config), "ucp_config_read");
	check(ucp_init(&params, config, &h->context), "ucp_init");
	ucp_config_release(config);
	check(ucp_worker_create(h->context, &worker, &h->worker),
	      "ucp_worker_create");
	if (block)
		check(ucp_worker_get_efd(h->worker, &h->efd), "worker efd");
	meet(h, argv[2], !h->side);
	if (spin) {
		h->efd = -1;
		spinning = pthread_self();
		spinner = h;
	}
}

void host_progress(struct host *h)
{
	struct pollfd fds[2] = {
		{ .fd = h->efd, .events = POLLIN },
		{ .fd = h->oob, .events = POLLIN },
	};

	/* one that polls leaves its core to others, unless it must spin */
	if (ucp_worker_progress(h->worker) ||
	    (h->efd < 0 && (h == spinner || !sched_yield())))
		return;
	switch (ucp_worker_arm(h->worker)) {
	case UCS_OK:
		/* a lost wakeup shows as a test that takes forever */
		if (poll(fds, 2, 20000) == 0)
			die("no event in 20 s");
		break;
	case UCS_ERR_BUSY:
		break;
	default:
		die("ucp_worker_arm failed");
	}
}

void host_rest(struct host *h, unsigned int ms)
{
	for (; ms; ms--) {
		ucp_worker_progress(h->worker);
		usleep(1000);
	}
}

ucs_status_t host_wait(struct host *h, ucs_status_ptr_t request)
{
	ucs_status_t status;

	if (!request)
		return UCS_OK;
	if (UCS_PTR_IS_ERR(request))
		return UCS_PTR_STATUS(request);
	while ((status = ucp_request_check_status(request)) == UCS_INPROGRESS)
		host_progress(h);
	ucp_request_free(request);
	return status;
}

ucs_status_t host_flush(struct host *h, ucp_ep_h ep)
{
	ucp_request_param_t param = { 0 };

	return host_wait(h, ucp_ep_flush_nbx(ep, &param));
}

void oob_send(struct host *h, const void *buf, size_t len)
{
	if (send(h->oob, buf, len, MSG_NOSIGNAL) != (ssize_t)len)
		die("the other side is gone");
}

void oob_recv(struct host *h, void *buf, size_t len)
{
	size_t have = 0;

	while (have < len) {
		ssize_t n = recv(h->oob, (char *)buf + have, len - have,
				 MSG_DONTWAIT);

		if (n > 0)
			have += (size_t)n;
		else if (n == 0 || errno != EAGAIN)
			die("the other side is gone");
		else
			host_progress(h);
	}
}

bool oob_closed(struct host *h)
{
	char c;

	return recv(h->oob, &c, 1, MSG_PEEK | MSG_DONTWAIT) == 0;
}

void barrier(struct host *h)
{
	char c = 'b';

	oob_send(h, &c, 1);
	oob_recv(h, &c, 1);
	if (c != 'b')
		die("out of step: '%c'", c);
}

static void on_error(void *arg, ucp_ep_h ep, ucs_status_t status)
{
	struct host *h = arg;

	h->errors++;
	h->error = status;
}

static void on_request(ucp_conn_request_h request, void *arg)
{
	struct host *h = arg;

	if (h->n_requests == MAX_EPS)
		die("too many connection requests");
	h->requests[h->n_requests++] = request;
}

static ucp_ep_params_t ep_params(struct host *h)
{
	ucp_ep_params_t params = { 0 };

	if (h->peer_errors) {
		params.field_mask = UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE |
				    UCP_EP_PARAM_FIELD_ERR_HANDLER;
		params.err_mode = UCP_ERR_HANDLING_MODE_PEER;
		params.err_handler.cb = on_error;
		params.err_handler.arg = h;
	}
	return params;
}

/*
 * later=: the other side's weft is of a release that speaks other versions.
 * bootstrap/address.h: they stand before the port and the namespace's id.
 */
static void make_later(struct host *h, char *address, size_t len)
{
	unsigned int found = 0;

	for (size_t i = 4; i + sizeof(h->later) <= len; i++)
		if (!memcmp(address + i, &h->later, sizeof(h->later))) {
			address[i - 4] = address[i - 3] = 250;
			found++;
		}
	if (!found)
		die("no interface of weft in the address");
}

static void connect_by_address(struct host *h)
{
	ucp_ep_params_t params = ep_params(h);
	ucp_address_t *mine;
	size_t my_len, len;
	void *theirs;

	check(ucp_worker_get_address(h->worker, &mine, &my_len), "address");
	oob_send(h, &my_len, sizeof(my_len));
	oob_send(h, mine, my_len);
	oob_recv(h, &len, sizeof(len));
	theirs = malloc(len);
	oob_recv(h, theirs, len);
	if (h->later)
		make_later(h, theirs, len);
	params.field_mask |= UCP_EP_PARAM_FIELD_REMOTE_ADDRESS;
	params.address = theirs;
	for (unsigned int i = 0; i < h->n_eps; i++)
		check(ucp_ep_create(h->worker, &params, &h->eps[i]),
		      "ucp_ep_create");
	ucp_worker_release_address(h->worker, mine);
	free(theirs);
}

static socklen_t parse_ip(const char *ip, struct sockaddr_storage *ss)
{
	struct sockaddr_in *in = (struct sockaddr_in *)ss;
	struct sockaddr_in6 *in6 = (struct sockaddr_in6 *)ss;

	memset(ss, 0, sizeof(*ss));
	if (inet_pton(AF_INET, ip, &in->sin_addr) == 1) {
		in->sin_family = AF_INET;
		return sizeof(*in);
	}
	if (inet_pton(AF_INET6, ip, &in6->sin6_addr) != 1)
		die("'%s' is no address", ip);
	in6->sin6_family = AF_INET6;
	return sizeof(*in6);
}

static void accept_eps(struct host *h)
{
	struct sockaddr_storage ss;
	ucp_listener_params_t params = {
		.field_mask = UCP_LISTENER_PARAM_FIELD_SOCK_ADDR |
			      UCP_LISTENER_PARAM_FIELD_CONN_HANDLER,
		.sockaddr = { (struct sockaddr *)&ss, parse_ip(h->ip, &ss) },
		.conn_handler = { on_request, h },
	};
	ucp_listener_attr_t attr = {
		.field_mask = UCP_LISTENER_ATTR_FIELD_SOCKADDR,
	};

	check(ucp_listener_create(h->worker, &params, &h->listener),
	      "ucp_listener_create");
	check(ucp_listener_query(h->listener, &attr), "ucp_listener_query");
	oob_send(h, &attr.sockaddr, sizeof(attr.sockaddr));
	for (unsigned int i = 0; i < h->n_eps; i++) {
		ucp_ep_params_t ep = ep_params(h);

		while (h->n_requests <= i) {
			if (oob_closed(h))
				die("the other side is gone");
			host_progress(h);
		}
		ep.field_mask |= UCP_EP_PARAM_FIELD_CONN_REQUEST;
		ep.conn_request = h->requests[i];
		check(ucp_ep_create(h->worker, &ep, &h->eps[i]),
		      "ucp_ep_create");
	}
}

static void come_eps(struct host *h)
{
	struct sockaddr_storage ss;
	ucp_ep_params_t params = ep_params(h);

	oob_recv(h, &ss, sizeof(ss));
	params.field_mask |=
		UCP_EP_PARAM_FIELD_FLAGS | UCP_EP_PARAM_FIELD_SOCK_ADDR;
	params.flags = UCP_EP_PARAMS_FLAGS_CLIENT_SERVER;
	params.sockaddr.addr = (struct sockaddr *)&ss;
	params.sockaddr.addrlen = ss.ss_family == AF_INET
					  ? sizeof(struct sockaddr_in)
					  : sizeof(struct sockaddr_in6);
	for (unsigned int i = 0; i < h->n_eps; i++) {
		check(ucp_ep_create(h->worker, &params, &h->eps[i]),
		      "ucp_ep_create");
		/* one at a time, so that both sides number them alike */
		check(host_flush(h, h->eps[i]), "first flush");
	}
}

void host_connect(struct host *h)
{
	if (!h->by_sockaddr)
		connect_by_address(h);
	else if (h->side)
		come_eps(h);
	else
		accept_eps(h);
	barrier(h);
}

void host_close(struct host *h)
{
	ucp_request_param_t param = { 0 };

	if (spinner && !h->sleeps)
		die("weft never rested");
	spinner = NULL;
	for (unsigned int i = 0; i < h->n_eps; i++)
		host_wait(h, ucp_ep_close_nbx(h->eps[i], &param));
	if (h->listener)
		ucp_listener_destroy(h->listener);
	ucp_worker_destroy(h->worker);
	ucp_cleanup(h->context);
	close(h->oob);
}

static uint64_t mix(uint64_t x)
{
	x ^= x >> 31;
	x *= 0x9e3779b97f4a7c15ull;
	return x ^ x >> 29;
}

void fill(void *buf, size_t len, uint64_t seed)
{
	char *p = buf;
	size_t i;

	for (i = 0; i + 8 <= len; i += 8) {
		uint64_t v = mix(seed + i);

		memcpy(p + i, &v, 8);
	}
	for (; i < len; i++)
		p[i] = (char)mix(seed + i);
}

const void *wrong(const void *buf, size_t len, uint64_t seed)
{
	const char *p = buf;
	size_t i;

	for (i = 0; i + 8 <= len; i += 8) {
		uint64_t v = mix(seed + i);

		if (memcmp(p + i, &v, 8)) {
			for (size_t k = 0; k < 8; k++)
				if (p[i + k] != ((char *)&v)[k])
					return p + i + k;
		}
	}
	for (; i < len; i++)
		if (p[i] != (char)mix(seed + i))
			return p + i;
	return NULL;
}
