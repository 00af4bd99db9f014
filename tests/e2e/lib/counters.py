# SPDX-License-Identifier: BSD-3-Clause
"""What weft says it carried: the files that WEFT_STATS=FILE leaves behind."""
import glob
import json
import os


def read(path):
    """Rows of one process."""
    with open(path) as file:
        return [dict(json.loads(line),
                     process=os.path.basename(path).split(".")[0])
                for line in file]


def read_dir(folder, name="*"):
    """Rows of every process called @name; a killed process leaves none."""
    return [row for path in sorted(glob.glob(f"{folder}/{name}.*.stats"))
            for row in read(path)]


def total(rows, *names):
    """Sum of the named counters over @rows; a missing counter is an error."""
    return sum(row[name] for row in rows for name in names)


def payload_received(rows):
    """Bytes of the callers that weft brought into these processes."""
    return total(rows, "rx_message_bytes", "rx_put_bytes", "get_bytes")


def wire_sent(rows):
    """What these processes gave to the wire, headers of weft included."""
    return total(rows, "wire_tx_bytes")


def to_others(rows, hosts):
    """
    Rows that crossed a cable: a process may talk to itself by the address of
    its own eth0, which the kernel does not send anywhere.  @hosts: process
    name to Host.
    """
    return [row for row in rows if row["netdev"] == "eth0" and
            not row["where"].startswith(hosts[row["process"]].address + ":")]
