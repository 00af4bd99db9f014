/* SPDX-License-Identifier: BSD-3-Clause */
/* The fake's other side: what tests tell it to do. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "host/pci.h"
#include "tests/lib/folder.h"
#include "tests/lib/verbs/fake_verbs_int.h"
#include "util/util.h"

struct fake_shared *fake_shm;
struct fake_verbs_live fake_live;
struct fake_context *fake_contexts[FAKE_CONTEXTS];

static _Atomic unsigned int calls, fail_at;
static const char *failed;

static const char *_Atomic fail_name;

bool fake_fails_named(const char *name)
{
	const char *named = atomic_load(&fail_name);

	if (!named || strcmp(named, name))
		return false;
	atomic_store(&fail_name, NULL);
	failed = name;
	errno = ENOMEM;
	return true;
}

bool fake_fails(const char *name)
{
	const unsigned int n = atomic_fetch_add(&calls, 1) + 1;

	if (fake_fails_named(name))
		return true;
	if (n != atomic_load(&fail_at))
		return false;
	failed = name;
	errno = ENOMEM;
	return true;
}

void fake_verbs_fail_call(const char *name)
{
	failed = NULL;
	atomic_store(&fail_name, name);
}

void fake_verbs_fail(unsigned int n)
{
	atomic_store(&calls, 0);
	failed = NULL;
	atomic_store(&fail_at, n);
}

unsigned int fake_verbs_calls(void)
{
	return atomic_load(&calls);
}

const char *fake_verbs_failed(void)
{
	return failed;
}

void fake_verbs_live(struct fake_verbs_live *l)
{
	*l = fake_live;
}

static void make_sysfs(void)
{
	folder_begin();
	shell("for i in 0 1; do "
	      "p=class/infiniband/fake$i/ports/1; "
	      "mkdir -p $p/gids $p/gid_attrs/types $p/gid_attrs/ndevs && "
	      "echo '4: ACTIVE' >$p/state && echo Ethernet >$p/link_layer && "
	      "echo '100 Gb/sec (4X EDR)' >$p/rate && "
	      "echo lo >$p/gid_attrs/ndevs/0 && "
	      "echo 'RoCE v2' >$p/gid_attrs/types/0 && "
	      "echo 0000:0000:0000:0000:0000:ffff:7f00:000$((i + 1)) "
	      ">$p/gids/0 || exit 1; done");
	weft_sysfs_root = folder;
}

static void map_shared(int fd)
{
	fake_shm =
		mmap(NULL, sizeof(*fake_shm), PROT_READ | PROT_WRITE,
		     MAP_SHARED | (fd < 0 ? MAP_ANONYMOUS : 0) | MAP_NORESERVE,
		     fd, 0);
	if (fake_shm == MAP_FAILED)
		abort();
}

static void init_shared(void)
{
	pthread_mutexattr_t attr;

	pthread_mutexattr_init(&attr);
	pthread_mutexattr_setpshared(&attr, PTHREAD_PROCESS_SHARED);
	pthread_mutexattr_setrobust(&attr, PTHREAD_MUTEX_ROBUST);
	pthread_mutex_init(&fake_shm->lock, &attr);
	pthread_mutexattr_destroy(&attr);
}

void fake_verbs_begin(void)
{
	map_shared(-1);
	init_shared();
	make_sysfs();
	weft_verbs_set(&fake_table);
}

void fake_verbs_attach(const char *path)
{
	int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	struct stat st;

	if (fd < 0 || flock(fd, LOCK_EX) || fstat(fd, &st))
		abort();
	if (!st.st_size && ftruncate(fd, sizeof(*fake_shm)))
		abort();
	map_shared(fd);
	if (!st.st_size)
		init_shared();
	flock(fd, LOCK_UN); /* the mapping keeps it else */
	close(fd);
}

void fake_verbs_end(void)
{
	weft_verbs_set(NULL);
	weft_sysfs_root = "/sys";
	munmap(fake_shm, sizeof(*fake_shm));
	folder_end();
}

void fake_verbs_gid(unsigned int device, bool roce, const char *gid)
{
	fake_shm->infiniband[device] = !roce;
	shell("cd class/infiniband/fake%u/ports/1 && "
	      "echo %s >link_layer && echo %s >gids/0",
	      device, roce ? "Ethernet" : "InfiniBand", gid);
}

void fake_verbs_grh(unsigned int device)
{
	fake_shm->grh[device] = true;
}

