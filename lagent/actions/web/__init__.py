"""What the tools that use the web share: a bounded HTTP client, and how its answers are read."""
