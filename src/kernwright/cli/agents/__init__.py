"""Commands for coding agents: the MCP server, and skills."""
