"""Array creation, slicing, joining and broadcasting."""
