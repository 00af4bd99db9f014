/* SPDX-License-Identifier: BSD-3-Clause */
/* What both sides of weft check exchange before they use a device. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <unistd.h>

#include "host/netdevs.h"
#include "settings/settings.h"
#include "tools/check/check_control.h"
#include "tools/tool.h"
#include "util/hash.h"
#include "util/parse.h"
#include "util/util.h"

/* What the serving side answers, a byte; the list follows SECRET_SAME. */
enum secret_verdict {
	SECRET_SAME,	/* or none on both sides */
	SECRET_SERVING, /* only the serving side has one */
	SECRET_ASKING,	/* only the asking side has one */
	SECRET_DIFFERENT,
	SECRET_VERDICTS,
};

/* Then each side's. */
struct card {
	char magic[8];
	uint8_t iface[WEFT_IFACE_ADDR_LEN];
	uint8_t dev_len;
	uint8_t dev[WEFT_DEV_ADDR_MAX];
};
_Static_assert(sizeof(struct card) == 55, "no padding");
const char check_magic[8] = { 'W', 'E', 'F', 'T', 'C', 'H', 'K', '4' };

int check_split_host_port(char *text, char **host, const char **port)
{
	char *end = strrchr(text, ':'), *close = NULL;
	uint64_t n;

	*host = text;
	*port = CHECK_PORT;
	if (*text == '[') {
		(*host)++;
		close = strchr(text, ']');
		if (!close || (close[1] && close[1] != ':'))
			return -EINVAL;
		end = close[1] ? close + 1 : NULL;
	} else if (end && strchr(text, ':') != end) {
		end = NULL; /* an IPv6 address without brackets */
	}
	if (end && weft_parse_u64(end + 1, 0, 65535, &n))
		return -EINVAL;
	if (close)
		*close = '\0';
	if (end) {
		*end = '\0';
		*port = end + 1;
	}
	return 0;
}

void check_convert_sockaddr(const struct sockaddr_storage *ss,
			    union weft_sockaddr *sa)
{
	struct sockaddr_in6 v6;

	memset(sa, 0, sizeof(*sa));
	if (ss->ss_family != AF_INET6) {
		memcpy(&sa->in, ss, sizeof(sa->in));
		return;
	}
	memcpy(&v6, ss, sizeof(v6));
	if (!IN6_IS_ADDR_V4MAPPED(&v6.sin6_addr)) {
		sa->in6 = v6;
		return;
	}
	/* on a dual-stack socket IPv4 is ::ffff:10.0.0.1 */
	sa->in.sin_family = AF_INET;
	sa->in.sin_port = v6.sin6_port;
	memcpy(&sa->in.sin_addr, &v6.sin6_addr.s6_addr[12], 4);
}

/* The interface of the control connection. */
int check_find_netif(int fd, struct weft_netif *netif)
{
	struct sockaddr_storage ss;
	socklen_t len = sizeof(ss);
	const int family = weft_settings()->family;
	struct weft_netif *list;
	char text[WEFT_SOCKADDR_STR];
	union weft_sockaddr sa;
	int n, i, err = -ENODEV;

	if (getsockname(fd, (struct sockaddr *)&ss, &len))
		return -errno;
	check_convert_sockaddr(&ss, &sa);
	n = weft_netif_list(sa.sa.sa_family, &list);
	for (i = 0; i < n; i++)
		if (weft_netif_has(list[i].name, &sa)) {
			*netif = list[i];
			err = 0;
			break;
		}
	if (n >= 0)
		free(list);
	if (err) {
		tool_error("check", "no interface has the address of %s",
			   weft_sockaddr_str(&sa, text, sizeof(text)));
	} else if (!weft_netdevs_allowed(netif->name)) {
		tool_error(
			"check",
			"the route to the other side uses %s, which the list of interfaces excludes ('weft info' shows which list)",
			netif->name);
		err = -ENODEV;
	} else if (family != AF_UNSPEC && family != sa.sa.sa_family) {
		tool_error(
			"check",
			"the route to the other side uses %s, which WEFT_FAMILY excludes",
			weft_sockaddr_str(&sa, text, sizeof(text)));
		err = -ENODEV;
	}
	return err;
}

/* 0, or -EIO after an error message. */
int check_read(int fd, void *buf, size_t len)
{
	size_t have = 0;
	ssize_t n;

	while (have < len) {
		n = read(fd, (char *)buf + have, len - have);
		if (n <= 0) {
			tool_error("check", "no answer from the other side: %s",
				   n ? strerror(errno)
				     : "it closed the connection");
			return -EIO;
		}
		have += (size_t)n;
	}
	return 0;
}

int check_send(int fd, const void *buf, size_t len)
{
	if (send(fd, buf, len, MSG_NOSIGNAL) == (ssize_t)len)
		return 0;
	tool_error("check", "cannot send: %m");
	return -EIO;
}

/* ---- the job secret ------------------------------------------------------ */

/* EXIT_FAILED, if it cannot be used: the error has been logged. */
int check_require_secret(void)
{
	const uint8_t *secret;
	size_t len;

	return weft_settings_secret(&secret, &len) ? EXIT_FAILED : 0;
}

