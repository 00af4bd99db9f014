/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Local memory that peers may map.
 *
 * A buffer may lie in several allocations, one behind the other (torch's
 * expandable segments).  Registrations of the same allocations share one entry
 * here, so that a peer maps them once; what it may do is decided per
 * registration.
 */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "devices/common/memfd.h"
#include "devices/nvlink/nvl_export.h"
#include "devices/nvlink/nvl_life.h"
#include "devices/nvlink/nvl_part.h"
#include "devices/nvlink/nvl_sock.h"
#include "devices/nvlink/nvl_watch.h"
#include "devices/nvlink/nvl_share.h"
#include "util/clock.h"
#include "util/log.h"

/* Allocations one behind the other. */
struct allocation {
	struct weft_list link;
	unsigned int users;	    /* registrations and fetches */
	unsigned int registrations; /* that are live */
	uint64_t id;
	struct nvl_life life;	  /* as long as there are registrations */
	struct weft_cuda_ctx ctx; /* the driver resolves no address without */
	enum nvl_key_kind kind;
	struct weft_cu_ipc handle; /* HANDLE: one part, and this */
	unsigned int nparts;
	struct nvl_part parts[];
};

/* A registration. */
struct nvl_export {
	struct weft_entry entry; /* by its token */
	struct weft_rkey rkey;
	uint64_t addr, len;
	struct nvl_life life;
	struct allocation *allocation;
};

