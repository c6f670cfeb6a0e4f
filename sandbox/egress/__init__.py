"""Egress: the one way out of a sandbox whose policy has an allow-list.

`allowlist`, `address`, `hello` and `request` decide and do no I/O; `server` is the proxy, `program`
the process it runs in, and `process` that process as the host sees it.
"""
