"""The MCP server: tasks, judge, records and diagnosis for agents, in the folders that were named at start."""
