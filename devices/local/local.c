/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Where an interface is found.  The common address has room for 64 + 16 bits
 * beside version and key; here they are two numbers of 40 bits: the network
 * namespace's (ns_id's upper 40) and the run folder's (ns_id's lower 24 and
 * the port).  Both hash the host's boot id, so that equal means the same host;
 * if either is equal, the peer has a socket that this process can dial.  The
 * device part is always 0.0.0.0.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "devices/common/forked.h"
#include "devices/local/local.h"
#include "devices/common/memfd.h"
#include "host/host.h"
#include "stats/neighbour.h"
#include "util/log.h"

#define MASK40 (BIT(40) - 1)

static uint64_t netns_of(const struct weft_address *a)
{
	return a->ns_id >> 24;
}

static uint64_t run_of(const struct weft_address *a)
{
	return (a->ns_id & (BIT(24) - 1)) << 16 | ntohs(a->sa.in.sin_port);
}

static void make_address(const struct weft_local *local,
			 const struct weft_base *base)
{
	uint64_t run = weft_folder_id(local->run) & MASK40;
	uint64_t netns = weft_netns_id() & MASK40;
	struct weft_address *a = base->addr;

	if (local->run && !run)
		run = 1; /* 0 stands for no folder */
	if (local->listen_fd < 0)
		netns = 0;
	a->ns_id = netns << 24 | run >> 16;
	memset(&a->sa, 0, sizeof(a->sa));
	a->sa.in.sin_family = AF_INET;
	a->sa.in.sin_port = htons(run & 0xffff);
	weft_neighbour_meets(run);
}

static bool same_netns(const struct weft_base *base,
		       const struct weft_address *remote)
{
	return netns_of(remote) && netns_of(remote) == netns_of(base->addr);
}

static bool same_run(const struct weft_base *base,
		     const struct weft_address *remote)
{
	return run_of(remote) && run_of(remote) == run_of(base->addr);
}

/* By address bytes alone. */
static bool may_see(const struct weft_base *base,
		    const struct weft_address *remote, const char **why)
{
	const char *no = NULL;

	if (!weft_address_has_version(remote))
		no = weft_other_wire;
	else if (!same_netns(base, remote) && !same_run(base, remote))
		no = weft_host_known()
			     ? "it shares neither the network namespace nor the run folder"
			     : weft_host_unknown;
	if (no && why)
		*why = no;
	return !no;
}

static socklen_t abstract_name(uint64_t id, struct sockaddr_un *sa)
{
	memset(sa, 0, sizeof(*sa));
	sa->sun_family = AF_UNIX;
	return offsetof(struct sockaddr_un, sun_path) + 1 +
	       snprintf(sa->sun_path + 1, sizeof(sa->sun_path) - 1,
			"weft-%016" PRIx64, id);
}

static int bind_abstract(int fd, uint64_t id)
{
	struct sockaddr_un sa;
	const socklen_t len = abstract_name(id, &sa);

	return bind(fd, (struct sockaddr *)&sa, len) || listen(fd, SOMAXCONN)
		       ? -errno
		       : 0;
}

static int connect_to(const struct weft_local *local,
		      const struct weft_base *base, int fd,
		      const struct weft_address *remote)
{
	const uint64_t id = weft_key_id(remote->key);
	struct sockaddr_un sa;
	socklen_t len = abstract_name(id, &sa);
	int err = -ECONNREFUSED;

	if (same_netns(base, remote))
		err = connect(fd, (struct sockaddr *)&sa, len) ? -errno : 0;
	if (err && err != -EAGAIN && same_run(base, remote))
		err = weft_folder_connect(local->run, fd, id);
	return err;
}

/* ---- listening ----------------------------------------------------------- */

/* Listen in the folder if an abstract socket cannot be created. */
static int try_folder(uint64_t id)
{
	struct weft_folder *run = weft_folder_open();
	int fd;

	if (!run)
		return -ENOENT;
	fd = weft_folder_listen(run, id);
	weft_folder_unlisten(run, id);
	weft_folder_close(run);
	if (fd >= 0)
		close(fd);
	return fd < 0 ? fd : 0;
}

int weft_local_works(const char **why)
{
	uint64_t id;
	int fd, err = weft_memfd_check();

	*why = err == -EFBIG
		       ? "files may not be large enough for shared memory (ulimit -f)"
		       : "shared memory cannot be created and sealed (memfd_create)";
	if (err)
		return err;
	*why = weft_host_unknown;
	if (!weft_host_known())
		return -ENOENT;
	*why = "no Unix socket can be made";
	fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return -errno;
	err = weft_random(&id, sizeof(id));
	if (!err)
		err = bind_abstract(fd, id);
	close(fd);
	if (!err)
		return 0;
	*why = "neither an abstract Unix socket nor one in a shared folder (WEFT_RUN_DIR) can be made";
	return try_folder(id);
}