/* Descriptors that a peer has yet to get. */
struct fetch {
	struct weft_list link; /* conn->fetches */
	struct allocation *allocation;
	unsigned int sent;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct weft_table exports;
static struct weft_list allocations = { &allocations, &allocations };
static struct weft_list importers = { &importers, &importers };
static uint64_t last_id, last_importer;

void nvl_export_forget(void)
{
	/* a thread that waits for copies takes it repeatedly */
	lock = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
	weft_list_init(&importers);
	nvl_lives_forget();
}

/* An entry that has all of them, in order. */
static struct allocation *find_allocation(const struct nvl_part *parts,
					  unsigned int n)
{
	struct allocation *al, *tmp;
	unsigned int i, j;

	weft_list_for_each (al, tmp, &allocations, link) {
		/* it ends for peers that still fetch it */
		if (!al->registrations)
			continue;
		for (i = 0; i + n <= al->nparts; i++) {
			for (j = 0; j < n; j++)
				if (!nvl_part_is_same(&al->parts[i + j],
						      &parts[j]))
					break;
			if (j == n)
				return al;
		}
	}
	return NULL;
}

static struct allocation *new_allocation(const struct nvl_part *parts,
					 unsigned int n,
					 const struct weft_cuda_ctx *ctx,
					 const struct weft_cu_ipc *handle)
{
	struct allocation *al = calloc(1, sizeof(*al) + n * sizeof(*parts));

	if (!al)
		return NULL;
	if (!nvl_life_begin_memory(&al->life)) {
		free(al);
		return NULL;
	}
	al->id = ++last_id;
	al->ctx = *ctx;
	al->kind = handle ? NVL_KEY_HANDLE : NVL_KEY_PARTS;
	if (handle)
		al->handle = *handle;
	al->nparts = n;
	memcpy(al->parts, parts, n * sizeof(*parts));
	weft_list_add_tail(&allocations, &al->link);
	return al;
}

/* @handle: NULL if it has descriptors. */
static struct allocation *get_allocation(const struct nvl_part *parts,
					 unsigned int n,
					 const struct weft_cuda_ctx *ctx,
					 const struct weft_cu_ipc *handle)
{
	struct allocation *al = find_allocation(parts, n);

	if (!al)
		al = new_allocation(parts, n, ctx, handle);
	if (!al)
		return NULL;
	al->users++;
	al->registrations++;
	return al;
}

static void put_allocation(struct allocation *al)
{
	if (--al->users)
		return;
	weft_list_del(&al->link);
	free(al);
}

static uint64_t allocation_size(const struct allocation *al)
{
	const struct nvl_part *last = &al->parts[al->nparts - 1];

	return last->base + last->size - al->parts[0].base;
}

/*
 * Bytes of ended allocations that sleeping peers may keep mapped, and so
 * allocated: beyond that they are woken, and unmap them.
 */
#define WAKE_BYTES ((uint64_t)256 << 20)

static void wake_importers(void)
{
	const struct nvl_frame f = { .magic = NVL_FRAME_MAGIC,
				     .type = NVL_FRAME_WAKE };
	struct nvl_conn *conn, *tmp;

	/* if the socket is full, the peer wakes as well */
	weft_list_for_each (conn, tmp, &importers, importer)
		send(conn->fd, &f, sizeof(f), MSG_NOSIGNAL | MSG_DONTWAIT);
}

static void end_allocation(struct allocation *al)
{
	static uint64_t bytes;

	nvl_life_end(&al->life);
	nvl_lives_allocation_ended();
	bytes += allocation_size(al);
	if (bytes >= WAKE_BYTES) {
		wake_importers();
		bytes = 0;
	}
}

static void unregister(struct allocation *al)
{
	if (!--al->registrations)
		end_allocation(al);
	put_allocation(al);
}

/* With the lock. */
static bool add_export(struct nvl_export *x, const struct nvl_part *parts,
		       unsigned int n, const struct weft_cuda_ctx *ctx,
		       const struct weft_cu_ipc *handle)
{
	x->allocation = get_allocation(parts, n, ctx, handle);
	if (!x->allocation)
		return false;
	if (nvl_life_begin_memory(&x->life) &&
	    !weft_table_add(&exports, &x->entry, x->rkey.token))
		return true;
	nvl_life_end(&x->life);
	unregister(x->allocation);
	return false;
}

void nvl_export_add(struct weft_mem *mem)
{
	struct nvl_part *parts = malloc(NVL_PARTS * sizeof(*parts));
	struct nvl_export *x = calloc(1, sizeof(*x));
	const uint64_t addr = (uintptr_t)mem->addr;
	struct weft_cu_ipc handle;
	struct weft_cuda_scope s;
	bool by_handle = false;
	unsigned int n = 0;

	if (parts && x && nvl_share_allowed(mem->where.ordinal) &&
	    !weft_cuda_enter_kept(&s, &mem->where.ctx)) {
		n = nvl_parts_find(s.cu, addr, mem->len, parts);
		by_handle = !n && nvl_part_handle(s.cu, addr, parts, &handle);
		weft_cuda_leave(&s);
	}
	if ((n || by_handle) && !nvl_lives_begin()) {
		x->rkey = mem->rkey;
		x->addr = addr;
		/* UCX rounds it up, beyond the allocation */
		x->len = by_handle ? weft_min((uint64_t)mem->len,
					      parts->base + parts->size - addr)
				   : mem->len;
		pthread_mutex_lock(&lock);
		if (add_export(x, parts, n + by_handle, &mem->where.ctx,
			       by_handle ? &handle : NULL))
			mem->exported = x;
		pthread_mutex_unlock(&lock);
		if (!mem->exported)
			nvl_lives_end();
	}
	if (!mem->exported)
		free(x);
	free(parts);
}

void nvl_export_pack(const struct weft_mem *mem, struct nvl_key *key)
{
	const struct nvl_export *x = mem->exported;
	const struct allocation *al = x ? x->allocation : NULL;

	memset(key, 0, sizeof(*key));
	if (!x)
		return;
	*key = (struct nvl_key){
		.token = x->rkey.token,
		.addr = x->addr,
		.len = x->len,
		.id = al->id,
		.base = al->parts[0].base,
		.size = allocation_size(al),
		.life = x->life,
		.whole = al->life,
		.process = nvl_process(),
		.kind = al->kind,
	};
	memcpy(key->handle, &al->handle, sizeof(key->handle));
}

bool nvl_export_own(uint64_t token, uint64_t addr, uint64_t len,
		    struct weft_rkey *rkey)
{
	struct weft_entry *e;
	struct nvl_export *x;
	bool found = false;

