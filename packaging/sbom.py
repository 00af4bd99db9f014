#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Prints what a release consists of, and needs, as SPDX 2.3 in JSON.

usage: sbom.py FOLDER VERSION, with the release's date in SOURCE_DATE_EPOCH
"""
import hashlib
import json
import os
import pathlib
import sys
import time
import uuid

# What a build of weft needs, beside libc: how it comes in, and its licence.
NEEDS = [
    ("libsodium", "STATIC_LINK", "ISC"),
    ("libibverbs", "OPTIONAL_DEPENDENCY_OF",
     "GPL-2.0-only OR Linux-OpenIB"),
    ("libcuda", "OPTIONAL_DEPENDENCY_OF", "NOASSERTION"),
]
OURS = "SPDXRef-weft"


def file_of(path, folder):
    """One file of the release, as SPDX describes it."""
    data = path.read_bytes()
    sha1 = hashlib.sha1(data).hexdigest()
    return {
        "fileName": f"./{path.relative_to(folder)}",
        "SPDXID": f"SPDXRef-{hashlib.sha1(bytes(path.relative_to(folder))).hexdigest()}",
        "checksums": [
            {"algorithm": "SHA1", "checksumValue": sha1},
            {"algorithm": "SHA256",
             "checksumValue": hashlib.sha256(data).hexdigest()}],
        "licenseConcluded": "NOASSERTION",
        "copyrightText": "NOASSERTION",
    }


def package(name, spdx, licence, **more):
    """A package without files."""
    return {"name": name, "SPDXID": spdx, "downloadLocation": "NOASSERTION",
            "filesAnalyzed": False, "licenseConcluded": licence,
            "licenseDeclared": licence, "copyrightText": "NOASSERTION", **more}


def relation(one, kind, other):
    """ONE is KIND of OTHER."""
    return {"spdxElementId": one, "relationshipType": kind,
            "relatedSpdxElement": other}


def main():
    """Print the document."""
    folder, version = pathlib.Path(sys.argv[1]), sys.argv[2]
    files = [file_of(path, folder) for path in sorted(folder.rglob("*"))
             if path.is_file()]
    # SPDX 2.3, 7.9: the hash of all files' hashes
    code = hashlib.sha1("".join(sorted(
        file["checksums"][0]["checksumValue"] for file in files)).encode())
    weft = package("weft", OURS, "BSD-3-Clause", versionInfo=version,
                   supplier="Organization: the weft authors")
    weft.update(filesAnalyzed=True, packageVerificationCode={
        "packageVerificationCodeValue": code.hexdigest()})
    relations = [relation("SPDXRef-DOCUMENT", "DESCRIBES", OURS)]
    for name, kind, _ in NEEDS:
        ends = [OURS, f"SPDXRef-{name}"]
        if kind.endswith("_OF"):
            ends.reverse()
        relations.append(relation(ends[0], kind, ends[1]))
    json.dump({
        "spdxVersion": "SPDX-2.3",
        "dataLicense": "CC0-1.0",
        "SPDXID": "SPDXRef-DOCUMENT",
        "name": f"weft-{version}",
        "documentNamespace":
            f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_OID, code.hexdigest())}",
        "creationInfo": {
            "created": time.strftime(
                "%Y-%m-%dT%H:%M:%SZ",
                time.gmtime(int(os.environ["SOURCE_DATE_EPOCH"]))),
            "creators": ["Organization: the weft authors"]},
        "packages": [weft] + [package(name, f"SPDXRef-{name}", licence)
                              for name, _, licence in NEEDS],
        "files": files,
        "relationships": relations + [
            relation(OURS, "CONTAINS", file["SPDXID"]) for file in files],
    }, sys.stdout, indent=1)
    print()


if __name__ == "__main__":
    main()
