/* SPDX-License-Identifier: BSD-3-Clause */
#include "tests/conformance/pair.h"

#include <dirent.h>
#include <errno.h>
#include <pthread.h>
#include <stdarg.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "util/log.h"

const struct device_row *row;
void (*sides_are_open)(void);

void fail_at(const char *file, int line, const char *fmt, ...)
{
	va_list ap;

	fprintf(stderr, "# %s:%d: ", file, line);
	va_start(ap, fmt);
	vfprintf(stderr, fmt, ap);
	va_end(ap);
	fputc('\n', stderr);
	fflush(stderr);
	_exit(1);
}

char *skip_reason;

void skip_test(const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(skip_reason, SKIP_REASON_MAX, fmt, ap);
	va_end(ap);
	_exit(77);
}

uint64_t now_ms(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return ts.tv_sec * 1000ull + ts.tv_nsec / 1000000;
}

static void on_message(void *arg, uint8_t id, void *data, size_t len)
{
	struct side *s = arg;
	struct inbox_message *m;

	/* a test may look on from another thread */
	__atomic_fetch_add(&s->messages, 1, __ATOMIC_RELAXED);
	if (s->hook) {
		s->hook(s, id, data, len);
		return;
	}
	m = malloc(sizeof(*m) + len);
	check(m, "out of memory");
	m->next = NULL;
	m->id = id;
	m->len = len;
	memcpy(m->data, data, len);
	*s->last = m;
	s->last = &m->next;
}

static void on_notify(void *arg, uint64_t tag, uint64_t size)
{
	struct side *s = arg;

	s->notifies++;
	s->notify_tag = tag;
	s->notify_size = size;
}

static void on_error(void *arg, struct weft_ep *ep, void *user, int err)
{
	struct side *s = arg;

	(void)ep;
	s->errors++;
	s->error = err;
	s->error_user = user;
}

static void on_ready(void *arg, struct weft_ep *ep, void *user)
{
	struct side *s = arg;

	(void)ep;
	(void)user;
	s->readies++;
}

void side_open(struct side *s)
{
	struct weft_iface_cb cb = {
		.arg = s,
		.on_message = on_message,
		.on_notify = on_notify,
		.on_error = on_error,
		.on_ready = on_ready,
	};
	struct weft_iface_params params = {
		.netdev = row->netdev,
		.family = row->family,
		.cb = &cb,
	};
	static unsigned int opened;

	if (opened++ % 2 && row->other)
		params.netdev = row->other;
	memset(s, 0, sizeof(*s));
	s->ops = row->ops;
	s->last = &s->first;
	check_int(s->ops->iface_open(&params, &s->iface), 0);
	s->ops->iface_query(s->iface, &s->attr);
}

void side_close(struct side *s)
{
	struct inbox_message *m;

	if (s->ep)
		s->ops->ep_destroy(s->ep);
	s->ep = NULL;
	s->ops->iface_close(s->iface);
	while ((m = s->first)) {
		s->first = m->next;
		free(m);
	}
}

struct weft_ep *side_connect(struct side *from, const struct side *to,
			     void *user)
{
	struct weft_ep *ep;

	check(from->ops->reaches(from->iface, &to->attr.addr, NULL),
	      "the other side is out of reach");
	check_int(from->ops->ep_create(from->iface, &to->attr.addr, user, &ep),
		  0);
	return ep;
}

void sides_open(struct side *a, struct side *b)
{
	side_open(a);
	side_open(b);
	a->ep = side_connect(a, b, NULL);
	b->ep = side_connect(b, a, NULL);
	wait_for(a, b, a->ops->ready(a->ep) && b->ops->ready(b->ep));
	if (sides_are_open)
		sides_are_open();
}

void sides_close(struct side *a, struct side *b)
{
	check_int(a->errors, 0);
	check_int(b->errors, 0);
	side_close(a);
	side_close(b);
}