void fake_verbs_add_gid(unsigned int device, unsigned int index,
			const char *gid)
{
	shell("cd class/infiniband/fake%u/ports/1 && "
	      "for i in $(seq %u); do test -e gids/$i || "
	      "echo 0000:0000:0000:0000:0000:0000:0000:0000 >gids/$i; done; "
	      "echo %s >gids/%u && echo 'RoCE v2' >gid_attrs/types/%u",
	      device, index, gid, index, index);
}

void fake_verbs_pkey(unsigned int device, unsigned int index, unsigned int key)
{
	shell("cd class/infiniband/fake%u/ports/1 && mkdir -p pkeys && "
	      "for i in $(seq 0 %u); do test -e pkeys/$i || "
	      "echo 0x0000 >pkeys/$i; done; echo 0x%04x >pkeys/%u",
	      device, index, key, index);
}

unsigned int fake_verbs_immediates(void)
{
	unsigned int n;

	fake_lock();
	n = fake_shm->immediates;
	fake_unlock();
	return n;
}

unsigned int fake_verbs_inlines(void)
{
	unsigned int n;

	fake_lock();
	n = fake_shm->inlines;
	fake_unlock();
	return n;
}

static void break_queue(struct fake_context *ctx)
{
	unsigned int i;

	fake_lock();
	for (i = 0; i + 1 < FAKE_CQS && !ctx->cqs[i]; i++)
		;
	ctx->failed = ctx->cqs[i];
	if (ctx->failed)
		fake_shm->cq[i].broken = true;
	fake_unlock();
}

void fake_verbs_event(unsigned int device, int type)
{
	const uint64_t one = 1;
	unsigned int i;

	for (i = 0; i < FAKE_CONTEXTS; i++) {
		if (!fake_contexts[i] || fake_contexts[i]->dev != device)
			continue;
		if (type == IBV_EVENT_CQ_ERR)
			break_queue(fake_contexts[i]);
		atomic_store(&fake_contexts[i]->other, type + 1);
		if (write(fake_contexts[i]->base.async_fd, &one, sizeof(one)) <
		    0)
			abort();
	}
}

/* What reads from it is at its end. */
static void cut_channels(struct fake_context *ctx)
{
	struct fake_channel *ch;
	unsigned int i;

	fake_lock();
	for (i = 0; i < FAKE_CQS; i++) {
		if (!ctx->cqs[i])
			continue;
		ch = container_of(ctx->cqs[i]->base.channel,
				  struct fake_channel, base);
		if (ch->in >= 0)
			close(ch->in);
		ch->in = -1;
	}
	fake_unlock();
}

/* Polling a pipe without a reader gives POLLERR. */
static void cut_events(struct fake_context *ctx)
{
	const int old = dup(ctx->base.async_fd);
	const uint64_t one = 1;
	int pipe[2];

	if (old < 0 || pipe2(pipe, O_CLOEXEC) || close(pipe[0]) ||
	    dup3(pipe[1], ctx->base.async_fd, O_CLOEXEC) < 0)
		abort();
	close(pipe[1]);
	/* a thread that polls already looks again, and only then */
	if (write(old, &one, sizeof(one)) < 0)
		abort();
	close(old);
}

void fake_verbs_unplug(unsigned int device)
{
	unsigned int i;

	for (i = 0; i < FAKE_CONTEXTS; i++) {
		if (!fake_contexts[i] || fake_contexts[i]->dev != device)
			continue;
		cut_channels(fake_contexts[i]);
		cut_events(fake_contexts[i]);
	}
}

unsigned int fake_verbs_asked(unsigned int device)
{
	unsigned int i, n = 0;

	for (i = 0; i < FAKE_CONTEXTS; i++)
		if (fake_contexts[i] && fake_contexts[i]->dev == device)
			n += atomic_load(&fake_contexts[i]->asked);
	return n;
}

void fake_verbs_path(struct fake_verbs_path *path)
{
	fake_lock();
	*path = fake_shm->path;
	fake_unlock();
}

void fake_verbs_link(bool up)
{
	const uint64_t one = 1;
	unsigned int i;

	fake_verbs_cut(!up);
	for (i = 0; i < FAKE_CONTEXTS; i++) {
		if (!fake_contexts[i])
			continue;
		if (!up)
			atomic_fetch_add(&fake_contexts[i]->down, 1);
		if (write(fake_contexts[i]->base.async_fd, &one, sizeof(one)) <
		    0)
			abort();
	}
}

void fake_verbs_cut(bool cut)
{
	fake_lock();
	fake_shm->cut = cut;
	fake_unlock();
	fake_kick();
}

void fake_verbs_next_status(int status)
{
	fake_lock();
	fake_shm->next_status = status;
	fake_unlock();
}

void fake_verbs_all_status(int status)
{
	fake_lock();
	fake_shm->all_status = status;
	fake_unlock();
}
