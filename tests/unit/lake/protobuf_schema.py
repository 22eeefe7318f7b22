"""A message with all kinds of fields, as ``protoc`` describes it, and values of it."""

from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, timestamp_pb2

MESSAGE = "shop.Order"
_Field = descriptor_pb2.FieldDescriptorProto


def descriptor_set() -> bytes:
    """As of ``protoc --include_imports --descriptor_set_out``, for::

    syntax = "proto3"; package shop;
    enum Kind { NONE = 0; BOOK = 1; }
    message Item { string name = 1; uint32 count = 2; repeated double prices = 3; }
    message Node { Node next = 1; }
    message Order {
      int64 id = 1; uint64 serial = 2; Kind kind = 3; Item first = 4; repeated Item items = 5;
      map<string, int32> counts = 6; optional string note = 7; bytes raw = 8;
      google.protobuf.Timestamp at = 9; repeated Kind kinds = 10; bool ok = 11; float ratio = 12;
      map<int64, Item> by_id = 13;
    }
    """
    file = descriptor_pb2.FileDescriptorProto(
        name="shop.proto",
        package="shop",
        syntax="proto3",
        dependency=["google/protobuf/timestamp.proto"],
    )
    kind = file.enum_type.add(name="Kind")
    kind.value.add(name="NONE", number=0)
    kind.value.add(name="BOOK", number=1)
    item = file.message_type.add(name="Item")
    add(item, 1, "name", _Field.TYPE_STRING)
    add(item, 2, "count", _Field.TYPE_UINT32)
    add(item, 3, "prices", _Field.TYPE_DOUBLE, repeated=True)
    node = file.message_type.add(name="Node")
    add(node, 1, "next", _Field.TYPE_MESSAGE, ".shop.Node")
    order = file.message_type.add(name="Order")
    add(order, 1, "id", _Field.TYPE_INT64)
    add(order, 2, "serial", _Field.TYPE_UINT64)
    add(order, 3, "kind", _Field.TYPE_ENUM, ".shop.Kind")
    add(order, 4, "first", _Field.TYPE_MESSAGE, ".shop.Item")
    add(order, 5, "items", _Field.TYPE_MESSAGE, ".shop.Item", repeated=True)
    add_map(order, 6, "counts", _Field.TYPE_STRING, _Field.TYPE_INT32)
    add(order, 7, "note", _Field.TYPE_STRING)
    order.field[-1].proto3_optional = True
    order.field[-1].oneof_index = 0
    order.oneof_decl.add(name="_note")
    add(order, 8, "raw", _Field.TYPE_BYTES)
    add(order, 9, "at", _Field.TYPE_MESSAGE, ".google.protobuf.Timestamp")
    add(order, 10, "kinds", _Field.TYPE_ENUM, ".shop.Kind", repeated=True)
    add(order, 11, "ok", _Field.TYPE_BOOL)
    add(order, 12, "ratio", _Field.TYPE_FLOAT)
    add_map(order, 13, "by_id", _Field.TYPE_INT64, _Field.TYPE_MESSAGE, ".shop.Item")
    imported = descriptor_pb2.FileDescriptorProto()
    timestamp_pb2.DESCRIPTOR.CopyToProto(imported)
    return descriptor_pb2.FileDescriptorSet(file=[imported, file]).SerializeToString()


def add(
    message: Any, number: int, name: str, kind: Any, type_name: str = "", *, repeated: bool = False
) -> None:
    label = _Field.LABEL_REPEATED if repeated else _Field.LABEL_OPTIONAL
    message.field.add(name=name, number=number, type=kind, type_name=type_name or None, label=label)


def add_map(
    message: Any, number: int, name: str, key: Any, value: Any, type_name: str = ""
) -> None:
    entry = message.nested_type.add(name=f"{name.title().replace('_', '')}Entry")
    entry.options.map_entry = True
    add(entry, 1, "key", key)
    add(entry, 2, "value", value, type_name)
    reference = f".shop.{message.name}.{entry.name}"
    add(message, number, name, _Field.TYPE_MESSAGE, reference, repeated=True)


def order(**fields: Any) -> Any:
    """A message of the package's own making."""
    pool = descriptor_pool.DescriptorPool()
    for it in descriptor_pb2.FileDescriptorSet.FromString(descriptor_set()).file:
        pool.Add(it)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(MESSAGE))(**fields)
