#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# weft status and weft top over pages that a script has written, good and bad
# ones; weft stats over lines; weft path. What real processes write is compared
# in tests/host/status.sh.
. "${WEFT_SRC:?}/tests/lib/tap.sh" || exit 99
type python3 >/dev/null 2>&1 || tap_skip_all "needs python3"
weft=$WEFT_BUILD/tools/weft
tap_folder
export WEFT_RUN_DIR=$tap_tmp/run
mkdir "$WEFT_RUN_DIR"
folder=$WEFT_RUN_DIR/weft-$(id -u)

tap_equal "no process" "$("$weft" status)" "no process of this user has weft open"
tap_equal "weft status makes no folder" "$(ls "$WEFT_RUN_DIR")" ""
tap_equal "the same as JSON" "$("$weft" status --json)" "[]"

# ---- pages, locked as those of the living are ------------------------------

mkdir -m 700 "$folder"
cat >"$tap_tmp/pages.py" <<'PY'
import fcntl, os, random, struct, sys, time
HEAD, ROW, ROWS = 512, 320, 1024
NS = os.stat("/proc/self/ns/pid").st_ino
held = []

def page(name, rows, program=b"python", pid=4711, ns=NS, magic=b"weftpage",
         version=2, used=None, runtime=b"ucx", errors=0, message=b"",
         unlisted=0, introduced=b"", size=HEAD + ROW * ROWS, head_size=HEAD, locked=True):
    now = int(time.time())
    head = magic + struct.pack(
        "<4I5Q2I16s32s64s40s288s", version, head_size, ROW, ROWS, pid, ns, now - 7200 + pid,
        now - 300, errors, len(rows) if used is None else used, unlisted,
        runtime, program, b"pod-a", introduced, message)
    assert len(head) == HEAD
    with open(f"{sys.argv[1]}/{name}", "w+b") as f:
        f.write(head + b"".join(rows))
        f.truncate(size)
        held.append(os.dup(f.fileno()))
        if locked:
            fcntl.flock(held[-1], fcntl.LOCK_EX)
    os.chmod(f"{sys.argv[1]}/{name}", 0o600)

def row(id, peer, device, netdev, where, out=0, into=0, streams=0, serial=1,
        barrier=0):
    # tx_message_bytes, rx_put_bytes and streams_max
    c = [0] * 17
    c[1], c[7], c[15] = out, into, streams
    return struct.pack("<3Q15sB64s80s17Q", serial, id, peer, device, barrier,
                       netdev, where, *c)

