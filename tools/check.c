/* SPDX-License-Identifier: BSD-3-Clause */
/* weft check: command line, control connection and output. */
#include <errno.h>
#include <getopt.h>
#include <netdb.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <unistd.h>

#include "host/netdevs.h"
#include "settings/settings.h"
#include "tools/check.h"
#include "tools/tool.h"
#include "util/clock.h"
#include "util/hash.h"
#include "util/parse.h"
#include "util/util.h"

#define DEFAULT_PORT   "19515"
#define CHECK_STEP_S   15    /* for blocks of one size */
#define CHECK_WHOLE_MS 40000 /* then no further device is begun */
#define GUESTS	       64    /* connections that have not sent their request */

static const char help[] =
	"usage: weft check [--json] HOST[:PORT]\n"
	"       weft check [--json] --scheduler-file FILE [:PORT]\n"
	"       weft check --listen [[ADDRESS]:PORT]\n"
	"\n"
	"Does weft work between two hosts, over which devices, and how fast? Run "
	"'weft\n"
	"check --listen' on one and 'weft check HOST' on the other. It sends "
	"messages both\n"
	"ways, puts and gets blocks of growing size, compares every byte, and "
	"then\n"
	"measures the speed, briefly also of the other interfaces and ports that "
	"both have.\n"
	"If both sides have a GPU, it does the same between their memory. It "
	"says what to\n"
	"change, and takes a minute at most if all devices answer.\n"
	"\n"
	"  -l, --listen  serve checks, one after the other, until stopped\n"
	"  -s, --scheduler-file FILE\n"
	"                HOST is that of the Dask scheduler that wrote FILE\n"
	"  -j, --json    print one line of JSON, and nothing else to stdout\n"
	"  -h, --help    show this\n"
	"\n"
	"Exit codes: 0 all of it works, 1 something does not, 2 wrong usage, 3 no\n"
	"answer (yet).\n"
	"\n"
	"PORT is that of the control connection (default " DEFAULT_PORT
	"; 0 is any free port).\n"
	"On both hosts the device listens on another port, of "
	"WEFT_PORT_RANGE. Write an\n"
	"IPv6 address in brackets: [fd00::1]:19515.\n";

/* The asking side's first message on a control connection. */
struct request {
	char magic[8];
	/* that the serving side is to open; "": send the list and hang up */
	char device[CHECK_NAME_LEN];
};
_Static_assert(sizeof(struct request) == 80, "no padding");

/* Behind it, to tell a wrong secret from a network that does not work. */
struct proof {
	uint8_t nonce[16];
	uint8_t has_secret;
	uint8_t hash[32]; /* of nonce and secret */
};
_Static_assert(sizeof(struct proof) == 49, "no padding");

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
static const char card_magic[8] = { 'W', 'E', 'F', 'T', 'C', 'H', 'K', '4' };

/*
 * "host:port", "[v6]:port", "v6", "host"; modifies @text and returns parts.
 * -EINVAL, with @text unchanged.
 */
static int split_host_port(char *text, char **host, const char **port)
{
	char *end = strrchr(text, ':'), *close = NULL;
	uint64_t n;

	*host = text;
	*port = DEFAULT_PORT;
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

static void convert_sockaddr(const struct sockaddr_storage *ss,
			     union weft_sockaddr *sa)
{
	memset(sa, 0, sizeof(*sa));
	if (ss->ss_family == AF_INET6)
		memcpy(&sa->in6, ss, sizeof(sa->in6));
	else
		memcpy(&sa->in, ss, sizeof(sa->in));
	/* on a dual-stack socket IPv4 is ::ffff:10.0.0.1 */
	if (ss->ss_family == AF_INET6 &&
	    IN6_IS_ADDR_V4MAPPED(&sa->in6.sin6_addr)) {
		const struct sockaddr_in6 v6 = sa->in6;

		memset(sa, 0, sizeof(*sa));
		sa->in.sin_family = AF_INET;
		sa->in.sin_port = v6.sin6_port;
		memcpy(&sa->in.sin_addr, &v6.sin6_addr.s6_addr[12], 4);
	}
}

/* The interface of the control connection. */
static int find_local_netif(int fd, struct weft_netif *netif)
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
	convert_sockaddr(&ss, &sa);
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
		tool_error("check",
			   "the route to the other side uses %s, which the "
			   "list of interfaces excludes ('weft info' shows "
			   "which list)",
			   netif->name);
		err = -ENODEV;
	} else if (family != AF_UNSPEC && family != sa.sa.sa_family) {
		tool_error("check",
			   "the route to the other side uses %s, which "
			   "WEFT_FAMILY excludes",
			   weft_sockaddr_str(&sa, text, sizeof(text)));
		err = -ENODEV;
	}
	return err;
}

