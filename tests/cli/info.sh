#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# weft info: what it shows is what is there.
. "$WEFT_SRC/tests/lib/tap.sh"
weft=$WEFT_BUILD/tools/weft
unset LD_PRELOAD UCX_TLS UCX_NET_DEVICES VIRTUAL_ENV CONDA_PREFIX LD_LIBRARY_PATH
for name in "${!DASK_@}" "${!WEFT_NET@}" NCCL_SOCKET_IFNAME UCXPY_IFNAME \
	NCCL_NET NCCL_NET_PLUGIN; do
	unset "$name"
done
tap_folder

shows() # NAME WORDS [VARIABLE=VALUE...] [-- ARGUMENT...]
{
	local name=$1 words=$2 vars=() out
	shift 2
	while test $# -gt 0 && test "$1" != --; do
		vars+=("$1")
		shift
	done
	out=$(env "${vars[@]}" "$weft" info "${@:2}" 2>&1)
	if grep -q -- "$words" <<<"$out"; then
		tap_ok "$name"
	else
		tap_not_ok "$name" "not found: $words" $'\n'"in: $out"
	fi
}

lacks() # NAME WORDS [VARIABLE=VALUE...]
{
	tap_nothing "$1" "$(env "${@:3}" "$weft" info 2>&1 | grep -- "$2")"
}

# 0: something would be carried
ends() # NAME CODE [VARIABLE=VALUE...] [-- ARGUMENT...]
{
	local name=$1 code=$2 vars=() out rc
	shift 2
	while test $# -gt 0 && test "$1" != --; do
		vars+=("$1")
		shift
	done
	out=$(env "${vars[@]}" "$weft" info "${@:2}" 2>&1)
	rc=$?
	if test $rc = "$code"; then
		tap_ok "$name: exit code $code"
	else
		tap_not_ok "$name: exit code $code" "exit code $rc: $out"
	fi
}

shows "loopback" '^  lo  *127\.0\.0\.1 .*yes, between processes of this host'
shows "an interface left out, and by whom" \
	'^  lo .*no: UCX_NET_DEVICES=nosuch0 leaves it out' UCX_NET_DEVICES=nosuch0
shows "one that is named and does not exist" \
	'^  nosuch0  *UCX_NET_DEVICES names it: there is none of that name here' \
	UCX_NET_DEVICES=nosuch0,lo
shows "a range with an interface that does not exist" \
	'^  nosuch2  *UCX_NET_DEVICES names it: there is none' \
	UCX_NET_DEVICES='nosuch[1-2],lo'
lacks "an excluded interface need not exist" 'names it' UCX_NET_DEVICES=^nosuch0
shows "no interface at all" '^  Nothing goes by weft: no interface may be used\.$' \
	UCX_TLS=weft_tcp WEFT_NET_DEVICES=nosuch0
shows "no interface" 'none: no interface may be used' WEFT_NET_DEVICES=lo
shows "a secret that cannot be read" 'Nothing: without its WEFT_SECRET_FILE' \
	UCX_TLS=weft_tcp WEFT_SECRET_FILE=/nosuch
shows "the unreadable secret file by name" '/nosuch., named by WEFT_SECRET_FILE' \
	UCX_TLS=weft_tcp WEFT_SECRET_FILE=/nosuch
shows "nobody asked" 'UCX_TLS here is unset: weft_tcp is not offered'
shows "then nothing goes by it" "nothing goes by weft: nobody asked for it; under 'weft run'"
shows "asked, and not there" "nothing goes by weft: it enters no UCX; under 'weft run'" \
	UCX_TLS=weft_tcp
shows "a preload that is not there" "the dynamic linker could not load '/nosuch/libweft_preload.so'" \
	LD_PRELOAD=/nosuch/libweft_preload.so
shows "a plugin path without it" "no libuct_weft.so is in '/nosuch:/dev'" \
	UCX_PLUGIN_PATH=/nosuch:/dev
if test -n "$WEFT_SANITIZED"; then
	tap_skip "preloaded" "a sanitized library cannot be preloaded"
