#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# The cable of tests/gpu's pods: one that was cut leaves sockets with data for a
# peer, and these keep it; the next case has one of its own all the same.
. "${WEFT_SRC:?}/tests/lib/tap.sh" || exit 99

type python3 unshare >/dev/null 2>&1 || tap_skip_all "needs python3 and unshare"
if test -z "$WEFT_TEST_INSIDE"; then
	if unshare -Urn true 2>/dev/null; then
		exec env WEFT_TEST_INSIDE=1 unshare -Urn bash "$0"
	fi
	test "$(id -u)" = 0 && unshare -n true 2>/dev/null ||
		tap_skip_all "may not make network namespaces"
	exec env WEFT_TEST_INSIDE=1 unshare -n bash "$0"
fi

export PYTHONPATH=$WEFT_SRC/tests/gpu/nccl PYTHONDONTWRITEBYTECODE=1
net=$WEFT_SRC/tests/gpu/nccl/pod_net.py
tap_folder
cat >"$tap_tmp/there.py" <<'PY'
import socket
listener = socket.create_server(("10.78.0.2", 7777))
print("listening", flush=True)
peer = listener.accept()[0]
peer.recv(1)
peer.setblocking(False)
peer.send(bytes(4 << 20))	# more than a peer takes that does not read
PY
cat >"$tap_tmp/here.py" <<'PY'
import socket, pod_net
peer = socket.create_connection(("10.78.0.2", 7777), timeout=20)
peer.send(b"!")
pod_net.set_up("wtest0", False)
PY

timeout 60 python3 "$net" wtest python3 "$tap_tmp/there.py" \
	>"$tap_tmp/out" 2>"$tap_tmp/err" & there=$!
for _ in $(seq 2000); do
	grep -q listening "$tap_tmp/out" && break
	kill -0 $there 2>/dev/null || break
	read -rt 0.01 <> <(:)
done
grep -q listening "$tap_tmp/out" ||
	tap_skip_all "cannot make a cable: $(tail -1 "$tap_tmp/err")"
tap_equal "a cable can be made, used and cut" \
	"$(timeout 60 python3 "$tap_tmp/here.py" 2>&1)" ""
wait $there
python3 "$net" remove wtest
tap_equal "the next command gets a cable of its own" \
	"$(timeout 60 python3 "$net" wtest echo there 2>&1)" there
tap_equal "removing a missing cable is no failure" \
	"$(python3 "$net" remove wtest; python3 "$net" remove wtest 2>&1)" ""
tap_done
