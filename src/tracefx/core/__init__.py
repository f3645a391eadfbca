"""The core: types, values, operations, handlers and jaxprs. Nothing here knows a transformation or a device."""