static void check_reset(struct side *s)
{
	/* its own program has given it up, and is told nothing of it */
	if (!s->ep)
		return;
	check_int(s->errors, 1);
	check_int(s->error, -ECONNRESET);
	s->errors = 0;
	s->ops->ep_destroy(s->ep);
	s->ep = NULL;
}

void sides_mend(struct side *a, struct side *b)
{
	if (a->attr.errors_end_ep) {
		wait_for(a, b, (!a->ep || a->errors) && (!b->ep || b->errors));
		check_reset(a);
		check_reset(b);
	}
	check_int(a->errors, 0);
	check_int(b->errors, 0);
	if (!a->ep)
		a->ep = side_connect(a, b, NULL);
	if (!b->ep)
		b->ep = side_connect(b, a, NULL);
	wait_for(a, b, a->ops->ready(a->ep) && b->ops->ready(b->ep));
}

void side_progress(struct side *s)
{
	s->ops->progress(s->iface);
}

void both_progress(struct side *a, struct side *b)
{
	if (a)
		side_progress(a);
	if (b)
		side_progress(b);
}

struct inbox_message *side_take(struct side *s)
{
	struct inbox_message *m = s->first;

	if (m) {
		s->first = m->next;
		if (!s->first)
			s->last = &s->first;
	}
	return m;
}

void run_for(struct side *a, struct side *b, unsigned int ms)
{
	uint64_t end = now_ms() + ms;

	while (now_ms() < end) {
		both_progress(a, b);
	}
}

static void op_done(struct weft_op *op, int status)
{
	struct wait_op *w = (struct wait_op *)op;

	w->done++;
	w->status = status;
	if (w->hook)
		w->hook(w);
}

static pthread_mutex_t log_lock = PTHREAD_MUTEX_INITIALIZER;
static char kept[20][256];
static unsigned int nkept;

static void on_log(void *arg, enum weft_level level, const char *file, int line,
		   const char *text)
{
	(void)arg;
	(void)file;
	(void)line;
	if (level > WEFT_LOG_WARN)
		return;
	pthread_mutex_lock(&log_lock);
	check(nkept < sizeof(kept) / sizeof(*kept), "too many lines: %s", text);
	snprintf(kept[nkept++], sizeof(*kept), "%s", text);
	pthread_mutex_unlock(&log_lock);
}

void log_keep(void)
{
	weft_log_set_sink(on_log, NULL);
}

unsigned int log_lines(const char *part)
{
	unsigned int i, n = 0;

	pthread_mutex_lock(&log_lock);
	for (i = 0; i < nkept; i++)
		n += strstr(kept[i], part) != NULL;
	pthread_mutex_unlock(&log_lock);
	return n;
}

void wait_op_init(struct wait_op *w)
{
	memset(w, 0, sizeof(*w));
	w->op.done = op_done;
}

void send_pattern(struct side *s, struct side *other, struct weft_ep *ep,
		  uint8_t id, size_t len, unsigned int seed)
{
	uint8_t *buf = malloc(len + 1);
	struct iovec iov = { buf, len };
	int ret;

	pattern_fill(buf, len, seed);
	for (;;) {
		ret = s->ops->message(ep, id, &iov, 1, NULL);
		if (ret != -EAGAIN)
			break;
		check(!s->ops->ready(ep), "-EAGAIN, yet ready() says yes");
		wait_for(s, other, s->ops->ready(ep));
	}
	check_int(ret, 0);
	memset(buf, POISON, len);
	free(buf);
}

void check_message(struct side *s, uint8_t id, size_t len, unsigned int seed)
{
	struct inbox_message *m = side_take(s);

	check(m, "no message is there");
	check_int(m->id, id);
	check_int(m->len, len);
	pattern_check("message", m->data, len, seed);
	free(m);
}

int put_wait(struct side *s, struct side *other, const void *src, size_t len,
	     uint64_t addr, const void *key, const struct weft_notify *notify)
{
	struct weft_iov iov = { (void *)src, len, NULL };
	struct wait_op w;
	int ret;

	wait_op_init(&w);
	wait_for(s, other, s->ops->ready(s->ep));
	ret = s->ops->put(s->ep, &iov, 1, addr, key, notify, &w.op);
	check_int(ret, -EINPROGRESS);
	wait_for(s, other, w.done);
	check_int(w.done, 1);
	return w.status;
}

