/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A process sends, closes its endpoint with a flush, and ends at once, its
 * worker and its context as they are:
 *	leave wait|come SOCKET how=exit|_exit|thread|kill [busy|am]
 * The one that comes ends like that; kill: by SIGKILL.  The one that waits
 * reads nothing at first, has sent something that the other has not read, and
 * gets all; busy: it goes on sending.  am: active messages that can be replied
 * to, which UCP drops once it knows that their endpoint is closed.
 */
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include "tests/host/programs/host.h"

#define N	   600
#define LEN	   100
#define HOLD_MS	   200
#define PATIENCE_S 60

static struct host h;
static char bytes[N][LEN];
static ucs_status_ptr_t requests[N];
static const char *how = "exit";
static bool by_am;
static unsigned int ams; /* that came */

static ucs_status_ptr_t send_tag(const void *buf, size_t len, ucp_tag_t tag)
{
	const ucp_request_param_t param = { 0 };

	return ucp_tag_send_nbx(h.eps[0], buf, len, tag, &param);
}

static ucs_status_ptr_t receive_tag(void *buf, size_t len, ucp_tag_t tag)
{
	const ucp_request_param_t param = { 0 };

	return ucp_tag_recv_nbx(h.worker, buf, len, tag, (ucp_tag_t)-1, &param);
}

static ucs_status_ptr_t send_am(const void *buf, size_t len, unsigned int i)
{
	const ucp_request_param_t param = {
		.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS,
		.flags = UCP_AM_SEND_FLAG_REPLY,
	};
	static unsigned int numbers[N];

	numbers[i] = i;
	return ucp_am_send_nbx(h.eps[0], 1, &numbers[i], sizeof(numbers[i]),
			       buf, len, &param);
}

static ucs_status_t take_am(void *arg, const void *header, size_t header_len,
			    void *data, size_t len,
			    const ucp_am_recv_param_t *param)
{
	unsigned int i;

	memcpy(&i, header, sizeof(i));
	if (header_len != sizeof(i) || len != LEN || i != ams++ ||
	    wrong(data, len, i))
		die("active message %u is wrong", i);
	return UCS_OK;
}

static void handle_ams(void)
{
	const ucp_am_handler_param_t param = {
		.field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID |
			      UCP_AM_HANDLER_PARAM_FIELD_CB,
		.id = 1,
		.cb = take_am,
	};

	check(ucp_worker_set_am_recv_handler(h.worker, &param), "handler");
}

static void *leave_in_thread(void *arg)
{
	exit(0);
}

static void __attribute__((noreturn)) leave(void)
{
	pthread_t thread;

	if (!strcmp(how, "kill"))
		raise(SIGKILL);
	if (!strcmp(how, "_exit"))
		_exit(0);
	if (!strcmp(how, "thread")) {
		pthread_create(&thread, NULL, leave_in_thread, NULL);
		pause();
	}
	exit(0);
}

static void come(void)
{
	const ucp_request_param_t param = { 0 };
	unsigned int i;

	for (i = 0; i < N; i++) {
		fill(bytes[i], LEN, i);
		requests[i] = by_am ? send_am(bytes[i], LEN, i)
				    : send_tag(bytes[i], LEN, i);
	}
	for (i = 0; i < N; i++)
		check(host_wait(&h, requests[i]), "send");
	check(host_wait(&h, ucp_ep_close_nbx(h.eps[0], &param)), "close");
	leave();
}

static void get_all(bool busy)
{
	const time_t end = time(NULL) + PATIENCE_S;
	struct pollfd gone = { .fd = h.oob, .events = POLLIN };
	ucs_status_ptr_t r;
	unsigned int i, sent = 0;

	poll(&gone, 1, HOLD_MS);
	for (i = 0; i < N; i++) {
		while (UCS_PTR_IS_PTR(requests[i]) &&
		       ucp_request_check_status(requests[i]) ==
			       UCS_INPROGRESS) {
			host_progress(&h);
			if (time(NULL) > end)
				die("%u of %u messages came", i, N);
			if (!busy || h.errors || sent++ > 10000)
				continue;
			r = send_tag("", 1, 2 * N);
			if (UCS_PTR_IS_PTR(r))
				ucp_request_free(r);
		}
		check(host_wait(&h, requests[i]), "receive");
		if (wrong(bytes[i], LEN, i))
			die("message %u is wrong", i);
	}
}

static void get_ams(void)
{
	const time_t end = time(NULL) + PATIENCE_S;
	struct pollfd gone = { .fd = h.oob, .events = POLLIN };

	poll(&gone, 1, HOLD_MS);
	while (ams < N && !h.errors && time(NULL) <= end)
		host_progress(&h);
	if (ams < N)
		die("%u of %u active messages came", ams, N);
	/* were we gone first, its flush would fail, though all has come */
	while (!poll(&gone, 1, 0) && time(NULL) <= end)
		host_progress(&h);
}

int main(int argc, char **argv)
{
	static char warm[8];
	bool busy = false;
	int i;

	for (i = 3; i < argc; i++) {
		busy |= !strcmp(argv[i], "busy");
		by_am |= !strcmp(argv[i], "am");
		if (!strncmp(argv[i], "how=", 4))
			how = argv[i] + 4;
	}
	alarm(2 * PATIENCE_S);
	host_open(&h, argc, argv);
	handle_ams();
	host_connect(&h);
	for (i = 0; i < N && !h.side && !by_am; i++)
		requests[i] = receive_tag(bytes[i], LEN, i);
	/* once each way, so that all that belongs to meeting is over */
	if (h.side)
		check(host_wait(&h, send_tag(warm, 8, N)), "first message");
	check(host_wait(&h, receive_tag(warm, 8, N)), "first message");
	if (!h.side)
		check(host_wait(&h, send_tag(warm, 8, N)), "first message");
	barrier(&h);
	if (!h.side) /* not read, unless it must be */
		check(host_wait(&h, send_tag(warm, 8, N + 1)), "message");
	if (write(h.oob, "", 1) != 1 || read(h.oob, warm, 1) != 1)
		die("the other side is gone");
	if (h.side)
		come();
	if (by_am)
		get_ams();
	else
		get_all(busy);
	printf("all %u came\n", N);
	_exit(0);
}