/* Set what follows from the nonce. */
static int fill_proof(struct check_proof *proof)
{
	static const char label[] = "weft check, job secret";
	struct weft_bytes parts[2] = { { label, sizeof(label) } };
	const uint8_t *secret;
	size_t len;
	const int err = weft_settings_secret(&secret, &len);

	if (err)
		return err;
	parts[1] = (struct weft_bytes){ secret, len };
	proof->has_secret = len > 0;
	if (len)
		weft_hash(proof->hash, sizeof(proof->hash), proof->nonce,
			  sizeof(proof->nonce), parts, ARRAY_SIZE(parts));
	return 0;
}

/* 0, or -EIO after an error message. */
int check_send_proof(int fd)
{
	struct check_proof proof = { .has_secret = 0 };

	if (weft_random(proof.nonce, sizeof(proof.nonce)) || fill_proof(&proof))
		return -EIO;
	return check_send(fd, &proof, sizeof(proof));
}

static enum secret_verdict compare_secrets(const struct check_proof *theirs)
{
	struct check_proof own = { .has_secret = 0 };

	memcpy(own.nonce, theirs->nonce, sizeof(own.nonce));
	if (fill_proof(&own))
		return SECRET_DIFFERENT;
	if (own.has_secret != !!theirs->has_secret)
		return own.has_secret ? SECRET_SERVING : SECRET_ASKING;
	return weft_hash_equal(own.hash, theirs->hash, sizeof(own.hash)) ||
			       !own.has_secret
		       ? SECRET_SAME
		       : SECRET_DIFFERENT;
}

/* @from: the asking side's address, where this one serves; else NULL. */
static void report_secret(enum secret_verdict verdict, const char *from)
{
	const bool has = verdict == (from ? SECRET_SERVING : SECRET_ASKING);

	tool_error(
		"check", "%s%s%s: nothing may connect; give both the same file",
		from ?: "", from ? ": " : "",
		verdict == SECRET_DIFFERENT
			? "the two sides have different secrets in WEFT_SECRET_FILE"
		: has ? "only this side has a secret (WEFT_SECRET_FILE), the other one has none"
		      : "only the other side has a secret (WEFT_SECRET_FILE), this one has none");
}

/* The asking side: 0, or -EIO after an error message. */
int check_read_verdict(int fd)
{
	uint8_t verdict;

	if (check_read(fd, &verdict, 1))
		return -EIO;
	if (verdict >= SECRET_VERDICTS)
		tool_error(
			"check",
			"the other side is not 'weft check' of this release");
	else if (verdict != SECRET_SAME)
		report_secret(verdict, NULL);
	return verdict == SECRET_SAME ? 0 : -EIO;
}

/* The serving side; returns whether the list is to follow. */
bool check_answer_proof(int fd, const struct check_proof *proof,
			const char *from)
{
	const enum secret_verdict verdict = compare_secrets(proof);
	const uint8_t byte = (uint8_t)verdict;

	if (verdict != SECRET_SAME)
		report_secret(verdict, from);
	return !check_send(fd, &byte, 1) && verdict == SECRET_SAME;
}

static int exchange_cards(int fd, const struct weft_address *own,
			  struct weft_address *peer)
{
	struct card card = { .dev_len = 0 };
	int err;

	memcpy(card.magic, check_magic, sizeof(check_magic));
	weft_address_pack_iface(own, card.iface);
	card.dev_len = (uint8_t)weft_address_pack_dev(own, card.dev);
	err = check_send(fd, &card, sizeof(card));
	if (!err)
		err = check_read(fd, &card, sizeof(card));
	if (err)
		return err;
	if (memcmp(card.magic, check_magic, sizeof(check_magic)) ||
	    card.dev_len > sizeof(card.dev) ||
	    weft_address_unpack(card.iface, sizeof(card.iface), card.dev,
				card.dev_len, peer)) {
		tool_error("check", "the other side is not 'weft check'");
		return -EPROTO;
	}
	return 0;
}

void check_set_patience(int fd)
{
	const struct timeval patience = { .tv_sec = CHECK_PATIENCE_MS / 1000 };

	setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
	setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof(patience));
}

/* Open @device, and connect it to what the other side has opened. */
int check_connect_device(struct check *c, int fd,
			 const struct check_device *device)
{
	struct weft_address own, peer;
	char text[WEFT_SOCKADDR_STR];
	const char *why = "the device refused";
	int err;

	memset(c, 0, sizeof(*c));
	c->control = fd;
	err = check_open(c, device->ops, device->name,
			 device->addr.sa.sa.sa_family, NULL, &own);
	if (!err)
		err = exchange_cards(fd, &own, &peer);
	if (!err && !c->ops->reaches(c->iface, &peer, &why)) {
		tool_error("check", "cannot reach %s over %s: %s",
			   weft_sockaddr_str(&peer.sa, text, sizeof(text)),
			   device->name, why);
		err = -EHOSTUNREACH;
	}
	return err ? err : check_connect(c, &peer);
}
