"""The library: what `import eab` offers. Each name is explained where it is defined."""