else
	preload=LD_PRELOAD=$(product libweft_preload.so)
	shows "preloaded" 'LD_PRELOAD  */.*libweft_preload\.so, set here' "$preload"
	lacks "asked, and there" "nothing goes by weft" UCX_TLS=weft_tcp "$preload"
	ends "asked, and there" 0 UCX_TLS=weft_tcp "$preload"
	ends "for this host alone" 0 UCX_TLS=weft_tcp WEFT_NET_DEVICES=lo "$preload"
	ends "no interface" 1 UCX_TLS=weft_tcp WEFT_NET_DEVICES=nosuch0 "$preload"
	ends "not asked" 1 "$preload"
	ends "off" 1 UCX_TLS=weft_tcp WEFT_UCX=off "$preload"
	ends "no secret" 1 UCX_TLS=weft_tcp WEFT_SECRET_FILE=/nosuch "$preload"
	mkdir "$tap_tmp/alone"
	cp "${preload#*=}" "$tap_tmp/alone"
	shows "a preload without its plugin" \
		"no libuct_weft.so is in '$tap_tmp/alone/ucx': install weft whole" \
		LD_PRELOAD="$tap_tmp/alone/libweft_preload.so"
fi
ends "not there" 1 UCX_TLS=weft_tcp
if unshare -Urn true 2>/dev/null; then
	tap_equal "an interface that is down" "$(UCX_NET_DEVICES=lo \
		unshare -Urn "$weft" info |
		sed -n 's/^  lo  *\(UCX_NET_DEVICES .*\)/\1/p')" \
		"UCX_NET_DEVICES names it: it is down or has no address"
else
	tap_skip "an interface that is down" "no network namespace to be had here"
fi
shows "who goes where" '^  on this host  *weft_tcp$' UCX_TLS=weft_tcp
shows "weft is off" 'weft stays out, also under' WEFT_UCX=off UCX_TLS=weft_tcp
lacks "paths if weft is off" 'on this host' WEFT_UCX=off
shows "what weft_nvl lacks leaves nothing" '^  Nothing goes by weft\.$' \
	UCX_TLS=weft_nvl
shows "without weft_tcp host memory stays" "^  on this host  *nothing of weft's" \
	UCX_TLS=weft_nvl,cuda_copy WEFT_LIBCUDA="$WEFT_BUILD/tests/lib/.libs/libfake_cuda.so"
shows "weft_tcp is offered if UCX_TLS names it" 'UCX_TLS here is weft_tcp: weft_tcp is offered' \
	UCX_TLS=weft_tcp
shows "InfiniBand without a port" 'no active port: .*weft_ib' \
	UCX_TLS=weft_ib WEFT_IB_DEVICES=nosuch
shows "Dask's flag" 'loaded here, weft sets  UCX_TLS=weft_tcp  (Dask' \
	DASK_UCX__TCP=True
shows "what weft run would set" "'weft run' would set    UCX_TLS=weft_tcp,sm" \
	UCX_TLS=tcp,sm
shows "what NCCL is told" 'NCCL_SOCKET_IFNAME==lo (from UCX_NET_DEVICES)' \
	UCX_NET_DEVICES=lo -- nccl
shows "what NCCL was told by the user stays" 'NCCL_SOCKET_IFNAME=lo: yours' \
	WEFT_NET_DEVICES=lo NCCL_SOCKET_IFNAME=lo -- nccl
shows "no adapters for NCCL" 'NCCL_IB_DISABLE is set: all goes by TCP' \
	NCCL_IB_DISABLE=1 -- nccl
shows "NCCL's plugin" 'libnccl-net-weft.so$' -- nccl
shows "a plugin that is not there" \
	"NCCL_NET_PLUGIN names '/nosuch/libnccl-net-weft.so' (No such file .*): NCCL goes on without weft; give" \
	NCCL_NET_PLUGIN=other,/nosuch/libnccl-net-weft.so -- nccl
