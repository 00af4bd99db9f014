/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A program that names a variable of libuct: the linker gives it a copy, and
 * libuct uses that one. Prints the names of UCX's components.
 */
#include <stdio.h>
#include <uct/api/uct.h>

extern struct {
	void *next, *prev;
} uct_components_list;

int main(void)
{
	uct_component_attr_t attr = { .field_mask =
					      UCT_COMPONENT_ATTR_FIELD_NAME };
	uct_component_h *components;
	unsigned int n;

	if (uct_query_components(&components, &n) || !uct_components_list.next)
		return 1;
	for (unsigned int i = 0; i < n; i++)
		if (uct_component_query(components[i], &attr) == UCS_OK)
			puts(attr.name);
	uct_release_component_list(components);
	return 0;
}