static void close_fd(int fd)
{
	if (fd >= 0)
		close(fd);
}

void weft_local_init(struct weft_local *local)
{
	*local = (struct weft_local){ .listen_fd = -1, .listen_path_fd = -1 };
}

static void listen_abstract(struct weft_local *local, struct weft_base *base)
{
	int fd = weft_folder_socket(), err;

	if (fd < 0)
		return;
	err = bind_abstract(fd, base->id);
	if (!err)
		err = weft_session_listen(&base->session, fd);
	if (!err) {
		local->listen_fd = fd;
		return;
	}
	weft_info("no abstract Unix socket here: %s", strerror(-err));
	close(fd);
}

static void close_folder(struct weft_local *local, struct weft_base *base)
{
	if (!local->run)
		return;
	weft_folder_unlisten(local->run, base->id);
	weft_folder_close(local->run);
	local->run = NULL;
}

static void listen_in_folder(struct weft_local *local, struct weft_base *base)
{
	int fd;

	local->run = weft_folder_open();
	if (!local->run)
		return;
	fd = weft_folder_listen(local->run, base->id);
	if (fd >= 0 && !weft_session_listen(&base->session, fd)) {
		local->listen_path_fd = fd;
		return;
	}
	close_fd(fd);
	close_folder(local, base);
}

/* Listen on both sockets; one is enough. */
int weft_local_open(struct weft_local *local, struct weft_base *base)
{
	listen_abstract(local, base);
	listen_in_folder(local, base);
	if (local->listen_fd < 0 && local->listen_path_fd < 0)
		return weft_fail(
			-ENODEV,
			"neither an abstract Unix socket nor one in a shared folder (WEFT_RUN_DIR) can be made: peers of this host use TCP");
	make_address(local, base);
	return 0;
}

void weft_local_close(struct weft_local *local, struct weft_base *base)
{
	close_folder(local, base);
	close_fd(local->listen_fd);
	close_fd(local->listen_path_fd);
}

void weft_local_forget(struct weft_local *local)
{
	if (local->run)
		weft_folder_forget(local->run);
	weft_forked_close(&local->listen_fd);
	weft_forked_close(&local->listen_path_fd);
}

/* ---- dialling ------------------------------------------------------------ */

static bool is_forbidden(const struct weft_base *base, int err)
{
	if (err != -EACCES && err != -EPERM)
		return false;
	weft_warn_once(
		"a peer on this host may not be dialled (%s): SELinux or AppArmor keeps the two containers apart (give both the same label or profile), or its socket belongs to another user; %s is not used between them",
		strerror(-err), base->session.name);
	return true;
}

/*
 * A security module may forbid what addresses allow: try once per peer, which
 * sees a connection that closes before the hello.
 */
static bool may_dial(const struct weft_local *local, struct weft_base *base,
		     const struct weft_address *remote)
{
	const uint64_t id = weft_key_id(remote->key);
	struct weft_ep_number *known = weft_ep_number_get(&base->numbers, id);
	int fd, err;

	if (!known || known->asked || id == base->id)
		return !known || !known->refused;
	fd = weft_folder_socket();
	if (fd < 0)
		return true;
	err = connect_to(local, base, fd, remote);
	close(fd);
	known->refused = is_forbidden(base, err);
	/* if the backlog is full, the security modules were not asked */
	known->asked = err != -EAGAIN;
	return !known->refused;
}

bool weft_local_reaches(const struct weft_local *local, struct weft_base *base,
			const struct weft_address *remote, const char **why)
{
	if (!may_see(base, remote, why))
		return false;
	if (may_dial(local, base, remote))
		return true;
	if (why)
		*why = "it may not be dialled (SELinux, AppArmor or another user's socket)";
	return false;
}

int weft_local_connect(struct weft_iface *iface,
		       const struct weft_address *remote, uint32_t number,
		       struct weft_conn **conn)
{
	struct weft_base *base = weft_base(iface);

	if (!may_see(base, remote, NULL))
		return -EHOSTUNREACH;
	return weft_session_connect(&base->session, remote, number, conn);
}

int weft_local_dial(const struct weft_local *local,
		    const struct weft_base *base,
		    const struct weft_address *remote)
{
	int fd = weft_folder_socket(), err;

	if (fd < 0)
		return fd;
	err = connect_to(local, base, fd, remote);
	if (!err)
		return fd;
	close(fd);
	is_forbidden(base, err);
	return err == -ENOENT ? -ECONNREFUSED : err;
}
