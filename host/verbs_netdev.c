/* SPDX-License-Identifier: BSD-3-Clause */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "host/netdevs.h"
#include "host/netif.h"
#include "host/verbs.h"
#include "settings/settings.h"

/* Link-local addresses are used only if their interface is named. */
static bool has_no_route(const struct weft_netif *n)
{
	return n->link_local_only && !weft_netdevs_named(n->name);
}

int weft_verbs_control_netdev(const struct weft_verbs_port *port, int family,
			      char name[IF_NAMESIZE])
{
	struct weft_netif *list;
	int i, n, best = -1;

	n = weft_netif_list(family, &list);
	if (n < 0)
		return n;
	for (i = 0; i < n; i++) {
		if (!weft_netdevs_allowed(list[i].name))
			continue;
		if (!has_no_route(&list[i]) &&
		    !strcmp(list[i].name, port->netdev)) {
			best = i;
			break;
		}
		if (best < 0 ||
		    (has_no_route(&list[best]) && !has_no_route(&list[i])))
			best = i;
	}
	if (best >= 0)
		memcpy(name, list[best].name, IF_NAMESIZE);
	free(list);
	return best < 0 ? -ENODEV : 0;
}
