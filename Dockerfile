# One node. The file or the environment configures it; the data volume is all that it keeps:
#   docker run -p 9092:9092 -p 9464:9464 -v streamlog:/var/lib/streamlog \
#     -e STREAMLOG_NATS__SERVERS=nats://nats:4222 -e STREAMLOG_KAFKA__ADVERTISED_HOST=localhost \
#     -e STREAMLOG_SECURITY__ALLOW_UNAUTHENTICATED=true streamlog    # or with certificates: docs/security.md
#
# What is installed is named with its checksums in deploy/*.lock (`make lock` makes them anew). For the same
# image to the byte, name the two below by their digests, too: --build-arg PYTHON=python@sha256:...
ARG PYTHON=python:3.13-slim-bookworm

FROM ${PYTHON} AS build
# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install -y --no-install-recommends gcc libc6-dev \
    && rm -rf /var/lib/apt/lists/*
WORKDIR /src
COPY deploy/requirements.lock deploy/build.lock /locks/
RUN python -m venv /opt/streamlog \
    && python -m venv --system-site-packages /build \
    && /build/bin/pip install --no-cache-dir --require-hashes --only-binary :all: -r /locks/build.lock
# Of nkeys there is a source alone: it is built by the tools of the lock, not by what pip would fetch for it.
RUN /build/bin/pip wheel --no-cache-dir --no-deps --no-build-isolation --require-hashes \
        --only-binary :all: --no-binary nkeys --wheel-dir /wheels -r /locks/requirements.lock \
    && /opt/streamlog/bin/pip install --no-cache-dir --no-index --no-deps /wheels/*.whl
COPY pyproject.toml setup.py README.md LICENSE ./
COPY config config
COPY streamlog streamlog
COPY spark spark
ARG SOURCE_DATE_EPOCH=0
RUN /build/bin/pip wheel --no-cache-dir --no-deps --no-build-isolation --wheel-dir /wheels . \
    && /opt/streamlog/bin/pip install --no-cache-dir --no-index --no-deps /wheels/streamlog-*.whl \
    && /opt/streamlog/bin/pip check \
    && /opt/streamlog/bin/python -I -c 'import streamlog.record.codec' \
    && /opt/streamlog/bin/pip uninstall --yes pip

FROM ${PYTHON}
LABEL org.opencontainers.image.title="streamlog" \
      org.opencontainers.image.description="NATS in, Kafka out, Spark over" \
      org.opencontainers.image.licenses="Apache-2.0"
RUN useradd --system --uid 10001 streamlog \
    && install -d -m 0700 -o streamlog -g streamlog /var/lib/streamlog
COPY --from=build /opt/streamlog /opt/streamlog
ENV PATH=/opt/streamlog/bin:$PATH \
    PYTHONDONTWRITEBYTECODE=1 \
    STREAMLOG_NODE__DATA_DIR=/var/lib/streamlog \
    STREAMLOG_KAFKA__HOST=0.0.0.0 \
    STREAMLOG_HTTP__HOST=0.0.0.0
USER 10001
VOLUME /var/lib/streamlog
EXPOSE 9092 9464
STOPSIGNAL SIGTERM
# Asks the node as its own settings say, TLS included: with a file of settings, name that in the probe, too.
HEALTHCHECK --interval=10s --timeout=5s --start-period=30s CMD ["streamlog", "health"]
CMD ["streamlog", "serve"]