nccl() # NAME WORDS CODE [VARIABLE=VALUE...]
{
	shows "$1" "$2" "${@:4}" -- nccl
	ends "$1" "$3" "${@:4}" -- nccl
}
ours=$(product libnccl-net-weft.so)
nccl "no plugin named" 'goes without weft: NCCL_NET_PLUGIN is not set' 1
nccl "another plugin" 'goes without weft: NCCL_NET_PLUGIN does not name it' 1 \
	NCCL_NET_PLUGIN=ofi
nccl "weft's, by its path" "NCCL takes weft: NCCL_NET_PLUGIN=$ours" 0 \
	NCCL_NET_PLUGIN="$ours"
nccl "weft's, by its name" "NCCL takes weft: NCCL_NET_PLUGIN=weft" 0 \
	NCCL_NET_PLUGIN=weft LD_LIBRARY_PATH="$(dirname "$ours")"
nccl "a name that the linker does not find" \
	"cannot load 'libnccl-net-weft.so', .*; give it the path above" 1 \
	NCCL_NET_PLUGIN=weft
nccl "forbidden" 'NCCL_NET names another network' 1 \
	NCCL_NET_PLUGIN="$ours" NCCL_NET=Socket
nccl "second in a list" 'names another plugin first' 1 \
	NCCL_NET_PLUGIN="ofi,$ours"
nccl "second in a list, and named" 'NCCL takes weft' 0 \
	NCCL_NET_PLUGIN="ofi,$ours" NCCL_NET=weft
: >"$tap_tmp/libnccl-net-weft.so"
nccl "a file that is no library" "cannot load '$tap_tmp/libnccl-net-weft.so'" 1 \
	NCCL_NET_PLUGIN="$tap_tmp/libnccl-net-weft.so"
cp "$WEFT_BUILD/tests/nccl/.libs/libplain.so" "$tap_tmp/libnccl-net-weft.so"
nccl "a plugin of another's" 'it is no network plugin of weft' 1 \
	NCCL_NET_PLUGIN="$tap_tmp/libnccl-net-weft.so"
tap_nothing "no plugin warning if it is found or not wanted" "$(
	NCCL_NET_PLUGIN=$(product libnccl-net-weft.so) "$weft" info nccl 2>&1 \
		>/dev/null
	for name in weft libnccl-net-weft.so /nosuch/libnccl-net-ofi.so; do
		NCCL_NET_PLUGIN=$name "$weft" info nccl 2>&1 >/dev/null
	done
	NCCL_NET=Socket NCCL_NET_PLUGIN=/nosuch/libnccl-net-weft.so \
		"$weft" info nccl 2>&1 >/dev/null)"
shows "NCCL's sockets" '12 streams per peer, as it was set' \
	NCCL_SOCKET_NTHREADS=4 NCCL_NSOCKS_PERTHREAD=3 -- nccl
shows "what the plugin sets" \
	'NCCL_P2P_NET_CHUNKSIZE=524288, which the plugin sets' \
	WEFT_NCCL_NVLINK=off -- nccl
shows "a plugin variable that is set stays" 'NCCL_P2P_NET_CHUNKSIZE=65536, as it was set' \
	WEFT_NCCL_NVLINK=off NCCL_P2P_NET_CHUNKSIZE=65536 -- nccl
shows "settings that are set" '^  WEFT_TCP_CHUNK=1m  (from environment)' \
	WEFT_TCP_CHUNK=1m
shows "a misspelt one" 'did you mean WEFT_TCP_CHUNK?' WEFT_TCP_CHUNKS=1m
shows "a bad one" "WEFT_TCP_CHUNK='1t' is not from 4k to 64m" WEFT_TCP_CHUNK=1t
shows "what counts under NCCL alone" \
	'Under NCCL also read from: NCCL_SOCKET_FAMILY$' -- settings
shows "what counts first under NCCL" \
	'IFNAME (under NCCL its own before the others)\.$' -- settings --man
shows "all settings" '^WEFT_PORT_RANGE=5000-5010  (from UCX_TCP_PORT_RANGE; default 0)' \
	UCX_TCP_PORT_RANGE=5000-5010 -- settings
shows "settings as the manual has them" '^\*\*WEFT_TCP_CHUNK\*\* (default \*\*512k\*\*)' \
	WEFT_TCP_CHUNK=1m -- settings --man
