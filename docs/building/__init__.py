"""The build of the documentation site: generated reference pages, links and doctest examples."""