/* 0, or -EIO after an error message. */
static int read_whole(int fd, void *buf, size_t len)
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

static int send_whole(int fd, const void *buf, size_t len)
{
	if (send(fd, buf, len, MSG_NOSIGNAL) == (ssize_t)len)
		return 0;
	tool_error("check", "cannot send: %m");
	return -EIO;
}

/* ---- the job secret ------------------------------------------------------ */

/* EXIT_FAILED, if it cannot be used: the error has been logged. */
static int require_secret(void)
{
	const uint8_t *secret;
	size_t len;

	return weft_settings_secret(&secret, &len) ? EXIT_FAILED : 0;
}

/* Set what follows from the nonce. */
static int fill_proof(struct proof *proof)
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
static int send_proof(int fd)
{
	struct proof proof = { .has_secret = 0 };

	if (weft_random(proof.nonce, sizeof(proof.nonce)) || fill_proof(&proof))
		return -EIO;
	return send_whole(fd, &proof, sizeof(proof));
}

static enum secret_verdict compare_secrets(const struct proof *theirs)
{
	struct proof own = { .has_secret = 0 };

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
			? "the two sides have different secrets in "
			  "WEFT_SECRET_FILE"
		: has ? "only this side has a secret (WEFT_SECRET_FILE), the "
			"other one has none"
		      : "only the other side has a secret "
			"(WEFT_SECRET_FILE), this one has none");
}

/* The asking side: 0, or -EIO after an error message. */
static int read_verdict(int fd)
{
	uint8_t verdict;

	if (read_whole(fd, &verdict, 1))
		return -EIO;
	if (verdict >= SECRET_VERDICTS)
		tool_error("check", "the other side is not 'weft check' of "
				    "this release");
	else if (verdict != SECRET_SAME)
		report_secret(verdict, NULL);
	return verdict == SECRET_SAME ? 0 : -EIO;
}

/* The serving side; returns whether the list is to follow. */
static bool answer_proof(int fd, const struct proof *proof, const char *from)
{
	const enum secret_verdict verdict = compare_secrets(proof);
	const uint8_t byte = (uint8_t)verdict;

	if (verdict != SECRET_SAME)
		report_secret(verdict, from);
	return !send_whole(fd, &byte, 1) && verdict == SECRET_SAME;
}

static int exchange_cards(int fd, const struct weft_address *own,
			  struct weft_address *peer)
{
	struct card card = { .dev_len = 0 };
	int err;

	memcpy(card.magic, card_magic, sizeof(card_magic));
	weft_address_pack_iface(own, card.iface);
	card.dev_len = (uint8_t)weft_address_pack_dev(own, card.dev);
	err = send_whole(fd, &card, sizeof(card));
	if (!err)
		err = read_whole(fd, &card, sizeof(card));
	if (err)
		return err;
	if (memcmp(card.magic, card_magic, sizeof(card_magic)) ||
	    card.dev_len > sizeof(card.dev) ||
	    weft_address_unpack(card.iface, sizeof(card.iface), card.dev,
				card.dev_len, peer)) {
		tool_error("check", "the other side is not 'weft check'");
		return -EPROTO;
	}
	return 0;
}

static void set_patience(int fd)
{
	const struct timeval patience = { .tv_sec = CHECK_PATIENCE_MS / 1000 };

	setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
	setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof(patience));
}