shows "no such thing" "there is no 'nothing' to show" -- nothing
shows "no such option" "there is no option '--fly'" -- --fly

# GPUs, as the fake driver shows them.
gpus() # NAME WORDS [VARIABLE=VALUE...]
{
	shows "$@" WEFT_LIBCUDA="$fake" WEFT_LIBNVML="$fake" WEFT_TEST_NVML=1
}
fake=$WEFT_BUILD/tests/lib/.libs/libfake_cuda.so
export CUDA_MPS_PIPE_DIRECTORY=$tap_tmp/mps
gpus "a GPU" '^  0000:e1:00\.0  a fake GPU 1$'
gpus "NVLink, and the links that lead there" \
	'e0:00\.0 - 0000:e1:00\.0  NVLink, 4 links; importable; a ring of GPU memory$'
gpus "NVLink by a switch" 'e2:00\.0 - 0000:e3:00\.0  NVLink, 5 links; importable' \
	WEFT_TEST_CUDA_NODES=23
gpus "PCIe" 'e1:00\.0 - 0000:e2:00\.0  PCIe (SYS); importable' \
	WEFT_TEST_CUDA_NODES=12
gpus "PCIe where GPUs cannot read each other" \
	"PCIe (SYS); not importable: neither can read the other's memory" \
	WEFT_TEST_CUDA_NODES=14
gpus "MIG" 'not importable: 0000:e0:00\.0 is divided into instances (MIG)' \
	WEFT_TEST_CUDA_MIG=1
gpus "MPS" 'not importable: 0000:e0:00\.0 is used through MPS' \
	WEFT_TEST_CUDA_MPS=1
gpus "no MPS daemon, and a driver that cannot be asked" '; importable' \
	WEFT_TEST_CUDA_MPS=0
gpus "host memory then" '^    a ring of host memory$' WEFT_TEST_CUDA_MPS=1
gpus "a driver that hangs" 'the driver did not answer within 0\.9 s' \
	WEFT_TEST_CUDA_HANG=1
shows "no CUDA driver" "cannot load the CUDA driver '/nosuch'" \
	WEFT_LIBCUDA=/nosuch WEFT_LIBNVML="$fake" WEFT_TEST_NVML=1
mkdir "$tap_tmp/run"
gpus "the run folder" "^  run folder: $tap_tmp/run/weft-" \
	WEFT_RUN_DIR="$tap_tmp/run"
tap_nothing "info does not create the run folder" "$(ls "$tap_tmp/run")"
mkdir -m 755 "$tap_tmp/run/weft-$(id -u)"
gpus "a run folder open to others" \
	"run folder: none; '$tap_tmp/run/weft-[0-9]*' is not of this user alone" \
	WEFT_RUN_DIR="$tap_tmp/run"
gpus "no run folder" 'cannot be used: No such file or directory' \
	WEFT_RUN_DIR="$tap_tmp/nosuch"

