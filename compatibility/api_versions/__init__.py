"""The APIs and versions of a node beside those of a Kafka broker.

``kafka.json`` has what a broker of Kafka lists in ApiVersions, but for versions that it calls unstable;
``BrokerApis.java`` makes it. ``differences`` says what a node lacks or has besides, and why; docs/apis.md is made of
that, too.

    python -m compatibility.api_versions HOST:PORT

asks a running node, and ends with 1 where something differs without a reason.
"""
