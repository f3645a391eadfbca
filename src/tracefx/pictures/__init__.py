"""Pictures of programs: pages to look at them."""
