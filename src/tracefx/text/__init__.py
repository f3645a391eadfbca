"""Programs as text: a printer and a parser that reads what it prints."""
