/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Components, one per transport, each with a memory domain, in the layout of
 * one minor release and registered with one copy of UCX.
 */
#include <errno.h>
#include <string.h>
#include "settings/settings.h"
#include "ucx_tl/uct.h"
#include "ucx_tl/ucxenv.h"
#include "util/log.h"

int64_t weft_uct_unsupported(void)
{
	return WEFT_UCS_UNSUPPORTED;
}

int64_t weft_uct_ok(void)
{
	return WEFT_UCS_OK;
}

struct weft_uct_part *weft_uct_tl_of(void *component)
{
	return container_of((char(*)[WEFT_UCT_COMPONENT_MAX])component,
			    struct weft_uct_part, component);
}

/*
 * "all" and negated lists in UCX_TLS would include weft's devices: have none
 * unless weft is requested by name.
 */
static enum weft_ucs_status
query_md_resources(void *component, struct weft_uct_md_resource **out,
		   unsigned int *count)
{
	const struct weft_uct_part *part = weft_uct_tl_of(component);
	struct weft_uct_md_resource *md;

	*out = NULL;
	*count = 0;
	if (!weft_is_requested(part->tl->name))
		return WEFT_UCS_OK;
	weft_settings_flush_warnings();
	md = part->uct->sym.calloc(1, sizeof(*md), "weft md");
	if (!md)
		return WEFT_UCS_NO_MEMORY;
	strcpy(md->name, part->tl->name);
	*out = md;
	*count = 1;
	return WEFT_UCS_OK;
}

static enum weft_ucs_status query_devices(struct weft_uct_memory_domain *md,
					  struct weft_uct_tl_device **out,
					  unsigned int *count)
{
	*out = NULL;
	*count = 0;
	return md->tl->devices(md->uct, out, count);
}

/* Write @fn at offset @at; return the next offset. */
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

static void init_list(void *at)
{
	struct weft_ucs_link *list = at;

	list->prev = list->next = list;
}

/*
 * uct_component: name, methods, md_config, cm_config, tl_list, list, flags,
 * md_vfs_init
 */
static void fill_component(struct weft_uct_part *part)
{
	const struct weft_uct *uct = part->uct;
	char *c = part->component;
	size_t at = 16;

	strcpy(c, part->tl->name);
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
	init_list(c + at);
	at += sizeof(struct weft_ucs_link);
	/*
	 * the flags after the list entry stay 0; UCX always calls md_vfs_init
	 */
	put_fn(c, at + sizeof(struct weft_ucs_link) + sizeof(uint64_t),
	       (weft_uct_fn)weft_uct_ok);
}

/* uct_tl_t: name[10], query_devices, iface_open, config, list */
static void fill_tl(struct weft_uct_part *part)
{
	const struct weft_uct *uct = part->uct;
	char *tl = part->blob;
	size_t at = 16;

	strcpy(tl, part->tl->name);
	at = put_fn(tl, at, (weft_uct_fn)query_devices);
	at = put_fn(tl, at, (weft_uct_fn)weft_uct_iface_open);
	put_config(tl + at, part->tl->name, part->tl->config_prefix,
		   uct->sym.iface_config_table, WEFT_UCT_IFACE_CONFIG_SIZE);
}

static void *find_component(const struct weft_uct *uct, const char *name)
{
	const struct weft_ucs_link *head = uct->sym.components, *l;
	/* the offset in fill_component() */
	const size_t list = 16 + 6 * sizeof(void *) +
			    uct->abi->rkey_compare * sizeof(void *) +
			    2 * uct->abi->config_entry +
			    sizeof(struct weft_ucs_link);

	for (l = head->next; l != head; l = l->next)
		if (!strncmp((const char *)l - list, name, 16))
			return (char *)l - list;
	return NULL;
}

int weft_uct_component_mds(const struct weft_uct *uct, const char *name)
{
	struct weft_uct_component_attr attr = {
		.field_mask = WEFT_UCT_COMPONENT_MD_COUNT,
	};
	void *component = find_component(uct, name);

	if (!component)
		return -ENOENT;
	if (uct->sym.component_query(component, &attr))
		return 0;
	return (int)attr.md_resource_count;
}

static void register_part(struct weft_uct_part *part)
{
	/* another libuct_weft.so in this process may have registered it */
	if (find_component(part->uct, part->tl->name)) {
		weft_debug("another libuct_weft.so has registered '%s' already",
			   part->tl->name);
		return;
	}
	fill_component(part);
	fill_tl(part);
	part->uct->sym.component_register(part->component);
	part->uct->sym.tl_register(part->component, part->blob);
}

void weft_uct_register(struct weft_uct *uct)
{
	weft_uct_md_ops(uct);
	weft_uct_internal_ops(uct);
	for (size_t i = 0; i < WEFT_UCT_TLS; i++) {
		uct->parts[i].uct = uct;
		uct->parts[i].tl = &weft_uct_tls[i];
		if (uct->abi->minor >= weft_uct_tls[i].minor_min)
			register_part(&uct->parts[i]);
	}
}
