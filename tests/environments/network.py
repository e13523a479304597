"""Where this machine gets packages, and what its network asks of whoever else wants them.

In a company's network hosts with packages have private addresses, and an authority of its own signs their
certificates. The tools of this machine are set up for that, so what a build needs is read from them.
"""

from __future__ import annotations

import ipaddress
import os
import pathlib
import re
import shutil
import socket
import ssl
import subprocess
import urllib.parse
import urllib.request
from dataclasses import dataclass

#: Where systems keep the authorities that somebody has added to theirs.
ADDED = ["/usr/local/share/ca-certificates", "/etc/pki/ca-trust/source/anchors"]

#: What the tools ask unless they are told otherwise.
INDEX = "https://pypi.org/simple"
NPM = "https://registry.npmjs.org/"
GO = "https://proxy.golang.org,direct"


def said(*argv: str) -> str:
    """What a tool says, and nothing if it is missing or has nothing to say."""
    if shutil.which(argv[0]) is None:
        return ""
    ended = subprocess.run(argv, capture_output=True, text=True, check=False)
    return ended.stdout.strip() if ended.returncode == 0 else ""


def authorities() -> str:
    """Certificates that this machine trusts beside the usual ones."""
    files = [file for place in ADDED for file in sorted(pathlib.Path(place).glob("**/*.crt"))]
    return "\n".join(file.read_text() for file in files if file.is_file())


def hosts(text: str) -> set[str]:
    return set(re.findall(r"https?://(?:[^/@\s]*@)?([\w.-]+)", text))


def hosts_of_files(index: str) -> set[str]:
    """Where the files are that an index of Python packages names."""
    page = f"{index.rstrip('/')}/pip/"
    context = ssl.create_default_context(cafile=os.environ.get("SSL_CERT_FILE"))
    with urllib.request.urlopen(page, timeout=60, context=context) as answer:
        return hosts(answer.read(16 << 20).decode())


def is_private(host: str) -> bool:
    """Whether no public address is known for the name here."""
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except socket.gaierror:
        return False
    return not all(ipaddress.ip_address(each[4][0].split("%")[0]).is_global for each in found)


@dataclass(frozen=True)
class Network:
    #: Hosts with packages whose addresses are not public.
    private: list[str]
    #: As PEM.
    authorities: str
    #: What the recipes are to be told.
    args: dict[str, str]

    def settings(self, directory: pathlib.Path) -> str:
        """What the operator of a server would write here."""
        lines = ["[egress]", f"allow-private = {self.private}".replace("'", '"')]
        if self.authorities:
            file = directory / "authorities.pem"
            file.write_text(self.authorities)
            lines.append(f'extra-ca = "{file}"')
        return "\n".join(lines) + "\n"


def look(sources: str, maven: str) -> Network:
    """`sources` are those of Debian's packages, and `maven` the repository that the recipes know."""
    args = {
        "PIP_INDEX_URL": os.environ.get("PIP_INDEX_URL") or said("pip", "config", "get", "global.index-url"),
        "NPM_CONFIG_REGISTRY": said("npm", "config", "get", "registry"),
        "GOPROXY": os.environ.get("GOPROXY") or said("go", "env", "GOPROXY"),
        "MAVEN_REPOSITORY": os.environ.get("MAVEN_REPOSITORY", ""),
    }
    args = {name: value for name, value in args.items() if value}
    index = args.get("PIP_INDEX_URL", INDEX)
    asked = [
        sources,
        index,
        args.get("NPM_CONFIG_REGISTRY", NPM),
        args.get("GOPROXY", GO),
        args.get("MAVEN_REPOSITORY", maven),
    ]
    named = hosts(" ".join(asked)) | hosts_of_files(index)
    return Network(sorted(filter(is_private, named)), authorities(), args)