/* Open @device, and connect it to what the other side has opened. */
static int connect_device(struct check *c, int fd,
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

static const char *format_size(size_t size, char *buf, size_t len)
{
	if (size >= 1 << 20)
		snprintf(buf, len, "%zu MiB", size >> 20);
	else if (size >= 1 << 10)
		snprintf(buf, len, "%zu KiB", size >> 10);
	else
		snprintf(buf, len, "%zu B", size);
	return buf;
}

/* Would blocks of @size take too long at @bandwidth? */
static bool is_slow(size_t size, double bandwidth)
{
	return 2.0 * CHECK_WINDOW * (double)size > CHECK_STEP_S * bandwidth;
}

int check_blocks(struct check *c, const size_t *sizes, size_t n,
		 struct check_rates *rates)
{
	/* the best so far: small blocks on a busy host tell little */
	double best = 0;
	char text[32];
	size_t i;
	int err = 0;

	puts("  block         put MB/s   get MB/s");
	for (i = 0; i < n && !err; i++) {
		if (i && is_slow(sizes[i], best)) {
			printf("  %-10s left out, it would take long\n",
			       format_size(sizes[i], text, sizeof(text)));
			break;
		}
		err = check_bytes(c, CHECK_PUT, sizes[i]);
		if (!err)
			err = check_bytes(c, CHECK_GET, sizes[i]);
		if (!err)
			err = check_speed(c, CHECK_PUT, sizes[i], &rates->put);
		if (!err)
			err = check_speed(c, CHECK_GET, sizes[i], &rates->get);
		if (!err)
			printf("  %-10s %11.0f %10.0f\n",
			       format_size(sizes[i], text, sizeof(text)),
			       rates->put / 1e6, rates->get / 1e6);
		best = weft_max(best, weft_max(rates->put, rates->get));
		fflush(stdout);
	}
	return err;
}

static int run_measurements(struct check *c, struct check_rates *rates)
{
	static const size_t messages[] = { 8, 8 << 10 };
	static const size_t blocks[] = { 4 << 10, 64 << 10, 1 << 20, 16 << 20,
					 CHECK_BUFFER };
	double usec;
	char text[32];
	size_t i;
	int err = 0;

	puts("\n  message      one way");
	for (i = 0; i < ARRAY_SIZE(messages) && !err; i++) {
		err = check_latency(c, messages[i], &usec);
		if (!err)
			printf("  %-10s %6.1f us\n",
			       format_size(messages[i], text, sizeof(text)),
			       usec);
		if (!i)
			rates->usec = usec;
	}
	if (!err) {
		putchar('\n');
		err = check_blocks(c, blocks, ARRAY_SIZE(blocks), rates);
	}
	return err ? err : check_gpus(c);
}

#define PAIR_LEN (2 * CHECK_NAME_LEN + 16)
static const char *format_pair(const struct check_pair *pair,
			       char label[PAIR_LEN])
{
	snprintf(label, PAIR_LEN, "weft_%s %s - %s", pair->here->ops->name,
		 pair->here->name, pair->there->name);
	return label;
}

/* A device beside the first: one size, a line. */
static int measure_in_short(struct check *c, const struct check_pair *pair,
			    struct check_rates *rates)
{
	static const size_t warm_up = 64 << 10, block = 16 << 20;
	char label[PAIR_LEN];
	size_t size = block;
	int err;

	err = check_speed(c, CHECK_PUT, warm_up, &rates->put);
	if (!err && is_slow(block, rates->put))
		size = warm_up;
	if (!err)
		err = check_bytes(c, CHECK_PUT, size);
	if (!err)
		err = check_bytes(c, CHECK_GET, size);
	if (!err)
		err = check_latency(c, 8, &rates->usec);
	if (!err)
		err = check_speed(c, CHECK_PUT, size, &rates->put);
	if (!err)
		err = check_speed(c, CHECK_GET, size, &rates->get);
	if (err)
		return err;
	printf("  %-36s %7.1f us %10.0f %10.0f\n", format_pair(pair, label),
	       rates->usec, rates->put / 1e6, rates->get / 1e6);
	return 0;
}

/* The other side's control port, found once. */
struct place {
	const char *host, *port;
	struct addrinfo *all;
	bool json;
};

/* -errno if there is no answer. */
static int dial(const struct place *place, const char *device)
{
	struct request request = { .device = "" };
	const struct addrinfo *ai;
	int fd = -1, err = 0;

	for (ai = place->all; ai && fd < 0; ai = ai->ai_next) {
		fd = socket(ai->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
		if (fd < 0)
			continue;
		set_patience(fd);
		if (!connect(fd, ai->ai_addr, ai->ai_addrlen))
			break;
		/* what SO_SNDTIMEO makes of a connect (socket(7)) */
		err = errno == EINPROGRESS ? ETIMEDOUT : errno;
		close(fd);
		fd = -1;
	}
	if (fd < 0)
		return -err;
	memcpy(request.magic, card_magic, sizeof(card_magic));
	snprintf(request.device, sizeof(request.device), "%s", device);
	if (send_whole(fd, &request, sizeof(request)) || send_proof(fd)) {
		close(fd);
		return -EIO;
	}
	return fd;
}

static int measure_pair(const struct place *place, struct check_pair *pair)
{
	const bool first = pair->here->route;
	struct check c;
	const int fd = dial(place, pair->there->name);

	if (fd < 0)
		return tool_error("check", "cannot reach '%s' again: %s",
				  place->host, strerror(-fd));
	pair->err = connect_device(&c, fd, pair->here);
	if (!pair->err) {
		if (first)
			printf("%s, over weft_%s on %s\n", place->host,
			       c.ops->name, pair->here->name);
		pair->err = first ? run_measurements(&c, &pair->rates)
				  : measure_in_short(&c, pair, &pair->rates);
	}
	pair->measured = !pair->err;
	if (!pair->err)
		check_bye(&c);
	check_close(&c);
	close(fd);
	return pair->err;
}

/* Returns whether all that is measured works. */
static bool measure_pairs(const struct place *place, struct check_pair *pairs,
			  int n)
{
	const uint64_t end = weft_now_ms() + CHECK_WHOLE_MS;
	char label[PAIR_LEN];
	bool works;
	int i;

	works = !measure_pair(place, pairs);
	/* a host whose first device does not work gives the same answers */
	if (works && n > 1)
		printf("\n  %-36s %10s %10s %10s\n",
		       "other devices, here - there", "8 B", "put MB/s",
		       "get MB/s");
	for (i = 1; i < n && works; i++)
		if (weft_now_ms() < end)
			measure_pair(place, &pairs[i]);
		else
			printf("  %-36s not measured, out of time\n",
			       format_pair(&pairs[i], label));
	for (i = 1; i < n; i++)
		works &= !pairs[i].err;
	if (works)
		puts("\nEvery byte of every size was compared, both ways: it "
		     "works.");
	return works;
}

/* Prints @text as a JSON string. */
static void print_json_text(const char *text)
{
	putchar('"');
	for (; *text; text++)
		if ((unsigned char)*text < ' ')
			printf("\\u%04x", (unsigned char)*text);
		else
			printf(*text == '"' || *text == '\\' ? "\\%c" : "%c",
			       *text);
	putchar('"');
}

static void print_json(const struct place *place,
		       const struct check_pair *pairs, int n, bool works)
{
	int i;

	printf("{\"host\":");
	print_json_text(place->host);
	printf(",\"works\":%s,\"devices\":[", works ? "true" : "false");
	for (i = 0; i < n; i++) {
		printf("%s{\"weft\":\"%s\",\"here\":\"%s\",\"there\":\"%s\"",
		       i ? "," : "", pairs[i].here->ops->name,
		       pairs[i].here->name, pairs[i].there->name);
		if (pairs[i].measured)
			printf(",\"message_us\":%.1f,"
			       "\"put_bytes_per_s\":%.0f,"
			       "\"get_bytes_per_s\":%.0f",
			       pairs[i].rates.usec, pairs[i].rates.put,
			       pairs[i].rates.get);
		if (pairs[i].err)
			printf(",\"error\":\"%s\"", strerror(-pairs[i].err));
		putchar('}');
	}
	printf("],\"change\":[");
}

/* What is printed from here on goes nowhere until speak() gets its result. */
static int hush(void)
{
	int out;

	fflush(stdout);
	out = dup(STDOUT_FILENO);
	if (out < 0 || !freopen("/dev/null", "w", stdout))
		return -1;
	return out;
}

static void speak(int out)
{
	fflush(stdout);
	dup2(out, STDOUT_FILENO);
	close(out);
}

/* Over the connection on which the list was asked for. */
static int run_check(const struct place *place, int fd)
{
	struct check_pair pairs[CHECK_DEVICES_MAX];
	struct check_list here, there;
	uint8_t text[CHECK_LIST_LEN];
	struct weft_netif route;
	int err, n, out = -1;
	bool works;

	if (find_local_netif(fd, &route) || read_verdict(fd) ||
	    read_whole(fd, text, sizeof(text)))
		return EXIT_FAILED;
	err = check_list_own(&route, &here);
	if (err)
		return tool_error("check", "%s", strerror(-err));
	if (check_unpack_list(text, &there))
		return tool_error(
			"check",
			"the other side is not 'weft check' of this release");
	n = check_match(&here, &there, pairs);
	if (!n)
		return tool_error("check",
				  "the two sides have no device in common");
	if (place->json) {
		out = hush();
		if (out < 0)
			return tool_error("check", "cannot write: %m");
	}
	works = measure_pairs(place, pairs, n);
	if (place->json) {
		speak(out);
		print_json(place, pairs, n, works);
	}
	check_advise(pairs, n, &here, &there, place->json);
	if (place->json)
		puts("]}");
	return works ? 0 : EXIT_FAILED;
}

static int check_host(char *where, bool json)
{
	const struct addrinfo hints = {
		.ai_socktype = SOCK_STREAM,
		.ai_family = weft_settings()->family,
	};
	struct place place = { .json = json };
	char *host;
	int fd, err;

	if (split_host_port(where, &host, &place.port))
		return usage_error("check", "'%s' is not HOST or HOST:PORT",
				   where);
	if (!*host)
		return usage_error("check", "no host given");
	if (require_secret())
		return EXIT_FAILED;
	place.host = host;
	err = getaddrinfo(host, place.port, &hints, &place.all);
	if (err) {
		tool_error("check", "cannot resolve '%s'%s: %s", host,
			   hints.ai_family ? " within WEFT_FAMILY" : "",
			   gai_strerror(err));
		return EXIT_AWAY;
	}
	fd = dial(&place, "");
	if (fd >= 0) {
		err = run_check(&place, fd);
		close(fd);
	} else {
		tool_error("check",
			   "cannot reach '%s' on port %s: %s; is 'weft check "
			   "--listen' running there?",
			   host, place.port, strerror(-fd));
		err = EXIT_AWAY;
	}
	freeaddrinfo(place.all);
	return err;
}

/* @where: "" or ":PORT". */
static int check_scheduler(const char *file, const char *where, bool json)
{
	/* Python is where Dask is, and its library knows JSON */
	static const char code[] =
		"import json, sys\n"
		"with open(sys.argv[1]) as file:\n"
		"    print(json.load(file)['address'], end='')\n";
	char python[TOOL_PATH_MAX], address[512], text[600], *host;
	const char *port, *scheme;

	if (*where && *where != ':')
		return usage_error("check", "'%s' is not :PORT", where);
	if (access(file, R_OK)) {
		if (errno != ENOENT)
			return tool_error("check", "cannot read '%s': %m",
					  file);
		tool_error("check",
			   "cannot read '%s': %m; Dask's scheduler writes it "
			   "when it is up",
			   file);
		return EXIT_AWAY;
	}
	if (!tool_ask_python(code, file, python, address, sizeof(address)))
		return tool_error("check",
				  "%s finds no address of a scheduler in '%s'",
				  python, file);
	snprintf(text, sizeof(text), "%s", address);
	scheme = strstr(text, "://") ? text : "";
	host = *scheme ? strstr(address, "://") + 3 : address;
	if (split_host_port(host, &host, &port) || !*host)
		return tool_error("check", "'%s' has an invalid address: '%s'",
				  file, text);
	if (!json && !strncmp(scheme, "tcp:", 4))
		puts("the scheduler talks tcp://, which weft leaves alone: "
		     "'weft run dask scheduler --protocol\nucxx' starts one that "
		     "it carries");
	snprintf(text, sizeof(text), strchr(host, ':') ? "[%s]%s" : "%s%s",
		 host, where);
	return check_host(text, json);
}

static int send_list(int fd, const struct check_list *list)
{
	uint8_t text[CHECK_LIST_LEN];

	check_pack_list(list, text);
	return send_whole(fd, text, sizeof(text));
}

static int serve_device(int fd, const char *from,
			const struct check_device *device)
{
	struct check c;
	int err;

	err = connect_device(&c, fd, device);
	if (!err) {
		printf("%s, over weft_%s on %s\n", from, c.ops->name,
		       device->name);
		fflush(stdout);
		err = check_serve(&c);
		if (err)
			tool_error("check", "%s: %s", from, strerror(-err));
	}
	check_close(&c);
	return err;
}

static void serve_one(int fd, const union weft_sockaddr *from)
{
	struct check_list list = { .n = 0 };
	char text[WEFT_SOCKADDR_STR];
	struct weft_netif route;
	struct request request = { 0 };
	struct proof proof = { 0 };
	const int one = 1;
	bool ask;
	int i;

	weft_sockaddr_str(from, text, sizeof(text));
	set_patience(fd);
	/* accept_guest() has raised it; what follows is shorter */
	setsockopt(fd, SOL_SOCKET, SO_RCVLOWAT, &one, sizeof(one));
	if (!read_whole(fd, &request, sizeof(request))) {
		if (memcmp(request.magic, card_magic, sizeof(card_magic)))
			tool_error("check",
				   "%s is not 'weft check' of this release",
				   text);
		else if (!read_whole(fd, &proof, sizeof(proof)) &&
			 !find_local_netif(fd, &route))
			check_list_own(&route, &list);
	}
	request.device[sizeof(request.device) - 1] = '\0';
	ask = !*request.device;
	if (list.n && ask && answer_proof(fd, &proof, text))
		send_list(fd, &list);
	for (i = 0; i < list.n && !ask; i++)
		if (!strcmp(list.devices[i].name, request.device)) {
			serve_device(fd, text, &list.devices[i]);
			break;
		}
	close(fd);
}

/* Listen for both families if the host has both. */
static int open_listener(const char *host, const char *port)
{
	const int on = 1, off = 0;
	struct addrinfo hints = {
		.ai_socktype = SOCK_STREAM,
		.ai_flags = AI_PASSIVE,
		.ai_family = *host ? AF_UNSPEC : AF_INET6,
	}, *all, *ai;
	int fd = -1, err;

	err = getaddrinfo(*host ? host : NULL, port, &hints, &all);
	if (err) {
		tool_error("check", "cannot resolve '%s': %s", host,
			   gai_strerror(err));
		return -1;
	}
	for (ai = all; ai && fd < 0; ai = ai->ai_next) {
		fd = socket(ai->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
		if (fd < 0) {
			err = errno;
			continue;
		}
		setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
		setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof(off));
		if (bind(fd, ai->ai_addr, ai->ai_addrlen) ||
		    listen(fd, GUESTS)) {
			err = errno;
			close(fd);
			fd = -1;
		}
	}
	freeaddrinfo(all);
	if (fd < 0 && !*host)
		return open_listener("0.0.0.0", port);
	if (fd < 0)
		tool_error("check", "cannot listen on %s, port %s: %s", host,
			   port, strerror(err));
	return fd;
}

/* Accepted connections that have not sent their request, oldest first. */
struct guests {
	struct pollfd fds[1 + GUESTS]; /* behind the listener */
	union weft_sockaddr from[1 + GUESTS];
	uint64_t since_ms[1 + GUESTS];
	nfds_t n;
};

static int remove_guest(struct guests *g, nfds_t i)
{
	const int fd = g->fds[i].fd;
	const size_t rest = --g->n - i;

	memmove(g->fds + i, g->fds + i + 1, rest * sizeof(*g->fds));
	memmove(g->from + i, g->from + i + 1, rest * sizeof(*g->from));
	memmove(g->since_ms + i, g->since_ms + i + 1,
		rest * sizeof(*g->since_ms));
	return fd;
}

/* 0, or -1 after an error message. */
static int accept_guest(struct guests *g)
{
	const int whole = sizeof(struct request);
	struct sockaddr_storage ss;
	socklen_t len = sizeof(ss);
	const int fd = accept4(g->fds[0].fd, (struct sockaddr *)&ss, &len,
			       SOCK_CLOEXEC);

	if (fd < 0) {
		if (errno == EINTR || errno == ECONNABORTED || errno == EAGAIN)
			return 0;
		tool_error("check", "cannot accept: %m");
		return -1;
	}
	if (g->n == ARRAY_SIZE(g->fds))
		close(remove_guest(g, 1));
	/* readable with the whole request, or at the end of the stream */
	setsockopt(fd, SOL_SOCKET, SO_RCVLOWAT, &whole, sizeof(whole));
	g->fds[g->n] = (struct pollfd){ .fd = fd, .events = POLLIN };
	convert_sockaddr(&ss, &g->from[g->n]);
	g->since_ms[g->n++] = weft_now_ms();
	return 0;
}

/* A guest that sends nothing delays no other. */
static int serve_guests(int listener)
{
	struct guests g = {
		.fds = { { .fd = listener, .events = POLLIN } },
		.n = 1,
	};
	union weft_sockaddr from;
	nfds_t i;

	for (;;) {
		poll(g.fds, g.n, g.n > 1 ? 1000 : -1);
		for (i = 1; i < g.n; i++)
			if (g.fds[i].revents)
				break;
		if (i < g.n) {
			from = g.from[i];
			serve_one(remove_guest(&g, i), &from);
			continue;
		}
		while (g.n > 1 &&
		       weft_now_ms() - g.since_ms[1] > CHECK_PATIENCE_MS)
			close(remove_guest(&g, 1));
		if (g.fds[0].revents && accept_guest(&g))
			return EXIT_FAILED;
	}
}

static int run_listener(char *where)
{
	struct sockaddr_storage ss;
	union weft_sockaddr sa;
	socklen_t len = sizeof(ss);
	const char *port;
	char *host;
	int fd, err;

	if (split_host_port(where, &host, &port))
		return usage_error("check", "'%s' is not [ADDRESS]:PORT",
				   where);
	if (require_secret())
		return EXIT_FAILED;
	fd = open_listener(host, port);
	if (fd < 0)
		return EXIT_FAILED;
	getsockname(fd, (struct sockaddr *)&ss, &len);
	convert_sockaddr(&ss, &sa);
	printf("listening on port %u; on the other host: weft check "
	       "THISHOST:%u\n",
	       ntohs(sa.in.sin_port), ntohs(sa.in.sin_port));
	fflush(stdout);
	err = serve_guests(fd);
	close(fd);
	return err;
}

int check_main(int argc, char **argv)
{
	static const struct option options[] = {
		{ "listen", no_argument, NULL, 'l' },
		{ "scheduler-file", required_argument, NULL, 's' },
		{ "json", no_argument, NULL, 'j' },
		{ "help", no_argument, NULL, 'h' },
		{ 0 },
	};
	char any[] = "";
	const char *file = NULL;
	bool listen = false, json = false;
	char *where;
	int c;

	opterr = 0;
	while ((c = getopt_long(argc, argv, ":ls:jh", options, NULL)) != -1) {
		switch (c) {
		case 'l':
			listen = true;
			break;
		case 's':
			file = optarg;
			break;
		case 'j':
			json = true;
			break;
		case 'h':
			fputs(help, stdout);
			return 0;
		case ':':
			return usage_error("check", "%s needs a file",
					   argv[optind - 1]);
		default:
			return usage_error("check", "unknown option '%s'",
					   argv[optind - 1]);
		}
	}
	if (argc - optind > 1)
		return usage_error("check", "more than one host");
	where = optind < argc ? argv[optind] : any;
	if (listen && (file || json))
		return usage_error("check", "--listen takes no --%s",
				   file ? "scheduler-file" : "json");
	if (listen)
		return run_listener(where);
	if (file)
		return check_scheduler(file, where, json);
	if (optind == argc)
		return usage_error("check", "no host given");
	return check_host(where, json);
}
