"""The library: the names that `import eab` offers. Each is documented where it is defined."""