	pthread_mutex_lock(&lock);
	e = weft_table_find(&exports, token);
	for (; e && !found; e = weft_table_next(e)) {
		x = container_of(e, struct nvl_export, entry);
		found = addr >= x->addr && len <= x->len &&
			addr - x->addr <= x->len - len;
		*rkey = x->rkey;
	}
	pthread_mutex_unlock(&lock);
	return found;
}

/* ---- taking it back ------------------------------------------------------ */

/* With the lock: the first importer behind @id; they are in that order. */
static struct nvl_conn *next_importer(uint64_t id)
{
	struct nvl_conn *conn, *tmp;

	weft_list_for_each (conn, tmp, &importers, importer)
		if (conn->importer_id > id)
			return conn;
	return NULL;
}

/* Releases the lock meanwhile, so importers may come and go. */
static void wait_for_importers(void)
{
	uint64_t over = 0, watched = 0;
	struct nvl_watch w = { 0 };
	struct nvl_conn *conn;

	pthread_mutex_lock(&lock);
	while ((conn = next_importer(over))) {
		if (conn->importer_id != watched)
			w = (struct nvl_watch){ 0 };
		watched = conn->importer_id;
		if (nvl_watch_is_over(conn, &w)) {
			over = watched;
			continue;
		}
		pthread_mutex_unlock(&lock);
		sched_yield();
		pthread_mutex_lock(&lock);
	}
	pthread_mutex_unlock(&lock);
}

void nvl_export_del(struct nvl_export *x)
{
	if (!x)
		return;
	pthread_mutex_lock(&lock);
	weft_table_del(&exports, &x->entry);
	if (!exports.n)
		weft_table_free(&exports);
	nvl_life_end(&x->life);
	pthread_mutex_unlock(&lock);
	wait_for_importers();
	pthread_mutex_lock(&lock);
	unregister(x->allocation);
	pthread_mutex_unlock(&lock);
	free(x);
	nvl_lives_end();
}

bool nvl_export_revoke(struct nvl_conn *conn)
{
	struct nvl_watch w = { 0 };

	pthread_mutex_lock(&lock);
	nvl_life_end(&conn->life);
	pthread_mutex_unlock(&lock);
	return nvl_watch_have_ended(conn, &w);
}

void nvl_export_leave(struct nvl_conn *conn)
{
	struct nvl_watch w = { 0 };
	bool over;

	nvl_export_revoke(conn);
	do {
		pthread_mutex_lock(&lock);
		over = nvl_watch_is_over(conn, &w);
		pthread_mutex_unlock(&lock);
	} while (!over && !sched_yield());
}

/* ---- descriptors for a peer ---------------------------------------------- */

static bool is_registered(const struct allocation *al)
{
	bool registered;

	pthread_mutex_lock(&lock);
	registered = al->registrations;
	pthread_mutex_unlock(&lock);
	return registered;
}

/* Drivers report different errors when no descriptors are left. */
static bool is_out_of_descriptors(const struct nvl_conn *conn)
{
	const int fd = fcntl(conn->fd, F_DUPFD_CLOEXEC, 0);

	if (fd < 0)
		return errno == EMFILE || errno == ENFILE;
	close(fd);
	return false;
}

/*
 * The next descriptor, or that there is none; after that 0, else 1: more.
 * -EMFILE, -ETOOMANYREFS: not now.
 */
static int send_part(struct nvl_conn *conn, struct fetch *fetch)
{
	const struct allocation *al = fetch->allocation;
	const struct nvl_part *part = &al->parts[fetch->sent];
	struct nvl_frame f = { .type = NVL_FRAME_PART,
			       .id = al->id,
			       .len = part->size };
	struct weft_cuda_scope s;
	int fd = -1, r, err;

	r = is_registered(al) ? weft_cuda_enter_kept(&s, &al->ctx) : -EACCES;
	if (!r) {
		r = weft_cuda_errno(nvl_part_export(s.cu, part, &fd));
		weft_cuda_leave(&s);
		if (r && is_out_of_descriptors(conn))
			return -EMFILE;
	}
	if (r) {
		weft_debug("memory at %#llx is not exported (%s)",
			   (unsigned long long)part->base, strerror(-r));
		f.type = NVL_FRAME_NONE;
		f.err = r;
		return nvl_sock_send(conn, &f, -1);
	}
	err = nvl_sock_send(conn, &f, fd);
	close(fd);
	return err ? err : ++fetch->sent < al->nparts;
}

static void free_fetch(struct fetch *fetch)
{
	weft_list_del(&fetch->link);
	pthread_mutex_lock(&lock);
	put_allocation(fetch->allocation);
	pthread_mutex_unlock(&lock);
	free(fetch);
}

bool nvl_export_is_due(const struct nvl_conn *conn)
{
	/* without room in the socket the descriptors would stay open here */
	return !weft_list_empty(&conn->fetches) &&
	       weft_list_empty(&conn->frames_out) &&
	       (!conn->fetch_ms || weft_now_ms() >= conn->fetch_ms);
}

int nvl_export_step(struct nvl_conn *conn)
{
	struct fetch *fetch;
	int r;

	if (!nvl_export_is_due(conn))
		return 0;
	fetch = weft_list_first(&conn->fetches, struct fetch, link);
	r = send_part(conn, fetch);
	/* too many are open or in flight: wait until some are closed */
	conn->fetch_ms = r == -EMFILE || r == -ETOOMANYREFS
				 ? weft_now_ms() + NVL_SEND_AGAIN_MS
				 : 0;
	if (conn->fetch_ms)
		return 0;
	if (r <= 0)
		free_fetch(fetch);
	return r < 0 ? r : 1;
}

static bool is_fetching(struct nvl_conn *conn, uint64_t id)
{
	struct fetch *fetch, *tmp;

	weft_list_for_each (fetch, tmp, &conn->fetches, link)
		if (fetch->allocation->id == id)
			return true;
	return false;
}

/* With the lock. */
static struct allocation *find_by_key(uint64_t token, uint64_t id)
{
	struct weft_entry *e = weft_table_find(&exports, token);
	struct nvl_export *x;

