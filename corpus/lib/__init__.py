"""The corpus's runner."""
