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
#include <poll.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "bootstrap/settings.h"
#include "devices/memfd.h"
#include "devices/nvlink/nvl_direct.h"
#include "devices/nvlink/nvl_inbox.h"
#include "devices/nvlink/nvl_sock.h"
#include "util/clock.h"
#include "util/log.h"

/* As the driver made it. */
struct part {
	uint64_t base;
	size_t size;
	unsigned long long buffer_id; /* never used again */
};

/* Allocations one behind the other. */
struct allocation {
	struct weft_list link;
	unsigned int users;	    /* registrations and fetches */
	unsigned int registrations; /* that are live */
	uint64_t id;
	void *ctx;	/* without one the driver looks no address up */
	bool by_handle; /* one part, and no descriptor of it */
	struct weft_cu_ipc handle;
	unsigned int nparts;
	struct part parts[];
};

/* A registration. */
struct nvl_export {
	struct weft_entry entry; /* by its token */
	struct weft_rkey key;
	uint64_t addr, len;
	struct allocation *allocation;
	struct weft_list grants;
};

/* Descriptors, or a handle, that a peer has yet to get. */
struct fetch {
	struct weft_list link; /* conn->fetches */
	struct allocation *allocation;
	unsigned int sent;
};

/* How far the copies of a peer have been looked at. */
struct watch {
	unsigned int mark; /* those before it have ended */
	bool snapped, gone;
	uint32_t seq;	   /* of @mark, once snapped */
	uint64_t until_ms; /* 0: not begun */
};

/* That one peer may use it; all by the lock. */
struct grant {
	struct weft_list link;	    /* export->grants */
	struct weft_list conn_link; /* conn->grants */
	struct nvl_conn *conn;
	unsigned int slot;
	uint32_t serial;
	bool stopped;
	struct watch watch;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct weft_table exports;
static struct weft_list allocations = { &allocations, &allocations };
static uint64_t last_id;
static uint32_t last_serial;

/* ---- what can be exported ------------------------------------------------ */

static bool has_descriptor(const struct weft_cuda *cu, uint64_t base)
{
	struct weft_cu_alloc_prop prop;
	unsigned long long handle;
	int r;

	/* memory that is not of cuMemCreate() has none */
	if (cu->mem_retain(&handle, (void *)(uintptr_t)base))
		return false;
	memset(&prop, 0, sizeof(prop));
	r = cu->mem_props(&prop, handle);
	cu->mem_release(handle);
	return !r && (prop.handle_types & WEFT_CU_HANDLE_POSIX_FD) &&
	       prop.location.type == WEFT_CU_LOCATION_DEVICE;
}

static bool read_part(const struct weft_cuda *cu, uint64_t at,
		      struct part *part)
{
	int attr = WEFT_CU_POINTER_BUFFER_ID;
	void *value = &part->buffer_id;

	part->buffer_id = 0;
	/* in a range of several allocations: the one around @at */
	return !cu->address_range(&part->base, &part->size, at) && part->size &&
	       part->base <= at && at - part->base < part->size &&
	       !cu->pointer_attrs(1, &attr, &value, part->base);
}

/* Those of cuMemCreate() around [addr, addr+len); 0: not all can be. */
static unsigned int find_parts(const struct weft_cuda *cu, uint64_t addr,
			       size_t len, struct part *parts)
{
	uint64_t at = addr;
	unsigned int n = 0;

	while (at - addr < len) {
		if (n == NVL_PARTS || !read_part(cu, at, &parts[n]) ||
		    (n && parts[n].base != at) ||
		    !has_descriptor(cu, parts[n].base))
			return 0;
		at = parts[n].base + parts[n].size;
		n++;
	}
	return n;
}

/* Where the driver notes the pid in a handle, and a number that is none. */
#define HANDLE_PID 8u
#define NO_PID	   (1u << 30) /* the kernel's end at 2^22 (PID_MAX_LIMIT) */

/*
 * A handle has the getpid() of its maker in four of its bytes, and the driver
 * refuses it where that is the opener's, by whatever kernel or namespace; it
 * opens it with any other number there (driver 580, two H100).  Processes of
 * different pods often have the same small pid, so another number takes its
 * place: the same in all handles of this process, and no other process's.
 * 0: there is none.
 */
static uint32_t handle_number(void)
{
	static uint32_t number;
	uint32_t n;

	pthread_mutex_lock(&lock);
	if (!number && !weft_random(&n, sizeof(n)))
		number = NO_PID | (n & (NO_PID - 1));
	n = number;
	pthread_mutex_unlock(&lock);
	return n;
}

/*
 * The allocation around @addr, if the driver has an IPC handle for it: if it is
 * cuMemAlloc()'s.  It has none for pools (cuMemAllocAsync) and for what was
 * opened by one.  A driver that puts no pid there has another form of it, which
 * is left as it is.
 */
static bool get_handle(const struct weft_cuda *cu, uint64_t addr,
		       struct part *part, struct weft_cu_ipc *handle)
{
	const uint32_t pid = getpid(), number = handle_number();

