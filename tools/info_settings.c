/* SPDX-License-Identifier: BSD-3-Clause */
/* weft info settings: the table, for people and for the manual page. */
#include <stdio.h>
#include <string.h>

#include "bootstrap/settings.h"
#include "tools/tool.h"

/* @text in lines of at most 78 columns, each after @indent blanks. */
static void print_wrapped(const char *text, int indent)
{
	int column = 0;
	size_t len;

	while (*text) {
		len = strcspn(text, " ");
		if (column && column + 1 + (int)len > 78) {
			putchar('\n');
			column = 0;
		}
		if (!column)
			column = printf("%*s", indent, "");
		else
			column += printf(" ");
		column += printf("%.*s", (int)len, text);
		text += len;
		text += strspn(text, " ");
	}
	putchar('\n');
}

static void print_row(const struct weft_setting_info *info)
{
	printf("%s=%s", info->name, info->value);
	if (!strcmp(info->origin, "default"))
		printf("  (default)\n");
	else
		printf("  (from %s; default %s)\n", info->origin,
		       *info->def ? info->def : "none");
	print_wrapped(info->help, 6);
	if (info->aliases) {
		char text[512], *p;

		snprintf(text, sizeof(text), "also read from: %s",
			 info->aliases);
		for (p = text; *p; p++)
			if (*p == ',')
				*p = ' ';
		print_wrapped(text, 6);
	}
}

/* @len characters that Markdown must not take for its own. */
static void print_escaped(const char *text, size_t len)
{
	for (; len && *text; len--, text++) {
		if (strchr("^*_[]<>\\", *text))
			putchar('\\');
		putchar(*text);
	}
}

/* As docs/settings.md and weft(7) have it; never this process's values. */
static void print_man(const struct weft_setting_info *info)
{
	const char *a = info->aliases;
	size_t len;

	printf("**%s**", info->name);
	if (*info->def)
		printf(" (default **%s**)", info->def);
	fputs("\n\n> ", stdout);
	print_escaped(info->help, SIZE_MAX);
	putchar('.');
	if (a) {
		fputs(" Also read from, the first that is set:", stdout);
		for (; *a; a += len + !!a[len]) {
			len = strcspn(a, ",");
			fputs(a == info->aliases ? " " : ", ", stdout);
			print_escaped(a, len);
		}
		putchar('.');
	}
	fputs("\n\n", stdout);
}

int info_settings(bool man)
{
	struct weft_setting_info info;
	size_t i;

	for (i = 0; i < weft_settings_count(); i++) {
		weft_settings_info(i, &info);
		if (man)
			print_man(&info);
		else
			print_row(&info);
	}
	return 0;
}
