/* SPDX-License-Identifier: BSD-3-Clause */
/* The control connection of weft check. */
#ifndef WEFT_TOOLS_CHECK_CONTROL_H
#define WEFT_TOOLS_CHECK_CONTROL_H

#include <netdb.h>

#include "tools/check/check.h"

#define CHECK_PORT "19515" /* of the control connection */

/* The asking side's first message on a control connection. */
struct check_request {
	char magic[8];
	/* that the serving side is to open; "": send the list and hang up */
	char device[CHECK_NAME_LEN];
};
_Static_assert(sizeof(struct check_request) == 80, "no padding");

/* Behind it, to tell a wrong secret from a network that does not work. */
struct check_proof {
	uint8_t nonce[16];
	uint8_t has_secret;
	uint8_t hash[32]; /* of nonce and secret */
};
_Static_assert(sizeof(struct check_proof) == 49, "no padding");

extern const char check_magic[8]; /* of requests and cards */

/*
 * "host:port", "[v6]:port", "v6", "host"; modifies @text and returns parts.
 * -EINVAL, with @text unchanged.
 */
int check_split_host_port(char *text, char **host, const char **port);
void check_convert_sockaddr(const struct sockaddr_storage *ss,
			    union weft_sockaddr *sa);
/* The interface of this end of @fd; -errno after an error message. */
int check_find_netif(int fd, struct weft_netif *netif);
/* All of it: -errno, after an error message. */
int check_read(int fd, void *buf, size_t len);
int check_send(int fd, const void *buf, size_t len);
/* Calls on @fd fail if the peer does not answer within CHECK_PATIENCE_MS. */
void check_set_patience(int fd);

/* The job's secret: -errno after an error message. */
int check_require_secret(void);
/* Sends the asking side's proof, and reads the verdict of the other side. */
int check_send_proof(int fd);
int check_read_verdict(int fd);
/* The serving side's answer to @proof; true: go on. */
bool check_answer_proof(int fd, const struct check_proof *proof,
			const char *from);

/* Opens @device, and connects it to what the other side has opened. */
int check_connect_device(struct check *c, int fd,
			 const struct check_device *device);

/* check_ask.c: the exit status */
int check_host(char *where, bool json);
/* check_listen.c: likewise; @where: [ADDRESS]:PORT */
int check_listen(char *where);

#endif
