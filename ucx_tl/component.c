/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The component and its transport, laid out for one minor and entered into the
 * lists of one copy of UCX.
 */
#include <stdlib.h>
#include <string.h>
#include "bootstrap/netif.h"
#include "bootstrap/settings.h"
#include "bootstrap/ucxenv.h"
#include "ucx_tl/status.h"
#include "ucx_tl/uct.h"
#include "util/log.h"

const struct weft_uct_tl weft_uct_tcp = {
	.name = "weft_tcp",
	.dev = &weft_tcp_ops,
	.config_prefix = "WEFT_TCP_",
};

static const char component_name[] = "weft_tcp";

int64_t weft_uct_unsupported(void)
{
	return WEFT_UCS_UNSUPPORTED;
}

int64_t weft_uct_ok(void)
{
	return WEFT_UCS_OK;
}

static struct weft_uct *uct_of(void *component)
{
	return container_of((char(*)[WEFT_UCT_COMPONENT_MAX])component,
			    struct weft_uct, component);
}

/*
 * "all" and negated lists in UCX_TLS would take weft's devices in, so there are
 * none unless weft was asked for by name.
 */
static enum weft_ucs_status
query_md_resources(void *component, struct weft_uct_md_resource **out,
		   unsigned int *count)
{
	struct weft_uct_md_resource *md;

	*out = NULL;
	*count = 0;
	if (!weft_asked_for(weft_uct_tcp.name))
		return WEFT_UCS_OK;
	md = uct_of(component)->sym.calloc(1, sizeof(*md), "weft md");
	if (!md)
		return WEFT_UCS_NO_MEMORY;
	strcpy(md->name, component_name);
	*out = md;
	*count = 1;
	return WEFT_UCS_OK;
}

/*
 * One device per netdev and with its name: after a connect by socket address
 * UCP keeps only devices named as the netdev.
 */
static enum weft_ucs_status query_devices(struct weft_uct_memory_domain *md,
					  struct weft_uct_tl_device **out,
					  unsigned int *count)
{
	struct weft_uct_tl_device *devices;
	struct weft_netif *netifs;
	unsigned int used = 0;
	int n;

	*out = NULL;
	*count = 0;
	n = weft_netif_list(weft_settings()->family, &netifs);
	if (n < 0)
		return weft_ucs_status(n);
	devices = md->uct->sym.calloc((size_t)n + 1, sizeof(*devices),
				      "weft devices");
	if (!devices) {
		free(netifs);
		return WEFT_UCS_NO_MEMORY;
	}
	for (int i = 0; i < n; i++) {
		if (!weft_settings_netdev_allowed(netifs[i].name))
			continue;
		memcpy(devices[used].name, netifs[i].name,
		       sizeof(netifs[i].name));
		devices[used].type = WEFT_UCT_DEVICE_NET;
		devices[used].sys_device = WEFT_UCS_SYS_DEVICE_UNKNOWN;
		used++;
	}
	free(netifs);
	*out = devices;
	*count = used;
	return WEFT_UCS_OK;
}

/* Writes @fn at @at and returns the offset behind it. */
static size_t put_fn(char *blob, size_t at, weft_uct_fn fn)
{
	memcpy(blob + at, &fn, sizeof(fn));
	return at + sizeof(fn);
}

static void put_config(char *at, const char *name, const char *prefix,
		       void *table, size_t size)
{
	struct weft_ucs_config_entry entry = {
		.name = name,
		.prefix = prefix,
		.table = table,
		.size = size,
	};

	memcpy(at, &entry, sizeof(entry));
}

static void empty_list(void *at)
{
	struct weft_ucs_link *list = at;

	list->prev = list->next = list;
}

/* uct_component: name, methods, md_config, cm_config, tl_list, list, flags,
 * md_vfs_init.  Returns the offset of its list entry. */
static size_t lay_component(struct weft_uct *uct)
{
	char *c = uct->component;
	size_t at = 16;

	strcpy(c, component_name);
	at = put_fn(c, at, (weft_uct_fn)query_md_resources);
	at = put_fn(c, at, (weft_uct_fn)weft_uct_md_open);
	at = put_fn(c, at, (weft_uct_fn)weft_uct_unsupported); /* cm_open */
	at = put_fn(c, at, weft_uct_rkey_unpack(uct));
	at = put_fn(c, at, (weft_uct_fn)weft_uct_unsupported); /* rkey_ptr */
	at = put_fn(c, at, (weft_uct_fn)weft_uct_rkey_release);
	if (uct->abi->rkey_compare)
		at = put_fn(c, at, (weft_uct_fn)weft_uct_rkey_compare);
	put_config(c + at, "weft memory domain", "WEFT_MD_",
		   uct->sym.md_config_table, WEFT_UCT_MD_CONFIG_SIZE);
	at += uct->abi->config_entry;
	put_config(c + at, "", "", NULL, 0); /* no connection manager */
	at += uct->abi->config_entry;
	empty_list(c + at);
	at += sizeof(struct weft_ucs_link);
	/* flags behind the list entry stay 0; md_vfs_init is called always */
	put_fn(c, at + sizeof(struct weft_ucs_link) + sizeof(uint64_t),
	       (weft_uct_fn)weft_uct_ok);
	return at;
}

/* uct_tl_t: name[10], query_devices, iface_open, config, list */
static void lay_tl(struct weft_uct *uct)
{
	char *tl = uct->tl;
	size_t at = 16;

	strcpy(tl, weft_uct_tcp.name);
	at = put_fn(tl, at, (weft_uct_fn)query_devices);
	at = put_fn(tl, at, (weft_uct_fn)weft_uct_iface_open);
	put_config(tl + at, "weft_tcp transport", weft_uct_tcp.config_prefix,
		   uct->sym.iface_config_table, WEFT_UCT_IFACE_CONFIG_SIZE);
}

/* A second file of weft in this process may have been here before. */
static bool is_listed(const struct weft_uct *uct, size_t list_offset)
{
	const struct weft_ucs_link *head = uct->sym.components, *l;

	for (l = head->next; l != head; l = l->next)
		if (!strncmp((const char *)l - list_offset, component_name, 16))
			return true;
	return false;
}

void weft_uct_register(struct weft_uct *uct)
{
	size_t list_offset = lay_component(uct);

	if (is_listed(uct, list_offset)) {
		weft_debug("another libuct_weft.so has registered already");
		return;
	}
	lay_tl(uct);
	weft_uct_md_ops(uct);
	weft_uct_internal_ops(uct);
	uct->sym.component_register(uct->component);
	uct->sym.tl_register(uct->component, uct->tl);
}
