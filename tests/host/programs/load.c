/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Opens copies of UCX as Python does (RTLD_LOCAL, by path) and asks each what
 * it has.  load components|talk DIRECTORY[:ENDING]...
 *   components  prints the names of the components of every copy
 *   talk        every copy sends itself a message of 1 MiB by UCP, twice
 * ENDING is what follows the library's name, for glob(): .so.0 unless said.
 */
#include <dlfcn.h>
#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <ucp/api/ucp.h>

#define LEN (1u << 20)

struct copy {
	void *ucs, *uct, *ucp;
};

static void fail(const char *what, const char *why)
{
	fprintf(stderr, "load: %s: %s\n", what, why ? why : "?");
	exit(1);
}

static void *open_one(const char *dir, const char *name, const char *ending)
{
	char path[4096];
	void *handle;
	glob_t found;

	snprintf(path, sizeof(path), "%s/%s%s", dir, name, ending);
	if (glob(path, 0, NULL, &found))
		fail(path, "no such file");
	handle = dlopen(found.gl_pathv[0], RTLD_NOW | RTLD_LOCAL);
	if (!handle)
		fail(path, dlerror());
	globfree(&found);
	return handle;
}

static void *need(void *handle, const char *name)
{
	void *p = dlsym(handle, name);

	if (!p)
		fail(name, dlerror());
	return p;
}

static void open_copy(struct copy *c, char *where)
{
	char *ending = strchr(where, ':');

	if (ending)
		*ending++ = '\0';
	else
		ending = ".so.0";
	/* the order of the libucx package; each needs the ones before it */
	c->ucs = open_one(where, "libucs", ending);
	c->uct = open_one(where, "libuct", ending);
	c->ucp = open_one(where, "libucp", ending);
}

static void print_components(struct copy *c)
{
	ucs_status_t (*query)(void ***, unsigned int *) = (ucs_status_t(*)(
		void ***, unsigned int *))need(c->uct, "uct_query_components");
	void **components;
	unsigned int n;

	if (query(&components, &n))
		fail("uct_query_components", "failed");
	for (unsigned int i = 0; i < n; i++)
		printf("%s ", (char *)components[i]);
	printf("\n");
}

#define FN(c, name) ((__typeof__(&name))need((c)->ucp, #name))

static void done(struct copy *c, ucp_worker_h worker, void *request)
{
	if (!request)
		return;
	if (UCS_PTR_IS_ERR(request))
		fail("request", "error");
	while (FN(c, ucp_request_check_status)(request) == UCS_INPROGRESS)
		FN(c, ucp_worker_progress)(worker);
	if (FN(c, ucp_request_check_status)(request) != UCS_OK)
		fail("request", "did not end well");
	FN(c, ucp_request_free)(request);
}

static void talk(struct copy *c, unsigned char seed)
{
	ucp_params_t params = { .field_mask = UCP_PARAM_FIELD_FEATURES,
				.features = UCP_FEATURE_TAG };
	ucp_worker_params_t wp = { 0 };
	ucp_ep_params_t ep_params = {
		.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS
	};
	ucp_request_param_t rp = { 0 };
	char *out = malloc(LEN), *in = malloc(LEN);
	ucp_config_t *config;
	ucp_context_h context;
	ucp_worker_h worker;
	ucp_address_t *address;
	ucp_ep_h ep;
	size_t len;

	if (FN(c, ucp_config_read)(NULL, NULL, &config) ||
	    FN(c, ucp_init_version)(1, 13, &params, config, &context))
		fail("ucp_init", "failed");
	FN(c, ucp_config_release)(config);
	if (FN(c, ucp_worker_create)(context, &wp, &worker) ||
	    FN(c, ucp_worker_get_address)(worker, &address, &len))
		fail("ucp_worker_create", "failed");
	ep_params.address = address;
	if (FN(c, ucp_ep_create)(worker, &ep_params, &ep))
		fail("ucp_ep_create", "failed");
	for (int i = 0; i < 2; i++) {
		void *recv;

		memset(out, seed + i, LEN);
		memset(in, 0xa5, LEN);
		recv = FN(c, ucp_tag_recv_nbx)(worker, in, LEN, 1, UINT64_MAX,
					       &rp);
		done(c, worker, FN(c, ucp_tag_send_nbx)(ep, out, LEN, 1, &rp));
		done(c, worker, recv);
		if (memcmp(in, out, LEN))
			fail("message", "wrong data");
	}
	done(c, worker, FN(c, ucp_ep_close_nbx)(ep, &rp));
	FN(c, ucp_worker_release_address)(worker, address);
	FN(c, ucp_worker_destroy)(worker);
	FN(c, ucp_cleanup)(context);
	free(in);
	free(out);
	printf("talked\n");
}

int main(int argc, char **argv)
{
	struct copy copies[4];

	alarm(60);
	for (int i = 2; i < argc && i < 6; i++)
		open_copy(&copies[i - 2], argv[i]);
	for (int i = 2; i < argc && i < 6; i++) {
		if (!strcmp(argv[1], "talk"))
			talk(&copies[i - 2], (unsigned char)(i * 16));
		else
			print_components(&copies[i - 2]);
	}
	return 0;
}
