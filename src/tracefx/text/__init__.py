"""The text format of jaxprs: a printer, and a parser that reads its output."""
