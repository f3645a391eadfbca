"""Operations that return their operands and inform the compiler or a transformation."""
