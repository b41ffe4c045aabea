"""The command line: one module per command, in folders by subject. Heavy imports wait until a command runs."""
