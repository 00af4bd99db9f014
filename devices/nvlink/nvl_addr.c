/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Where an interface is found.  The common address has room for 64 + 16 bits
 * beside version and key; here they are two numbers of 40 bits: the network
 * namespace's (ns_id's upper 40) and the run folder's (ns_id's lower 24 and
 * the port).  Both hash the host's boot id, so that equal means the same host;
 * either one being equal means there is a socket of the peer that we can dial.
 * The device part is always 0.0.0.0.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "bootstrap/host.h"
#include "devices/nvlink/nvl_addr.h"
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

void nvl_addr_make(struct nvl_iface *iface)
{
	uint64_t run = nvl_folder_id(iface->run) & MASK40;
	uint64_t netns = weft_netns_id() & MASK40;
	struct weft_address *a = iface->base.addr;

	if (iface->run && !run)
		run = 1; /* 0 stands for no folder */
	if (iface->listen_fd < 0)
		netns = 0;
	a->ns_id = netns << 24 | run >> 16;
	memset(&a->sa, 0, sizeof(a->sa));
	a->sa.in.sin_family = AF_INET;
	a->sa.in.sin_port = htons(run & 0xffff);
}

static bool same_netns(const struct nvl_iface *iface,
		       const struct weft_address *remote)
{
	return netns_of(remote) &&
	       netns_of(remote) == netns_of(iface->base.addr);
}

static bool same_run(const struct nvl_iface *iface,
		     const struct weft_address *remote)
{
	return run_of(remote) && run_of(remote) == run_of(iface->base.addr);
}

bool nvl_addr_reaches(const struct nvl_iface *iface,
		      const struct weft_address *remote, const char **why)
{
	const char *no = NULL;

	if (!weft_address_has_version(remote))
		no = weft_other_wire;
	else if (!same_netns(iface, remote) && !same_run(iface, remote))
		no = "it shares neither the network namespace nor the run folder";
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
			"weft-nvl-%016" PRIx64, id);
}

int nvl_addr_listen(uint64_t id)
{
	struct sockaddr_un sa;
	socklen_t len = abstract_name(id, &sa);
	int fd, err;

	fd = nvl_folder_socket();
	if (fd < 0)
		return fd;
	if (bind(fd, (struct sockaddr *)&sa, len) || listen(fd, SOMAXCONN)) {
		err = -errno;
		weft_info("no abstract Unix socket here: %s", strerror(-err));
		close(fd);
		return err;
	}
	return fd;
}

int nvl_addr_connect(struct nvl_iface *iface, int fd,
		     const struct weft_address *remote)
{
	const uint64_t id = weft_key_id(remote->key);
	struct sockaddr_un sa;
	socklen_t len = abstract_name(id, &sa);
	int err = -ECONNREFUSED;

	if (same_netns(iface, remote))
		err = connect(fd, (struct sockaddr *)&sa, len) ? -errno : 0;
	if (err && err != -EAGAIN && same_run(iface, remote))
		err = nvl_folder_connect(iface->run, fd, id);
	return err;
}
