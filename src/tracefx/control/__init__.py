"""Operations that carry programs."""