exec(sys.argv[2])
print("ready", flush=True)
sys.stdin.read()
PY
hold() # SCRIPT: writes pages and keeps their locks until let_go
{
	rm -f "$folder"/*
	coproc HOLD { exec python3 "$tap_tmp/pages.py" "$folder" "$1"; }
	local word
	read -r word <&"${HOLD[0]}"
	test "$word" = ready
}
let_go()
{
	local pid=$HOLD_PID in=${HOLD[1]}
	exec {in}>&-
	wait "$pid"
}

hold '
page("c-0000000000000001", [
    row(1, 2, b"tcp", b"eth0", b"10.0.0.2:5", 1230000000, 999999, 4),
    row(9, 9, b"tcp", b"eth0", b"gone", serial=0),
    row(1, 7, b"ib", b"mlx5_0:1", b"10.0.0.7:9", 5, 18446744073709551615),
], errors=2, message=b"the peer is \x1b[31mgone", unlisted=3)
page("c-0000000000000002", [
    row(2, 1, b"tcp", b"eth0", b"10.0.0.1:5", 999999, 1230000000, barrier=1),
    row(2, 8, b"tcp", b"eth0", b"10.0.0.8:5", barrier=6),
    row(2, 11, b"tcp", b"eth0", b"10.0.0.9:5", barrier=200),
], program=b"dask", pid=4712, ns=1)
page("c-0000000000000003", [], program=b"train", runtime=b"nccl", pid=4713)
page("c-0000000000000006", [], program=b"rank", runtime=b"nccl", pid=4714, introduced=b"weft-1")
page("c-0000000000000007", [], program=b"rank", runtime=b"nccl", pid=4715, introduced=b"weft-1")
page("c-0000000000000008", [], program=b"rank", runtime=b"nccl", pid=4716, introduced=b"weft-2")
page("c-0000000000000004", [], program=b"dead", locked=False)
page("c-0000000000000005.new", [], program=b"unborn")
'
# a script holds all locks: its pid is what proc_locks(5) has
holder=$HOLD_PID
apart="the run folder nor the network namespace; mount one folder at /run/weft in \
both containers, or set WEFT_RUN_DIR to it"
seen=$("$weft" status | sed 's/ for [0-9]* min/ for N min/' | tr -s ' ')
tap_equal "what it shows" "$seen" "$folder: 6 processes

python $holder (4711 in pod-a): UCX, for N min
 peer way sent received
 dask $holder (4712 in pod-a) weft_tcp, eth0, 4 streams 1.23 GB 1.00 MB
 10.0.0.7:9 weft_ib, mlx5_0:1 5 B 18.4 EB
 and 3 peers for which its page has no room
 2 errors; 5 min ago: the peer is ?[31mgone

dask $holder (4712 in pod-a): UCX, for N min
 peer way sent received
 python $holder (4711 in pod-a) weft_tcp, eth0 1.00 MB 1.23 GB
 on this host: this process offers no weft_shm; add it to UCX_TLS
 10.0.0.8:5 weft_tcp, eth0 0 B 0 B
 on this host: they share neither $apart
 10.0.0.9:5 weft_tcp, eth0 0 B 0 B

train $holder (4713 in pod-a): NCCL, for N min, no peers

rank $holder (4714 in pod-a): NCCL, for N min
 introduced to rank $holder (4715 in pod-a): NCCL goes its own ways there

rank $holder (4715 in pod-a): NCCL, for N min
 introduced to rank $holder (4714 in pod-a): NCCL goes its own ways there

rank $holder (4716 in pod-a): NCCL, for N min
 introduced, but to no process that is here"
"$weft" status --json >"$tap_tmp/json"
tap_equal "the same as JSON" "$(python3 - "$tap_tmp/json" <<'PY' 2>&1
import json, sys
folder, = json.load(open(sys.argv[1]))
a, b, c, d = folder["processes"][:4]
print(a["program"], a["own_pid"], a["host"], a["errors"], a["unlisted"],
      a["message"], len(a["peers"]), a["peers"][0]["process"],
      a["peers"][0]["tx_message_bytes"], "process" in a["peers"][1],
      b["peers"][0]["process"], b["peers"][0]["rx_put_bytes"], c["runtime"],
      "introduced" in c, d["introduced"], [peer.get("barrier", "none")[:12] for peer in b["peers"]])
PY
)" "python 4711 pod-a 2 3 the peer is ?[31mgone 2 1 1230000000 False 0 1230000000 nccl \
False weft-1 ['this process', 'they share n', 'none']"
tap_equal "weft top is weft status where there is no terminal" \
	"$("$weft" top | sed 's/ for [0-9]* min//')" "$("$weft" status | sed 's/ for [0-9]* min//')"

tap_equal "weft info has a matrix of those that run" \
	"$("$weft" info 2>/dev/null | sed -n '/^Processes/,/^$/p')" \
	"Processes in $folder
        1    2    3    4    5    6
     1  X    TCP  -    -    -    -    python $holder (4711 in pod-a)
     2  TCP  X    -    -    -    -    dask $holder (4712 in pod-a)
     3  -    -    X    -    -    -    train $holder (4713 in pod-a)
     4  -    -    -    X    OWN  -    rank $holder (4714 in pod-a)
     5  -    -    -    OWN  X    -    rank $holder (4715 in pod-a)
     6  -    -    -    -    -    X    rank $holder (4716 in pod-a)
  OWN  introduced: NCCL's own ways
  TCP  the network
  -    no connection
  2 to 1: this process offers no weft_shm; add it to UCX_TLS
  2 to 10.0.0.8:5: they share neither $apart"

# On a terminal: a look, then another one at a key, until q.
cat >"$tap_tmp/top.py" <<'PY'
import fcntl, os, pty, struct, sys, termios
pid, fd = pty.fork()
if not pid:
    os.execv(sys.argv[1], sys.argv[1:])
fcntl.ioctl(fd, termios.TIOCSWINSZ, struct.pack("4H", 50, 120, 0, 0))
seen = b""
def until(word, times):
    global seen
    while seen.count(word) < times:
        seen += os.read(fd, 65536)
until(b"q ends", 1)
os.write(fd, b"x")
until(b"q ends", 2)
os.write(fd, b"q")
try:
    while True:
        seen += os.read(fd, 65536)
except OSError:
    pass
print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]),
      b"GB/s out  GB/s in" in seen,
      b"\r\n      containers, or set WEFT_RUN_DIR to it\x1b[K" in seen,
      seen.startswith(b"\x1b[?1049h"),
      seen.endswith(b"\x1b[?25h\x1b[?1049l"))
PY
tap_equal "weft top shows rates on a terminal, which q gives back" \
	"$(timeout 60 python3 "$tap_tmp/top.py" "$weft" top 2>&1)" "0 True True True True"
let_go

hold '
page("c-000000000000000a", [], magic=b"unlike!!")
page("c-000000000000000b", [], version=1)
page("c-000000000000000c", [], used=1025)
page("c-000000000000000d", [], head_size=511)
page("c-000000000000000e", [], size=100)
page("c-000000000000000f", [], size=0)
os.mkfifo(sys.argv[1] + "/c-fifo")
os.symlink("/etc/passwd", sys.argv[1] + "/c-link")
'
skipped() # NAME WHY
{
	echo "weft status: skipped '$folder/$1': $2"
}
tap_equal "damaged pages are skipped, and said" "$("$weft" status 2>&1 | sort)" "$({
	echo "no process of this user has weft open"
	skipped c-000000000000000a "it is not a page of weft's counters"
	skipped c-000000000000000b "it is of another release of weft"
	skipped c-000000000000000c "it is damaged"
	skipped c-000000000000000d "it is damaged"
	skipped c-000000000000000e "it does not have the size of a page"
	skipped c-000000000000000f "it does not have the size of a page"
	skipped c-fifo "it is not a regular file"
	skipped c-link "it is a symbolic link"
} | sort)"
let_go

# Whatever stands in the rest, it ends well, and nothing but printable text comes.
hold '
random.seed(33)
for i in range(40):
    name = "c-%016x" % i
    page(name, [random.randbytes(ROW) for _ in range(20)], pid=random.getrandbits(63) % 7000)
    with open(f"{sys.argv[1]}/{name}", "r+b") as f:
        f.seek(24) # ids and times, which stand before "used"
        f.write(random.randbytes(40))
        f.seek(68)
        f.write(random.randbytes(HEAD - 68))
'
"$weft" status >"$tap_tmp/text" 2>&1
tap_equal "random pages do it no harm" "$? $(grep -c "^  peer " "$tap_tmp/text")" "0 40"
tap_equal "nothing unprintable reaches the terminal" \
	"$(LC_ALL=C tr -d '\n -~' <"$tap_tmp/text" | wc -c)" 0
tap_equal "and the JSON is JSON" "$("$weft" status --json 2>/dev/null |
	python3 -c 'import json, sys; print(len(json.load(sys.stdin)[0]["processes"]))' 2>&1)" 40
let_go
rm -f "$folder"/*

# ---- weft stats ------------------------------------------------------------

line() # DEVICE RUNTIME HOST PID ID PEER WHERE OUT IN
{
	printf '{"weft":"%s","runtime":"%s","netdev":"x","pid":%s,"host":"%s","id":"%016x","peer":"%016x","where":"%s"' \
		"$1" "$2" "$4" "$3" "$5" "$6" "$7"
	printf ',"tx_message_bytes":%s,"rx_message_bytes":0,"tx_put_bytes":0,"rx_put_bytes":%s,"get_bytes":0,"tx_get_bytes":0}\n' \
		"$8" "$9"
}
{
	line tcp ucx a 7 1 2 10.0.0.2:1 1000 500 # both sides wrote
	line shm ucx a 7 3 4 "this host" 5000 0
	echo "a warning of another program"
	line tcp ucx a 7 11 9 10.0.0.9:1 77 1 # the other side was killed
} >"$tap_tmp/a"
{
	line tcp ucx b 7 2 1 10.0.0.1:1 500 1000
	line shm ucx b 7 4 3 "this host" 0 5000
	line ib nccl b 7 5 6 10.0.0.2:3 1000000 2000000
	line tcp ucx b 7 13 12 10.0.0.1:1 20 30 # a second interface of the same
	line tcp ucx b 7 2 1 10.0.0.1:1 500 1000 | head -c 150
} >"$tap_tmp/b"
line tcp ucx a 7 12 13 10.0.0.2:1 30 20 >>"$tap_tmp/a"
"$weft" stats "$tap_tmp/a" "$tap_tmp/b" >"$tap_tmp/text" 2>"$tap_tmp/errors"
tap_equal "weft stats adds up who carried how much between whom" \
	"$? $(cat "$tap_tmp/text")" "0 A    B           way             A to B    B to A
a 7  10.0.0.9:1  weft_tcp          77 B       1 B
a 7  b 7         weft_shm       5.00 kB       0 B
a 7  b 7         weft_tcp       1.03 kB     520 B
b 7  10.0.0.2:3  NCCL net, ib   1.00 MB   2.00 MB"
tap_equal "and says how many lines it left out" "$(cat "$tap_tmp/errors")" \
	"weft stats: 2 lines left out that no process wrote for WEFT_STATS, or only in part"
tap_equal "a missing file is an error" \
	"$("$weft" stats "$tap_tmp/nosuch" 2>&1 >/dev/null; echo $?)" \
	"weft stats: cannot read '$tap_tmp/nosuch': No such file or directory
1"
tap_equal "so is a file without a line of weft's" \
	"$("$weft" stats /dev/null 2>&1; echo $?)" \
	"weft stats: no line of WEFT_STATS in any file
1"

# ---- weft path -------------------------------------------------------------

tap_equal "weft path nccl" "$("$weft" path nccl)" "$(realpath "$(product libnccl-net-weft.so)")"
tap_equal "weft path preload" "$("$weft" path preload)" "$(realpath "$(product libweft_preload.so)")"
tap_equal "weft path ucx is the folder" "$("$weft" path ucx)" \
	"$(dirname "$(realpath "$(product libuct_weft.so)")")"
tap_equal "weft path of nothing" "$("$weft" path fly 2>&1; echo $?)" \
	"weft path: there is no 'fly'
see 'weft path --help'
2"
tap_done
