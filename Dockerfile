# One node. The file or the environment configures it; the data volume is all that it keeps:
#   docker run -p 9092:9092 -p 9464:9464 -v streamlog:/var/lib/streamlog \
#     -e STREAMLOG_NATS__SERVERS=nats://nats:4222 -e STREAMLOG_KAFKA__ADVERTISED_HOST=localhost \
#     -e STREAMLOG_SECURITY__INSECURE=true streamlog    # or with certificates: docs/security.md
FROM python:3.13-slim AS build
RUN apt-get update && apt-get install -y --no-install-recommends gcc libc6-dev && rm -rf /var/lib/apt/lists/*
WORKDIR /src
COPY pyproject.toml setup.py README.md LICENSE ./
COPY streamlog streamlog
COPY spark spark
RUN python -m venv /opt/streamlog && /opt/streamlog/bin/pip install --no-cache-dir .

FROM python:3.13-slim
RUN useradd --system --uid 10001 streamlog && install -d -o streamlog -g streamlog /var/lib/streamlog
COPY --from=build /opt/streamlog /opt/streamlog
ENV PATH=/opt/streamlog/bin:$PATH \
    STREAMLOG_NODE__DATA_DIR=/var/lib/streamlog \
    STREAMLOG_KAFKA__HOST=0.0.0.0 \
    STREAMLOG_HTTP__HOST=0.0.0.0
USER streamlog
VOLUME /var/lib/streamlog
EXPOSE 9092 9464
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=10s --timeout=3s CMD ["python", "-c", "import urllib.request as u; u.urlopen('http://127.0.0.1:9464/healthz', timeout=2)"]
CMD ["streamlog", "serve"]
