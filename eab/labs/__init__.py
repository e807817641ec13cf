"""The laboratories: `measure_<name>` measures one technique, `<name>` presents the rows."""
