# SPDX-License-Identifier: GPL-2.0-only
# uetproto with tshark and the plugin:
#   docker build -t uetproto .
#   docker run --rm -v "$PWD:/work" --user "$(id -u)" uetproto run gradient -o g.pcapng
#   docker run --rm -v "$PWD:/work" --user "$(id -u)" --entrypoint tshark uetproto -r g.pcapng -O uetp
# .devcontainer/ uses the stage `develop`. tests/test_container.py runs the commands of both in a chroot.

FROM debian:trixie-slim AS develop
RUN apt-get update && DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends \
    ca-certificates git gcc libc6-dev python3 python3-venv tshark iproute2 nftables chromium-headless-shell

FROM debian:trixie-slim AS uetproto
RUN apt-get update && DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends \
    ca-certificates python3 python3-venv tshark && rm -rf /var/lib/apt/lists/*
COPY . /src
RUN python3 -m venv /opt/uetproto && /opt/uetproto/bin/pip install --no-cache-dir "/src[all]" && rm -rf /src
ENV PATH=/opt/uetproto/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
RUN uetproto wireshark install --dir "$(tshark -G folders | sed -n 's/^Global Lua Plugins:[[:space:]]*//p')"
RUN useradd --create-home uetproto
USER uetproto
WORKDIR /work
ENTRYPOINT ["uetproto"]
CMD ["--help"]
