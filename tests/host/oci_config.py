# SPDX-License-Identifier: BSD-3-Clause
"""Writes a container's config.json, for a runtime of the Open Container Initiative.

    oci_config.py PROFILE NETWORK USER MAPPED DESTINATION=SOURCE:OPTIONS... -- COMMAND...

The container is as Docker and Podman make one for a user without privileges: no
capability, noNewPrivileges, namespaces and a /dev/shm of its own, and PROFILE, the
seccomp profile in their format. NETWORK is the file of the network namespace that it
joins; OPTIONS are mount(8)'s. MAPPED is the host's user that is root in there, in a
user namespace, or 0 for none.
"""
import json
import os
import sys

ARCHES = {"x86_64": ("SCMP_ARCH_X86_64", "amd64"),
          "aarch64": ("SCMP_ARCH_AARCH64", "arm64")}


def holds(rule, arch):
    """Is it for this machine and a process without capabilities?"""
    wants, excepts = rule.get("includes") or {}, rule.get("excludes") or {}
    unknown = (wants.keys() | excepts.keys()) - {"arches", "caps", "minKernel"}
    if unknown:
        sys.exit(f"conditions in the profile that are not known here: {unknown}")
    # minKernel is of years ago
    return (not wants.get("caps") and arch in wants.get("arches", [arch]) and
            arch not in excepts.get("arches", []))


def seccomp(profile):
    """linux.seccomp: what the profile comes to here."""
    name, arch = ARCHES[os.uname().machine]
    return {
        "defaultAction": profile["defaultAction"],
        "defaultErrnoRet": profile.get("defaultErrnoRet", 1),
        "architectures": [name] + next(
            m["subArchitectures"] for m in profile["archMap"]
            if m["architecture"] == name),
        "syscalls": [
            {key: rule[key] for key in ("names", "action", "errnoRet", "args")
             if rule.get(key)}
            for rule in profile["syscalls"] if holds(rule, arch)],
    }


def mount(destination, source, kind, *options):
    return {"destination": destination, "source": source, "type": kind,
            "options": list(options)}


def binds(words):
    for word in words:
        destination, source = word.split("=", 1)
        source, options = source.rsplit(":", 1)
        yield mount(destination, source, "bind", "rbind", *options.split(","))


def config(profile, network, user, mapped, words, command):
    none = ["nosuid", "nodev", "noexec"]
    spaces = ["pid", "ipc", "uts", "mount"] + ["user"] * bool(mapped)
    mapping = {"containerID": 0, "hostID": mapped, "size": 65536}
    return {
        "ociVersion": "1.0.0",
        "process": {
            "user": {"uid": user, "gid": user},
            "args": command,
            "env": ["PATH=/usr/bin:/bin"],
            "cwd": "/",
            "capabilities": {},
            "noNewPrivileges": True,
        },
        "root": {"path": "rootfs", "readonly": True},
        "hostname": f"user{user}",
        "mounts": [
            mount("/proc", "proc", "proc", *none),
            mount("/sys", "sysfs", "sysfs", *none, "ro"),
            mount("/dev", "tmpfs", "tmpfs", "nosuid", "mode=755", "size=65536k"),
            mount("/dev/shm", "shm", "tmpfs", *none, "mode=1777", "size=65536k"),
            mount("/tmp", "tmpfs", "tmpfs", "nosuid", "nodev", "mode=1777"),
            *binds(words),
        ],
        "linux": {
            "namespaces": [{"type": name} for name in spaces] +
                          [{"type": "network", "path": network}],
            "uidMappings": [mapping] if mapped else [],
            "gidMappings": [mapping] if mapped else [],
            "seccomp": seccomp(profile),
            "maskedPaths": ["/proc/acpi", "/proc/kcore", "/proc/keys",
                            "/proc/timer_list", "/proc/scsi"],
            "readonlyPaths": ["/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys",
                              "/proc/sysrq-trigger"],
        },
    }


def main():
    split = sys.argv.index("--")
    with open(sys.argv[1], encoding="utf-8") as file:
        profile = json.load(file)
    network, user, mapped = sys.argv[2:5]
    json.dump(config(profile, network, int(user), int(mapped), sys.argv[5:split],
                     sys.argv[split + 1:]), sys.stdout, indent=1)


main()
