/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Failures: an operation that fails ends the connection on both sides, and no
 * message behind it is delivered.
 */
#include "tests/conformance/pair.h"

#include <errno.h>
#include <sys/mman.h>
#include <unistd.h>

/* What happens to memory behind the device's back. */
enum loss {
	NO_ACCESS, /* not munmap(): another mapping could take its place */
	READ_ONLY,
	TRUNCATED,
	RELEASED,
	LOSSES,
};

static const char *const names[] = {
	[NO_ACCESS] = "unmapped",
	[READ_ONLY] = "read-only",
	[TRUNCATED] = "truncated",
	[RELEASED] = "released",
};

/* A mapped file, of which [buf, buf + len) is used; its middle ends a page. */
struct block {
	int fd;
	uint8_t *map, *buf;
	size_t half, len; /* of the mapping; used */
	struct weft_mem *mem;
	uint8_t key[WEFT_RKEY_MAX];
};

static void block_open(struct block *b, size_t len)
{
	const size_t page = sysconf(_SC_PAGESIZE);

	memset(b, 0, sizeof(*b));
	b->len = len;
	b->half = (len / 2 + page) / page * page;
	b->fd = memfd_create("block", MFD_CLOEXEC);
	check(b->fd >= 0 && !ftruncate(b->fd, 2 * b->half), "no memory file");
	b->map = mmap(NULL, 2 * b->half, PROT_READ | PROT_WRITE, MAP_SHARED,
		      b->fd, 0);
	check(b->map != MAP_FAILED, "out of memory");
	b->buf = b->map + b->half - len / 2;
	check_int(row->ops->mem_register(b->buf, len, WEFT_MEM_HOST, &b->mem),
		  0);
	row->ops->mem_pack(b->mem, &b->key);
}

/* Takes the second half away, or the key. */
static void block_lose(struct block *b, enum loss how)
{
	uint8_t *half = b->map + b->half;

	switch (how) {
	case NO_ACCESS:
		check_int(mprotect(half, b->half, PROT_NONE), 0);
		break;
	case READ_ONLY:
		check_int(mprotect(half, b->half, PROT_READ), 0);
		break;
	case TRUNCATED:
		check_int(ftruncate(b->fd, b->half), 0);
		break;
	default:
		row->ops->mem_release(b->mem);
		b->mem = NULL;
	}
}

static void block_close(struct block *b)
{
	if (b->mem)
		row->ops->mem_release(b->mem);
	munmap(b->map, 2 * b->half);
	close(b->fd);
}

/* Of an operation: what is behind it when it completes. */
struct behind {
	struct side *a;
	int said;
};

static void send_behind(struct wait_op *w)
{
	static const struct iovec iov = { "behind", 6 };
	struct behind *b = w->hook_arg;

	b->said = b->a->ops->message(b->a->ep, 3, &iov, 1);
}

enum { BEFORE = 1, FENCED = 2, AFTER = 3, OTHERS = 2 };

/* One failure: what moves, how much, and what is lost where. */
struct failure {
	bool get;
	bool own;   /* memory of the side that asks */
	bool alone; /* no other operation is under way */
	enum loss how;
	size_t len;
};

static int start(struct side *a, const struct failure *f, struct block *own,
		 const struct block *peer, struct wait_op *w)
{
	struct weft_iov iov = { own->buf, f->len, NULL };

	wait_op_init(w);
	if (f->get)
		return a->ops->get(a->ep, &iov, 1, (uintptr_t)peer->buf,
				   &peer->key, &w->op);
	return a->ops->put(a->ep, &iov, 1, (uintptr_t)peer->buf, &peer->key,
			   NULL, &w->op);
}

static void check_moved(const struct failure *f, const struct block *own,
			const struct block *peer)
{
	check(!memcmp(own->buf, peer->buf, f->len), "%s of %zu: wrong bytes",
	      f->get ? "get" : "put", f->len);
}

