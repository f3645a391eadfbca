"""Repeated blocks of a program: finding them, and sharing one body among them, so that they are compiled once."""
