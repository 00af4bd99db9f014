/* SPDX-License-Identifier: BSD-3-Clause */
/* Components as a UCX of each minor finds them in its lists. */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>
#include "settings/settings.h"
#include "tests/unit/ucx_tl/fake.h"
#include "ucx_tl/uct.h"

static struct weft_ucs_link components;
static void *registered[8];
static unsigned int n_registered, n_tls;

/* uct_component: name, methods, md_config, cm_config, tl_list, list, ... */
static size_t list_at(const struct weft_uct_abi *abi)
{
	return 16 + (6 + abi->rkey_compare) * sizeof(void *) +
	       2 * abi->config_entry + sizeof(struct weft_ucs_link);
}

static const struct weft_uct_abi *minor;

static void component_register(void *component)
{
	struct weft_ucs_link *l = (void *)((char *)component + list_at(minor));

	l->next = &components;
	l->prev = components.prev;
	components.prev->next = l;
	components.prev = l;
	registered[n_registered++] = component;
}

static void tl_register(void *component, void *tl)
{
	cr_expect_eq(component, registered[n_registered - 1]);
	cr_expect_str_eq(tl, component);
	n_tls++;
}

static void *plain_calloc(size_t n, size_t size, const char *name)
{
	return calloc(n, size);
}

static struct weft_uct *copy_of(unsigned int m)
{
	struct weft_uct *uct = calloc(1, sizeof(*uct));

	minor = weft_uct_abi_find(m);
	components.prev = components.next = &components;
	n_registered = n_tls = 0;
	uct->abi = minor;
	uct->sym.components = &components;
	uct->sym.component_register = component_register;
	uct->sym.tl_register = tl_register;
	uct->sym.calloc = plain_calloc;
	return uct;
}

static unsigned int offered(unsigned int m)
{
	unsigned int n = 0;

	for (size_t i = 0; i < WEFT_UCT_TLS; i++)
		n += weft_uct_tls[i].minor_min <= m;
	return n;
}

static void setup(void)
{
	fake_reset();
	clearenv();
	weft_settings_reset();
}

TestSuite(component, .init = setup, .timeout = 5);

Test(component, each_minor_gets_its_transports_once)
{
	for (unsigned int m = WEFT_UCX_MINOR_MIN; m <= WEFT_UCX_MINOR_MAX;
	     m++) {
		struct weft_uct *uct = copy_of(m);

		weft_uct_register(uct);
		cr_expect_eq(n_registered, offered(m), "1.%u", m);
		cr_expect_eq(n_tls, n_registered);
		for (unsigned int i = 0; i < n_registered; i++)
			cr_expect_eq(weft_uct_tl_of(registered[i])->uct, uct);
		/* another file of weft in the same process */
		weft_uct_register(uct);
		cr_expect_eq(n_registered, offered(m), "1.%u: twice", m);
		free(uct);
	}
}

/* uct_component.query_md_resources, the first of its methods */
static unsigned int mds(void *component)
{
	enum weft_ucs_status (*query)(void *, struct weft_uct_md_resource **,
				      unsigned int *);
	struct weft_uct_md_resource *list = (void *)1;
	unsigned int n = 77;

	memcpy(&query, (char *)component + 16, sizeof(query));
	cr_assert_eq(query(component, &list, &n), WEFT_UCS_OK);
	cr_expect_eq(!list, !n, "a list without entries, or entries without");
	if (n)
		cr_expect_str_eq(list->name, component);
	free(list);
	return n;
}

Test(component, has_no_memory_domain_unless_asked_for)
{
	struct weft_uct *uct = copy_of(WEFT_UCX_MINOR_MAX);
	static const struct {
		const char *name, *value;
		unsigned int tcp, shm, nvl;
	} cases[] = {
		{ "UCX_TLS", "all", 0, 0, 0 },
		{ "UCX_TLS", "^sm", 0, 0, 0 },
		{ "UCX_TLS", "tcp", 0, 0, 0 },
		{ "UCX_TLS", "weft_tcp,sm", 1, 0, 0 },
		{ "UCX_TLS", "weft_shm", 0, 1, 0 },
		{ "UCX_TLS", "\\weft_nvl", 0, 0, 1 },
		{ "WEFT_UCX", "on", 1, 1, 1 },
		{ "DASK_UCX__TCP", "True", 1, 1, 0 },
	};

	weft_uct_register(uct);
	cr_expect_eq(mds(registered[0]), 0, "none requested");
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		clearenv();
		setenv(cases[i].name, cases[i].value, 1);
		weft_settings_reset();
		cr_expect_eq(mds(registered[0]), cases[i].tcp, "%s=%s",
			     cases[i].name, cases[i].value);
		cr_expect_eq(mds(registered[1]), cases[i].shm, "%s=%s",
			     cases[i].name, cases[i].value);
		cr_expect_eq(mds(registered[2]), cases[i].nvl, "%s=%s",
			     cases[i].name, cases[i].value);
	}
	free(uct);
}

static enum weft_ucs_status query_one(void *component,
				      struct weft_uct_component_attr *attr)
{
	cr_expect_eq(attr->field_mask, WEFT_UCT_COMPONENT_MD_COUNT);
	attr->md_resource_count = 3;
	return WEFT_UCS_OK;
}

Test(component, counts_memory_domains_of_ucx)
{
	struct weft_uct *uct = copy_of(13);

	uct->sym.component_query = query_one;
	weft_uct_register(uct);
	cr_expect_eq(weft_uct_component_mds(uct, "weft_tcp"), 3);
	cr_expect_lt(weft_uct_component_mds(uct, "cuda_cpy"), 0);
	free(uct);
}
