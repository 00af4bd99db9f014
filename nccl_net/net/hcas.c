/* SPDX-License-Identifier: BSD-3-Clause */
#include "nccl_net/net/hcas.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "host/verbs.h"
#include "util/log.h"
#include "util/parse.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static bool listed;
static struct weft_verbs_port *ports;
static unsigned int count;
static atomic_bool unusable[WEFT_NET_HCAS_MAX];

bool weft_net_hcas_disabled(void)
{
	const char *v = getenv("NCCL_IB_DISABLE");

	return v && !weft_is_zero(v);
}

static void find_hcas(void)
{
	struct weft_verbs_port *list = NULL;
	int i, n;

	if (weft_net_hcas_disabled())
		return;
	n = weft_verbs_list(&list);
	/* a host without any never loads the library */
	if (n <= 0 || !weft_verbs_loads()) {
		if (n >= 0)
			free(list);
		return;
	}
	for (i = 0; i < n && count < WEFT_NET_HCAS_MAX; i++) {
		if (weft_verbs_openable(list[i].dev))
			list[count++] = list[i];
		else
			weft_info(
				"'%s' is not used: its device node below /dev/infiniband cannot be opened",
				list[i].name);
	}
	ports = list;
}

unsigned int weft_net_hcas(const struct weft_verbs_port **list)
{
	pthread_mutex_lock(&lock);
	if (!listed)
		find_hcas();
	listed = true;
	pthread_mutex_unlock(&lock);
	*list = ports;
	return count;
}

void weft_net_hca_give_up(unsigned int i)
{
	atomic_store(&unusable[i], true);
}

bool weft_net_hca_usable(unsigned int i)
{
	return !atomic_load(&unusable[i]);
}

void weft_net_hcas_forget(void)
{
	unsigned int i;

	pthread_mutex_lock(&lock);
	free(ports);
	ports = NULL;
	count = 0;
	listed = false;
	for (i = 0; i < WEFT_NET_HCAS_MAX; i++)
		atomic_store(&unusable[i], false);
	pthread_mutex_unlock(&lock);
}
