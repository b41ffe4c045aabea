"""The tools and resources of the MCP server, one module for each noun."""
