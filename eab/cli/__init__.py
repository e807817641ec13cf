"""The command line: `eab run`, `eab replay`, and the rest."""
