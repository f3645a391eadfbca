"""What users call: functions to functions, over pytrees, with JAX's signatures."""
