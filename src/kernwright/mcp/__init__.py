"""The MCP server: tasks, judge, records and diagnosis for agents, in the folders that its user names."""