	for (; e; e = weft_table_next(e)) {
		x = container_of(e, struct nvl_export, entry);
		if (x->allocation->id == id &&
		    x->allocation->kind == NVL_KEY_PARTS)
			return x->allocation;
	}
	return NULL;
}

int nvl_export_fetch(struct nvl_conn *conn, const struct nvl_frame *f)
{
	struct nvl_frame none = { .type = NVL_FRAME_NONE,
				  .id = f->id,
				  .err = -EACCES };
	struct fetch *fetch;

	if (is_fetching(conn, f->id))
		return -EPROTO;
	fetch = calloc(1, sizeof(*fetch));
	if (!fetch)
		return -ENOMEM;
	weft_list_init(&fetch->link);
	pthread_mutex_lock(&lock);
	fetch->allocation = find_by_key(f->token, f->id);
	if (fetch->allocation)
		fetch->allocation->users++;
	pthread_mutex_unlock(&lock);
	if (!fetch->allocation) {
		free(fetch);
		return nvl_sock_send(conn, &none, -1);
	}
	weft_list_add_tail(&conn->fetches, &fetch->link);
	return 0;
}

/* ---- peers --------------------------------------------------------------- */

int nvl_export_join(struct nvl_conn *conn)
{
	bool ok;

	pthread_mutex_lock(&lock);
	ok = nvl_life_begin(&conn->life);
	pthread_mutex_unlock(&lock);
	return ok ? 0 : -ENOSPC;
}

int nvl_export_marks(struct nvl_conn *conn, int fd)
{
	void *p;
	int err = weft_memfd_map(fd, WEFT_MARKS_SIZE, PROT_READ, &p);

	if (err)
		return err;
	pthread_mutex_lock(&lock);
	conn->marks = p;
	conn->importer_id = ++last_importer;
	weft_list_add_tail(&importers, &conn->importer);
	pthread_mutex_unlock(&lock);
	return 0;
}

void nvl_export_close(struct nvl_conn *conn)
{
	struct fetch *fetch, *tmp;

	pthread_mutex_lock(&lock);
	nvl_life_end(&conn->life);
	weft_list_del(&conn->importer);
	pthread_mutex_unlock(&lock);
	weft_list_for_each (fetch, tmp, &conn->fetches, link)
		free_fetch(fetch);
	if (conn->marks)
		munmap((void *)(uintptr_t)conn->marks, WEFT_MARKS_SIZE);
	conn->marks = NULL;
}