int get_wait(struct side *s, struct side *other, void *dst, size_t len,
	     uint64_t addr, const void *key)
{
	struct weft_iov iov = { dst, len, NULL };
	struct wait_op w;

	wait_op_init(&w);
	wait_for(s, other, s->ops->ready(s->ep));
	check_int(s->ops->get(s->ep, &iov, 1, addr, key, &w.op), -EINPROGRESS);
	wait_for(s, other, w.done);
	check_int(w.done, 1);
	return w.status;
}

uint8_t pattern_byte(size_t off, unsigned int seed)
{
	uint32_t x = (uint32_t)(off >> 2) * 2654435761u + seed * 40503u;

	x ^= x >> 15;
	return x >> (8 * (off & 3));
}

void pattern_fill(void *p, size_t len, unsigned int seed)
{
	uint8_t *b = p;
	size_t i;

	for (i = 0; i < len; i++)
		b[i] = pattern_byte(i, seed);
}

void pattern_check(const char *what, const void *p, size_t len,
		   unsigned int seed)
{
	const uint8_t *b = p;
	size_t i;

	for (i = 0; i < len; i++)
		check(b[i] == pattern_byte(i, seed),
		      "%s: byte %zu of %zu is %02x, not %02x", what, i, len,
		      b[i], pattern_byte(i, seed));
}

void target_open(struct target *t, size_t len)
{
	size_t page = 4096;

	memset(t, 0, sizeof(*t));
	t->len = len;
	t->map_len = 2 * GUARD + (len + page) / page * page;
	t->map = mmap(NULL, t->map_len, PROT_READ | PROT_WRITE,
		      MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	check(t->map != MAP_FAILED, "out of memory");
	/* not aligned on purpose */
	t->buf = t->map + GUARD + (len ? 3 : 0);
	target_poison(t);
	check_int(row->ops->mem_register(t->buf, len, WEFT_MEM_HOST, &t->mem),
		  0);
	row->ops->mem_pack(t->mem, &t->key);
}

void target_poison(struct target *t)
{
	memset(t->map, POISON, t->map_len);
}

void target_check_poison(const struct target *t, size_t from, size_t to)
{
	size_t i;

	for (i = from; i < to; i++)
		check(t->buf[i] == POISON, "byte %zu was written", i);
}

void target_check_guards(const struct target *t)
{
	const uint8_t *p;

	for (p = t->map; p < t->buf; p++)
		check(*p == POISON, "written %zu bytes before the target",
		      (size_t)(t->buf - p));
	for (p = t->buf + t->len; p < t->map + t->map_len; p++)
		check(*p == POISON, "written %zu bytes behind the target",
		      (size_t)(p - t->buf - t->len));
}

void target_close(struct target *t)
{
	if (t->mem)
		row->ops->mem_release(t->mem);
	munmap(t->map, t->map_len);
}

int raw_connect(const struct side *s)
{
	const union weft_sockaddr *sa = &s->attr.addr.sa;
	int fd = socket(sa->sa.sa_family, SOCK_STREAM, 0);

	check(fd >= 0 && !connect(fd, &sa->sa, weft_sockaddr_len(sa)),
	      "cannot connect: %s", strerror(errno));
	return fd;
}

unsigned int count_sockets(void)
{
	DIR *d = opendir("/proc/self/fd");
	char link[64], name[300];
	struct dirent *e;
	unsigned int n = 0;
	ssize_t len;

	while ((e = readdir(d))) {
		snprintf(name, sizeof(name), "/proc/self/fd/%s", e->d_name);
		len = readlink(name, link, sizeof(link) - 1);
		n += len > 7 && !memcmp(link, "socket:", 7);
	}
	closedir(d);
	return n;
}