/* Good operations around one that fails, and messages around all. */
static void fail_once(struct side *a, struct side *b, const struct failure *f)
{
	struct block own[OTHERS + 1], peer[OTHERS + 1];
	static const struct iovec iov = { "fenced", 6 };
	struct wait_op w[OTHERS + 1], flushed;
	struct behind behind = { a, -EAGAIN };
	const unsigned int others = f->alone ? 0 : OTHERS;
	const unsigned int bad = f->alone ? 0 : 1;
	unsigned int i, n;

	for (i = 0; i <= others; i++) {
		block_open(&own[i], f->len);
		block_open(&peer[i], f->len);
		pattern_fill(f->get ? peer[i].buf : own[i].buf, f->len, i);
		/* what is mapped, and streams, are there when it begins */
		check_int(start(a, f, &own[i], &peer[i], &w[i]), -EINPROGRESS);
		wait_status(a, b, w[i], 0);
		check_moved(f, &own[i], &peer[i]);
		wait_for(a, b, a->ops->ready(a->ep));
	}
	b->messages = 0;
	send_pattern(a, b, a->ep, BEFORE, 100, 7);
	wait_for(a, b, b->first);
	check_message(b, BEFORE, 100, 7);
	for (i = 0; i <= others; i++)
		pattern_fill(f->get ? peer[i].buf : own[i].buf, f->len, i + 10);

	block_lose(f->own ? &own[bad] : &peer[bad], f->how);
	for (i = n = 0; i <= others; i++, n++) {
		/* the message stream may be full of the one before */
		if (i <= bad)
			wait_for(a, b, a->ops->ready(a->ep));
		else if (!a->ops->ready(a->ep))
			break;
		check_int(start(a, f, &own[i], &peer[i], &w[i]), -EINPROGRESS);
		check_int(w[i].done, 0);
		if (i != bad)
			continue;
		w[i].hook = send_behind;
		w[i].hook_arg = &behind;
	}
	wait_op_init(&flushed);
	check_int(a->ops->flush(a->ep, &flushed.op), -EINPROGRESS);
	a->ops->fence(a->ep);
	/* a put's fence holds it back; of a get, only the end does */
	if (!f->get && a->ops->ready(a->ep))
		a->ops->message(a->ep, FENCED, &iov, 1);
	wait_for(a, b, w[bad].done);
	if (!row->soft_roce || w[bad].status != -ECONNRESET)
		check_int(w[bad].status, -EACCES);
	wait_for(a, b, a->errors && b->errors);
	check_int(flushed.done, 1);
	check(flushed.status, "flushed, although it has failed");
	for (i = 0; i < n; i++) {
		check_int(w[i].done, 1);
		if (!w[i].status)
			check_moved(f, &own[i], &peer[i]);
	}
	run_for(a, b, 20);
	check_int(b->messages, 1);
	sides_fail(a, b);
	/* another endpoint works */
	if (!f->alone) {
		check_int(start(a, f, &own[0], &peer[0], &w[0]), -EINPROGRESS);
		wait_status(a, b, w[0], 0);
		check_moved(f, &own[0], &peer[0]);
	}
	for (i = 0; i <= others; i++) {
		block_close(&own[i]);
		block_close(&peer[i]);
	}
}

static bool can_lose(const struct failure *f)
{
	if (row->gpu) /* its tests of keys are in put.c */
		return false;
	if (f->how == READ_ONLY)
		return f->get == f->own; /* what is written */
	if (f->how == RELEASED)
		return !f->own;
	return true;
}

static void fail_each(bool get, bool own)
{
	/* of its own memory, more than a call copies itself */
	const size_t sizes[] = { own ? 40000 : 1000, 300000, 4000001 };
	struct failure f = { .get = get, .own = own };
	struct side a, b;
	unsigned int i;

	sides_open(&a, &b);
	log_keep();
	for (i = 0; i < ARRAY_SIZE(sizes); i++) {
		f.len = sizes[i];
		for (f.how = 0; f.how < LOSSES; f.how++) {
			if (!can_lose(&f))
				continue;
			/* an adapter keeps the pages that it was given */
			if (row->own_keys && f.how != RELEASED)
				continue;
			fprintf(stderr, "# %s of %zu, %s's memory %s\n",
				get ? "get" : "put", f.len,
				own ? "its own" : "its peer", names[f.how]);
			f.alone = false;
			fail_once(&a, &b, &f);
			f.alone = true;
			fail_once(&a, &b, &f);
		}
	}
	sides_close(&a, &b);
}

static void put_target(void)
{
	fail_each(false, false);
}

static void put_source(void)
{
	fail_each(false, true);
}

static void get_source(void)
{
	fail_each(true, false);
}

static void get_landing(void)
{
	fail_each(true, true);
}

static void with_threads(void)
{
	if (!row->sockets)
		skip_test("it has no threads for bulk");
	setenv("WEFT_TCP_THREADS", "2", 1);
	setenv("WEFT_TCP_STREAMS", "3", 1);
	fail_each(false, false);
	fail_each(false, true);
	fail_each(true, false);
	fail_each(true, true);
}

/* The peer learns of it when it makes progress, and the side that knows does
 * not wait for that. */
static void busy_peer(void)
{
	enum { LEN = 300000 };
	struct failure f = { .own = true, .len = LEN };
	struct block own, peer;
	struct side a, b;
	struct wait_op w;

	if (row->own_keys || row->gpu)
		skip_test("its memory is not lost");
	sides_open(&a, &b);
	log_keep();
	block_open(&own, LEN);
	block_open(&peer, LEN);
	check_int(start(&a, &f, &own, &peer, &w), -EINPROGRESS);
	wait_for(&a, &b, w.done);
	block_lose(&own, NO_ACCESS);
	check_int(start(&a, &f, &own, &peer, &w), -EINPROGRESS);
	wait_for(&a, NULL, w.done && a.errors);
	check_int(w.status, -EACCES);
	wait_for(NULL, &b, b.errors);
	sides_fail(&a, &b);
	block_close(&own);
	block_close(&peer);
	sides_close(&a, &b);
}

const struct conformance_test fail_tests[] = {
	{ "a put that its target cannot take ends both endpoints", put_target },
	{ "a put whose source is gone ends both endpoints", put_source },
	{ "a get whose source is gone ends both endpoints", get_source },
	{ "a get that cannot land ends both endpoints", get_landing },
	{ "the same where threads move bulk", with_threads },
	{ "who is busy learns of a failure later", busy_peer },
	{ NULL, NULL },
};