# A UCX of our own making, found in each place where one may be.
fake_ucx() # FOLDER MINOR
{
	mkdir -p "$1"
	echo 'void ucp_get_version(unsigned *a, unsigned *b, unsigned *c);
	void ucp_get_version(unsigned *a, unsigned *b, unsigned *c)
	{ *a = 1; *b = MINOR; *c = 3; }' |
		$CC -x c -shared -fPIC -DMINOR="$2" -o "$1/libucp.so.0" -
}
if fake_ucx "$tap_tmp/old" 12 2>"$tap_tmp/err"; then
	fake_ucx "$tap_tmp/new" 23
	fake_ucx "$tap_tmp/conda/lib" 18
	fake_ucx "$tap_tmp/package/lib" 21
	shows "too old" "1\.12\.3 $tap_tmp/old/libucp" LD_LIBRARY_PATH="$tap_tmp/old"
	shows "is told" "weft does not support it (1\.13 to 1\.22)" \
		LD_LIBRARY_PATH="$tap_tmp/old"
	shows "too new" "1\.23\.3 $tap_tmp/new/libucp" LD_LIBRARY_PATH="$tap_tmp/new"
	shows "conda's" "conda  *1\.18\.3 $tap_tmp/conda/lib/libucp" \
		CONDA_PREFIX="$tap_tmp/conda"
	shows "conda's is missing" "conda  *none: no libucp.so.0 in $tap_tmp/old/lib" \
		CONDA_PREFIX="$tap_tmp/old"
	mkdir -p "$tap_tmp/venv/bin"
	printf '#!/bin/sh\nprintf %%s "%s"\n' "$tap_tmp/package" \
		>"$tap_tmp/venv/bin/python"
	chmod +x "$tap_tmp/venv/bin/python"
	shows "Python's" "Python  *1\.21\.3 $tap_tmp/package/lib/libucp" \
		VIRTUAL_ENV="$tap_tmp/venv"
	shows "Python's is missing" "Python  *none: no libucx package" \
		VIRTUAL_ENV="$tap_tmp/nothing"
	# The ways in that UCX 1.22 has, and earlier ones have not.
	fake_ucx "$tap_tmp/plugins" 22
	way() # NAME WORDS CODE [VARIABLE=VALUE...]
	{
		shows "$1" "$2" UCX_TLS=weft_tcp "${@:4}"
		ends "$1" "$3" UCX_TLS=weft_tcp PATH=/nosuch "${@:4}"
	}
	plugin=UCX_PLUGIN_PATH=/nosuch:$(dirname "$(product libuct_weft.so)")
	way "1.22 reads UCX_PLUGIN_PATH" "choice, LD.*weft enters it by UCX_PLUGIN" 0 \
		LD_LIBRARY_PATH="$tap_tmp/plugins" "$plugin"
	way "1.21 does not" "it: it reads no UCX_PLUGIN_PATH" 1 \
		LD_LIBRARY_PATH="$tap_tmp/package/lib" "$plugin"
	way "1.22 without it" "choice, LD.*weft does not enter it$" 1 \
		LD_LIBRARY_PATH="$tap_tmp/plugins"
	mkdir "$tap_tmp/plugins/ucx"
	ln -s "$(product libuct_weft.so)" "$tap_tmp/plugins/ucx"
	way "1.22 has a folder for it" "weft enters it by the ucx folder beside" 0 \
		LD_LIBRARY_PATH="$tap_tmp/plugins"
	test -n "$WEFT_SANITIZED" ||
		way "by LD_PRELOAD into any" "weft enters it by LD_PRELOAD$" 0 \
			LD_LIBRARY_PATH="$tap_tmp/package/lib" "$preload"
	ends "only one that weft does not support" 1 UCX_TLS=weft_tcp PATH=/nosuch \
		LD_LIBRARY_PATH="$tap_tmp/new" ${preload-}

	mkdir -p "$tap_tmp/newer/lib"
	cp "$tap_tmp/plugins/libucp.so.0" "$tap_tmp/newer/lib"
	sed "s|$tap_tmp/package|$tap_tmp/newer|" "$tap_tmp/venv/bin/python" \
		>"$tap_tmp/python"
	chmod +x "$tap_tmp/python"
	mkdir -p "$tap_tmp/venv22/bin"
	mv "$tap_tmp/python" "$tap_tmp/venv22/bin"
	shows "Python's, without LD_PRELOAD" "Dask turns without end in it and is slow" \
		VIRTUAL_ENV="$tap_tmp/venv22" "$plugin"
	test -n "$WEFT_SANITIZED" ||
		lacks "and with it" "turns without end" \
			VIRTUAL_ENV="$tap_tmp/venv22" "$preload"

	# A library that ends the process that loads it.
	echo '__attribute__((constructor)) static void f(void)
	{ __builtin_trap(); }' |
		$CC -x c -shared -fPIC -o "$tap_tmp/old/libucp.so.0" -
	shows "one that crashes" "programs  *none: 'libucp.so.0' crashes" \
		LD_LIBRARY_PATH="$tap_tmp/old"
else
	tap_skip "a UCX of our own making" "no compiler: $(head -1 "$tap_tmp/err")"
fi
tap_done
