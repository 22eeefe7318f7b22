"""The configuration of a node: one TOML file, overridden by ``STREAMLOG_*`` of the environment.

- ``node_settings`` the tables of the file and their settings; ``settings_loader`` reads and checks them.
- ``machine`` the nodes that one file stands for, where ``node.processes`` is more than 1.
- ``secret_file``, ``token_file`` and ``watched_file`` files that settings name, read when they are used.
- ``description`` what there is to say about each; ``value_type`` and ``units`` read types and numbers.
"""

from streamlog.config.machine import (
    MachineNode,
    check_folders,
    load_node,
    load_nodes,
    mistakes_of,
    node_of,
    nodes_of,
)
from streamlog.config.node_settings import (
    ActivitySection,
    AuthorizationSection,
    ClientAuth,
    ClusterSection,
    ConsumersSection,
    EncryptionSection,
    GroupsSection,
    HttpSection,
    IngestSection,
    KafkaSection,
    LoggingSection,
    LogSection,
    NatsListenAuthSection,
    NatsListenSection,
    NatsPermissionsSection,
    NatsSection,
    NodeSection,
    ReplicationSection,
    SaslSection,
    Section,
    SecuritySection,
    SyncPolicy,
    TlsSection,
    TracingSection,
)
from streamlog.config.secret_file import SECRET_BYTES_MIN, SecretFile
from streamlog.config.settings_loader import (
    ENV_DELIMITER,
    ENV_PREFIX,
    SECRETS,
    ReadSettings,
    Settings,
    load_settings,
    read_settings,
)
from streamlog.config.units import KIB, MIB

__all__ = [
    "ENV_DELIMITER",
    "ENV_PREFIX",
    "KIB",
    "MIB",
    "SECRETS",
    "SECRET_BYTES_MIN",
    "ActivitySection",
    "AuthorizationSection",
    "ClientAuth",
    "ClusterSection",
    "ConsumersSection",
    "EncryptionSection",
    "GroupsSection",
    "HttpSection",
    "IngestSection",
    "KafkaSection",
    "LogSection",
    "LoggingSection",
    "MachineNode",
    "NatsListenAuthSection",
    "NatsListenSection",
    "NatsPermissionsSection",
    "NatsSection",
    "NodeSection",
    "ReadSettings",
    "ReplicationSection",
    "SaslSection",
    "SecretFile",
    "Section",
    "SecuritySection",
    "Settings",
    "SyncPolicy",
    "TlsSection",
    "TracingSection",
    "check_folders",
    "load_node",
    "load_nodes",
    "load_settings",
    "mistakes_of",
    "node_of",
    "nodes_of",
    "read_settings",
]
