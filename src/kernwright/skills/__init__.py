"""Skills for coding agents: short instructions in the tool's own commands, and their installation."""