	if (!number || !read_part(cu, addr, part) ||
	    cu->ipc_get(handle, part->base))
		return false;
	if (!memcmp(handle->bytes + HANDLE_PID, &pid, sizeof(pid)))
		memcpy(handle->bytes + HANDLE_PID, &number, sizeof(number));
	return true;
}

static bool is_same_part(const struct part *a, const struct part *b)
{
	return a->base == b->base && a->size == b->size &&
	       a->buffer_id == b->buffer_id;
}

/* One that has all of them, in their order. */
static struct allocation *find_allocation(const struct part *parts,
					  unsigned int n)
{
	struct allocation *al, *tmp;
	unsigned int i, j;

	weft_list_for_each (al, tmp, &allocations, link) {
		for (i = 0; i + n <= al->nparts; i++) {
			for (j = 0; j < n; j++)
				if (!is_same_part(&al->parts[i + j], &parts[j]))
					break;
			if (j == n)
				return al;
		}
	}
	return NULL;
}

/* @handle: NULL if it has descriptors. */
static struct allocation *get_allocation(const struct part *parts,
					 unsigned int n, void *ctx,
					 const struct weft_cu_ipc *handle)
{
	struct allocation *al = find_allocation(parts, n);

	if (!al) {
		al = calloc(1, sizeof(*al) + n * sizeof(*parts));
		if (!al)
			return NULL;
		al->id = ++last_id;
		al->ctx = ctx;
		al->by_handle = handle;
		if (handle)
			al->handle = *handle;
		al->nparts = n;
		memcpy(al->parts, parts, n * sizeof(*parts));
		weft_list_add_tail(&allocations, &al->link);
	}
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

static void unregister(struct allocation *al)
{
	al->registrations--;
	put_allocation(al);
}

static uint64_t allocation_size(const struct allocation *al)
{
	const struct part *last = &al->parts[al->nparts - 1];

	return last->base + last->size - al->parts[0].base;
}

void nvl_export_add(struct weft_mem *mem)
{
	struct part *parts = malloc(NVL_PARTS * sizeof(*parts));
	struct nvl_export *x = calloc(1, sizeof(*x));
	const uint64_t addr = (uintptr_t)mem->addr;
	struct weft_cu_ipc handle;
	struct weft_cuda_scope s;
	bool by_handle = false;
	unsigned int n = 0;

	if (parts && x && weft_settings()->nvl_direct != WEFT_OFF &&
	    nvl_share_allowed(mem->where.ordinal) &&
	    !weft_cuda_enter(&s, mem->where.ctx)) {
		n = find_parts(s.cu, addr, mem->len, parts);
		by_handle = !n && get_handle(s.cu, addr, parts, &handle);
		weft_cuda_leave(&s);
	}
	if (n || by_handle) {
		x->key = mem->rkey;
		x->addr = addr;
		/* UCX rounds it up; what lies behind goes by a ring */
		x->len = by_handle ? weft_min((uint64_t)mem->len,
					      parts->base + parts->size - addr)
				   : mem->len;
		weft_list_init(&x->grants);
		pthread_mutex_lock(&lock);
		x->allocation =
			get_allocation(parts, n + by_handle, mem->where.ctx,
				       by_handle ? &handle : NULL);
		if (x->allocation &&
		    !weft_table_add(&exports, &x->entry, x->key.token))
			mem->exported = x;
		else if (x->allocation)
			unregister(x->allocation);
		pthread_mutex_unlock(&lock);
	}
	if (!mem->exported)
		free(x);
	free(parts);
}

unsigned int nvl_export_loc(const struct nvl_export *x)
{
	return NVL_LOC_DIRECT | (x->allocation->by_handle ? NVL_LOC_HANDLE : 0);
}

/* ---- taking it back ------------------------------------------------------ */

static bool is_reached(uint32_t finished, uint32_t seq)
{
	return (int32_t)(finished - seq) >= 0;
}

/* Nothing that was handed over before @seq is under way; any process's. */
static bool has_ended(const struct weft_engine_mark *m, uint32_t seq)
{
	return is_reached(__atomic_load_n(&m->flag, __ATOMIC_ACQUIRE), seq) ||
	       is_reached(atomic_load(&m->finished), seq);
}

/* Is it idle, or at least as far as @seq (once it is not claimed)? */
static bool is_done_until(const struct weft_engine_mark *m, bool *snapped,
			  uint32_t *seq)
{
	if (!*snapped) {
		if (atomic_load(&m->claimed))
			return false;
		*seq = atomic_load(&m->issued);
		*snapped = true;
	}
	return has_ended(m, *seq);
}

static const struct weft_engine_mark *mark_of(const struct nvl_conn *conn,
					      unsigned int i)
{
	const unsigned int page = i / WEFT_STREAMS;

	return (const struct weft_engine_mark *)((const char *)
							 conn->peer_marks +
						 page * WEFT_MARK_PAGE) +
	       i % WEFT_STREAMS;
}

#define MARKS (WEFT_MARK_PAGES * WEFT_STREAMS)

static bool has_hung_up(const struct nvl_conn *conn)
{
	struct pollfd p = { .fd = conn->fd, .events = POLLRDHUP };

	return poll(&p, 1, 0) > 0 && (p.revents & (POLLRDHUP | POLLHUP));
}

/* It starts no more copies; those it has may go on. */
static void stop_grant(struct grant *g)
{
	struct nvl_inbox_head *head = g->conn->rx.head;

	if (g->stopped)
		return;
	g->stopped = true;
	atomic_store(&head->live[g->slot], 0);
	atomic_fetch_add(&head->revoked, 1);
	g->conn->granted[g->slot] = false;
}

/* It has had its time: nobody waits for this peer again, nor lets it copy. */
static void give_up_waiting(struct nvl_conn *conn, const struct watch *w)
{
	struct grant *g, *tmp;

	conn->exports_stuck = true;
	weft_list_for_each (g, tmp, &conn->grants, conn_link)
		stop_grant(g);
	if (!w->gone)
		weft_error("copies of a peer on this host, to or from memory "
			   "that it has mapped, did not end within %u s",
			   WEFT_COPY_WATCHDOG_MS / 1000);
}

/* Have all copies ended that the peer's engines had when first looked at? */
static bool have_ended(const struct nvl_conn *conn, struct watch *w)
{
	for (; conn->peer_marks && w->mark < MARKS; w->mark++) {
		if (!is_done_until(mark_of(conn, w->mark), &w->snapped,
				   &w->seq))
			return false;
		w->snapped = false;
	}
	return true;
}

/*
 * Are copies done that the peer's engines had when first looked at, or is it
 * too late for them?  Of a process that is gone the driver ends them, and may
 * not say so.  With the lock.
 */
static bool is_over(struct nvl_conn *conn, struct watch *w)
{
	const uint64_t now = weft_now_ms();

	if (have_ended(conn, w) || conn->exports_stuck)
		return true;
	if (!w->until_ms)
		w->until_ms = now + WEFT_COPY_WATCHDOG_MS;
	if (!w->gone && has_hung_up(conn)) {
		w->gone = true;
		w->until_ms = weft_min(w->until_ms, now + WEFT_COPY_SUSPECT_MS);
	}
	if (now <= w->until_ms)
		return false;
	give_up_waiting(conn, w);
	return true;
}

static void free_grant(struct grant *g)
{
	weft_list_del(&g->link);
	weft_list_del(&g->conn_link);
	free(g);
}

/* Frees those that need no waiting; connections that end free theirs. */
static bool has_grants(struct nvl_export *x)
{
	struct grant *g, *tmp;

	weft_list_for_each (g, tmp, &x->grants, link) {
		if (!is_over(g->conn, &g->watch))
			continue;
		/* it unmaps, awake or not */
		nvl_inbox_wake(g->conn);
		free_grant(g);
	}
	return !weft_list_empty(&x->grants);
}

void nvl_export_del(struct nvl_export *x)
{
	struct grant *g, *tmp;

	if (!x)
		return;
	pthread_mutex_lock(&lock);
	weft_table_del(&exports, &x->entry);
	if (!exports.n)
		weft_table_free(&exports);
	x->allocation->registrations--;
	weft_list_for_each (g, tmp, &x->grants, link)
		stop_grant(g);
	/* progress() of any interface gets the lock between two looks */
	while (has_grants(x)) {
		pthread_mutex_unlock(&lock);
		sched_yield();
		pthread_mutex_lock(&lock);
	}
	put_allocation(x->allocation);
	pthread_mutex_unlock(&lock);
	free(x);
}

bool nvl_export_revoke(struct nvl_conn *conn)
{
	struct watch w = { 0 };
	struct grant *g, *tmp;

	/* a release waits for those, as long as this connection does */
	pthread_mutex_lock(&lock);
	weft_list_for_each (g, tmp, &conn->grants, conn_link)
		stop_grant(g);
	pthread_mutex_unlock(&lock);
	return have_ended(conn, &w);
}

void nvl_export_leave(struct nvl_conn *conn)
{
	struct watch w = { 0 };
	bool over;

	nvl_export_revoke(conn);
	do {
		pthread_mutex_lock(&lock);
		over = is_over(conn, &w);
		pthread_mutex_unlock(&lock);
	} while (!over && !sched_yield());
}

/* ---- a peer's queries ---------------------------------------------------- */

static int map_marks(struct nvl_conn *conn, int fd)
{
	void *p;
	int err;

	if (conn->peer_marks)
		return -EPROTO;
	err = weft_memfd_map(fd, WEFT_MARKS_SIZE, PROT_READ, &p);
	if (err)
		return err;
	conn->peer_marks = p;
	return 0;
}

static struct nvl_export *find_export(const struct nvl_frame *f)
{
	const struct weft_rkey key = { f->slot, f->generation, f->token };
	struct weft_entry *e = weft_table_find(&exports, f->token);
	struct nvl_export *x = NULL;

	for (; e; e = weft_table_next(e)) {
		x = container_of(e, struct nvl_export, entry);
		if (weft_rkey_same(&x->key, &key))
			return x;
	}
	return NULL;
}

/* Its grant, if it has one: peers that query twice get it twice. */
static struct grant *find_grant(const struct nvl_conn *conn,
				struct nvl_export *x)
{
	struct grant *g, *tmp;

	weft_list_for_each (g, tmp, &x->grants, link)
		if (g->conn == conn)
			return g;
	return NULL;
}

static int make_grant(struct nvl_conn *conn, struct nvl_export *x,
		      struct grant **out)
{
	struct grant *g;
	unsigned int slot = 0;

	if (conn->exports_stuck)
		return -ETIMEDOUT;
	while (slot < NVL_VIEWS && conn->granted[slot])
		slot++;
	if (slot == NVL_VIEWS)
		return -ENOSPC;
	g = calloc(1, sizeof(*g));
	if (!g)
		return -ENOMEM;
	if (!++last_serial)
		last_serial++;
	g->conn = conn;
	g->slot = slot;
	g->serial = last_serial;
	conn->granted[slot] = true;
	weft_list_init(&g->link);
	weft_list_init(&g->conn_link);
	weft_list_add_tail(&x->grants, &g->link);
	weft_list_add_tail(&conn->grants, &g->conn_link);
	atomic_store(&conn->rx.head->live[slot], g->serial);
	*out = g;
	return 0;
}

/* With the lock. */
static int grant(struct nvl_conn *conn, struct nvl_export *x,
		 struct nvl_frame *reply)
{
	struct grant *g = find_grant(conn, x);
	int err = g ? 0 : make_grant(conn, x, &g);

	if (err)
		return err;
	reply->view = g->slot;
	reply->serial = g->serial;
	reply->addr = x->addr;
	reply->len = x->len;
	reply->id = x->allocation->id;
	reply->base = x->allocation->parts[0].base;
	reply->size = allocation_size(x->allocation);
	return 0;
}

static int handle_want(struct nvl_conn *conn, const struct nvl_frame *f)
{
	struct nvl_frame reply = { .type = NVL_FRAME_MAP_GRANT,
				   .slot = f->slot,
				   .generation = f->generation,
				   .token = f->token };
	struct nvl_export *x;

	/* without them no thread could wait for its copies */
	if (!conn->peer_marks)
		return -EPROTO;
	pthread_mutex_lock(&lock);
	x = find_export(f);
	reply.err = x ? grant(conn, x, &reply) : -EACCES;
	pthread_mutex_unlock(&lock);
	return nvl_sock_send(conn, &reply, -1);
}

/*
 * CUresult; INVALID_VALUE: another one is there now.  What is retained is
 * compared: its numbers stay its own, whatever is mapped there next.
 */
static int export_part(const struct weft_cuda *cu, const struct part *part,
		       int *fd)
{
	unsigned long long handle;
	struct part now;
	int r;

	r = cu->mem_retain(&handle, (void *)(uintptr_t)part->base);
	if (r)
		return r;
	if (read_part(cu, part->base, &now) && is_same_part(part, &now))
		r = cu->mem_export(fd, handle, WEFT_CU_HANDLE_POSIX_FD, 0);
	else
		r = WEFT_CU_INVALID_VALUE;
	cu->mem_release(handle);
	return r;
}

/* The same for memory that has a handle: it is for what was there then. */
static int check_part(const struct weft_cuda *cu, const struct part *part)
{
	struct part now;

	return read_part(cu, part->base, &now) && is_same_part(part, &now)
		       ? 0
		       : WEFT_CU_INVALID_VALUE;
}

static bool is_registered(const struct allocation *al)
{
	bool registered;

	pthread_mutex_lock(&lock);
	registered = al->registrations;
	pthread_mutex_unlock(&lock);
	return registered;
}

/* A driver that finds none left reports some error or other. */
static bool is_out_of_descriptors(const struct nvl_conn *conn)
{
	const int fd = fcntl(conn->fd, F_DUPFD_CLOEXEC, 0);

	if (fd < 0)
		return errno == EMFILE || errno == ENFILE;
	close(fd);
	return false;
}

/*
 * The next descriptor or the handle, or that there are none; after that 0, else
 * 1: more. -EMFILE, -ETOOMANYREFS: not now.
 */
static int send_part(struct nvl_conn *conn, struct fetch *fetch)
{
	const struct allocation *al = fetch->allocation;
	const struct part *part = &al->parts[fetch->sent];
	struct nvl_frame f = { .type = NVL_FRAME_MAP_PART,
			       .id = al->id,
			       .addr = part->base,
			       .len = part->size };
	struct weft_cuda_scope s;
	int fd = -1, r, err;

	r = is_registered(al) ? weft_cuda_enter(&s, al->ctx) : -EACCES;
	if (!r) {
		r = weft_cuda_errno(al->by_handle
					    ? check_part(s.cu, part)
					    : export_part(s.cu, part, &fd));
		weft_cuda_leave(&s);
		if (r && !al->by_handle && is_out_of_descriptors(conn))
			return -EMFILE;
	}
	if (r) {
		weft_debug("memory at %#llx is not exported (%s)",
			   (unsigned long long)part->base, strerror(-r));
		f = (struct nvl_frame){ .type = NVL_FRAME_MAP_NONE,
					.id = al->id,
					.err = r };
		return nvl_sock_send(conn, &f, -1);
	}
	if (al->by_handle) {
		f.type = NVL_FRAME_MAP_HANDLE;
		memcpy(f.handle, &al->handle, sizeof(f.handle));
	}
	err = nvl_sock_send(conn, &f, fd);
	if (fd >= 0)
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
	/* what the socket has no room for would be kept open here */
	return !weft_list_empty(&conn->fetches) &&
	       weft_list_empty(&conn->frames_out) &&
	       ((!conn->copies && !conn->ntransfers && !conn->export_refused) ||
		weft_now_ms() - conn->exported_ms >= NVL_EXPORT_MS);
}

unsigned int nvl_export_step(struct nvl_conn *conn)
{
	struct fetch *fetch;
	int r;

	if (!nvl_export_is_due(conn))
		return 0;
	fetch = weft_list_first(&conn->fetches, struct fetch, link);
	r = send_part(conn, fetch);
	conn->exported_ms = weft_now_ms();
	/* too many are open, or on their way: the ring serves meanwhile */
	conn->export_refused = r == -EMFILE || r == -ETOOMANYREFS;
	if (conn->export_refused)
		return 0;
	if (r <= 0)
		free_fetch(fetch);
	if (r < 0)
		nvl_conn_break(conn, r);
	return 1;
}

static bool is_fetching(struct nvl_conn *conn, uint64_t id)
{
	struct fetch *fetch, *tmp;

	weft_list_for_each (fetch, tmp, &conn->fetches, link)
		if (fetch->allocation->id == id)
			return true;
	return false;
}

static int handle_fetch(struct nvl_conn *conn, const struct nvl_frame *f)
{
	struct nvl_frame none = { .type = NVL_FRAME_MAP_NONE,
				  .id = f->id,
				  .err = -EACCES };
	struct fetch *fetch;
	struct nvl_export *x;

	if (is_fetching(conn, f->id))
		return -EPROTO;
	fetch = calloc(1, sizeof(*fetch));
	if (!fetch)
		return -ENOMEM;
	weft_list_init(&fetch->link);
	pthread_mutex_lock(&lock);
	x = find_export(f);
	if (x && x->allocation->id == f->id) {
		fetch->allocation = x->allocation;
		fetch->allocation->users++;
	}
	pthread_mutex_unlock(&lock);
	if (!fetch->allocation) {
		free(fetch);
		return nvl_sock_send(conn, &none, -1);
	}
	weft_list_add_tail(&conn->fetches, &fetch->link);
	conn->exported_ms = weft_now_ms();
	return 0;
}

int nvl_export_frame(struct nvl_conn *conn, const struct nvl_frame *f, int fd)
{
	switch (f->type) {
	case NVL_FRAME_MARKS:
		return map_marks(conn, fd);
	case NVL_FRAME_MAP_WANT:
		return handle_want(conn, f);
	default:
		return handle_fetch(conn, f);
	}
}

/* ---- counters ------------------------------------------------------------ */

/* 0: it ran backwards, which breaks the connection. */
static uint64_t take_new(struct nvl_conn *conn, uint64_t now, uint64_t *seen)
{
	const uint64_t n = now - *seen;

	if ((int64_t)n < 0) {
		nvl_conn_break(conn, -EPROTO);
		return 0;
	}
	*seen = now;
	return n;
}

void nvl_export_count(struct nvl_conn *conn)
{
	struct nvl_inbox_head *h = conn->rx.head;
	const uint32_t puts =
		atomic_load_explicit(&h->direct_puts, memory_order_acquire);
	const uint32_t gets =
		atomic_load_explicit(&h->direct_gets, memory_order_acquire);
	uint64_t n;

	if (puts != conn->peer_puts) {
		weft_count(conn->stats, rx_puts,
			   (uint32_t)(puts - conn->peer_puts));
		conn->peer_puts = puts;
		n = take_new(conn, atomic_load(&h->direct_put_bytes),
			     &conn->peer_put_bytes);
		weft_count(conn->stats, rx_put_bytes, n);
		weft_count(conn->stats, wire_rx_bytes, n);
	}
	if (gets != conn->peer_gets) {
		weft_count(conn->stats, tx_gets,
			   (uint32_t)(gets - conn->peer_gets));
		conn->peer_gets = gets;
		n = take_new(conn, atomic_load(&h->direct_get_bytes),
			     &conn->peer_get_bytes);
		weft_count(conn->stats, tx_get_bytes, n);
		weft_count(conn->stats, wire_tx_bytes, n);
	}
}

void nvl_export_close(struct nvl_conn *conn)
{
	struct fetch *fetch, *tmp;
	struct grant *g, *next;

	/* nobody waits for this peer any more */
	pthread_mutex_lock(&lock);
	weft_list_for_each (g, next, &conn->grants, conn_link) {
		stop_grant(g);
		free_grant(g);
	}
	pthread_mutex_unlock(&lock);
	weft_list_for_each (fetch, tmp, &conn->fetches, link)
		free_fetch(fetch);
	if (conn->peer_marks)
		munmap((void *)(uintptr_t)conn->peer_marks, WEFT_MARKS_SIZE);
	conn->peer_marks = NULL;
	if (conn->rx.head)
		nvl_export_count(conn);
}
