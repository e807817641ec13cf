"""The laboratories: each measures one technique (`measure`) and says what its rows mean (`results`)."""
